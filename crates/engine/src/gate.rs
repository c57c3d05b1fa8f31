//! The links in front of agents' CLIs in turns of plain commands: made in the state folder, first in
//! the `PATH` of such a turn. What they lead to consults the guard
//! (`services::guard::admit_cli`).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use everloop_core::spec::{AgentKind, AgentSpec};

/// The CLIs behind the gate.
pub const CLIS: [&str; 5] = ["claude", "codex", "gemini", "opencode", "copilot"];

/// Where the links are.
pub fn folder(state: &Path) -> PathBuf {
    state.join("gate")
}

/// Whether turns of an agent have it: a CLI that is the agent itself is counted as a turn.
pub fn is_for(agent: &AgentSpec) -> bool {
    let program = agent.argv.first().and_then(|program| Path::new(program).file_name()?.to_str());
    agent.kind == AgentKind::Command && !program.is_some_and(|name| CLIS.contains(&name))
}

/// Makes the links to this program; returns the `PATH` of a turn.
pub fn make(state: &Path, exe: &Path, path: Option<&OsString>) -> io::Result<OsString> {
    if exe.starts_with("/proc") {
        // The file of this program was replaced: a link would lead to another one.
        return Err(io::Error::other("this program's file was replaced"));
    }
    let folder = folder(state);
    std::fs::create_dir_all(&folder)?;
    for cli in CLIS {
        let link = folder.join(cli);
        if std::fs::read_link(&link).is_ok_and(|to| to == exe) {
            continue;
        }
        // Renamed into its place: another turn may look for it now.
        let aside = folder.join(format!(".{cli}.{}", std::process::id()));
        std::fs::remove_file(&aside).ok();
        std::os::unix::fs::symlink(exe, &aside)?;
        std::fs::rename(&aside, &link)?;
    }
    let usual = path.map(std::env::split_paths).into_iter().flatten();
    std::env::join_paths([folder].into_iter().chain(usual)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_command_that_is_no_cli_has_a_gate() {
        let agent = |kind, program: &str| AgentSpec { kind, argv: vec![program.to_owned()], ..AgentSpec::default() };
        assert!(is_for(&agent(AgentKind::Command, "./wild.sh")));
        assert!(!is_for(&agent(AgentKind::Command, "/opt/bin/claude")));
        assert!(!is_for(&agent(AgentKind::Claude, "claude")));
    }

    #[test]
    fn the_links_are_first_in_the_path_and_follow_a_new_program() {
        let state = tempfile::tempdir().expect("a folder");
        for exe in ["/old/everloop", "/new/everloop", "/new/everloop"] {
            let path = make(state.path(), Path::new(exe), Some(&"/usr/bin:/bin".into())).expect("the folder is ours");
            let first = std::env::split_paths(&path).next().expect("there are three");
            assert_eq!(std::fs::read_link(first.join("claude")).expect("it is a link"), Path::new(exe));
            assert_eq!(std::env::split_paths(&path).count(), 3);
        }
    }
}
