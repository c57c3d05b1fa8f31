//! Whether the hooks that `init` wrote are still there, and whether the CLI runs them. An agent can
//! write the files that name them, and is free of its hooks when it does.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::de::DeTable;

use super::plan::{self, AgentCli};
use super::record::Originals;
use crate::state_folder::StateFolder;

/// Broken files that are kept; an agent that breaks it again and again must not fill the folder.
const MAX_SET_ASIDE: u32 = 20;

/// A file that named our hooks, and does not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostHooks {
    pub cli: AgentCli,
    pub file: PathBuf,
    pub how: Loss,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is gone, or no JSON.
    Gone,
    /// Our hooks for these moments are not in it.
    Without(Vec<&'static str>),
    /// All hooks are switched off in it.
    SwitchedOff,
}

impl LostHooks {
    /// What it means, in one sentence.
    pub fn describe(&self) -> String {
        let (file, agent) = (self.file.display(), self.cli.kind().label());
        let what = match &self.how {
            Loss::Gone => format!("`{file}` is gone or cannot be read"),
            Loss::Without(moments) => format!("`{file}` lost everloop's hooks ({})", moments.join(", ")),
            Loss::SwitchedOff => format!("`{file}` switches all hooks off"),
        };
        format!("{what}: sessions of {agent} there are not held by their checks")
    }

    /// The command that puts them back.
    pub fn remedy(&self) -> String {
        format!("everloop init --agent {}", self.cli.kind().label())
    }
}

/// The files with hooks that `init` wrote for a project.
pub fn files(home: &StateFolder, root: &Path) -> io::Result<Vec<(AgentCli, PathBuf)>> {
    let written = Originals::load(home, root)?.paths(root);
    let all = AgentCli::ALL.into_iter().filter_map(|cli| Some((cli, root.join(cli.hooks()?.0))));
    Ok(all.filter(|(_, file)| written.contains(file)).collect())
}

/// Those of them that have lost hooks.
pub fn lost(home: &StateFolder, root: &Path) -> io::Result<Vec<LostHooks>> {
    let found = files(home, root)?.into_iter().filter_map(|(cli, file)| {
        let how = loss(cli, &file)?;
        Some(LostHooks { cli, file, how })
    });
    Ok(found.collect())
}

fn loss(cli: AgentCli, file: &Path) -> Option<Loss> {
    let text = std::fs::read_to_string(file).ok();
    let Some(parsed) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else { return Some(Loss::Gone) };
    if parsed["disableAllHooks"] == true {
        return Some(Loss::SwitchedOff);
    }
    let (_, moments) = cli.hooks()?;
    let missing: Vec<&'static str> =
        moments.iter().filter(|moment| !plan::has_our_hook(&parsed, moment)).copied().collect();
    (!missing.is_empty()).then_some(Loss::Without(missing))
}

/// Puts lost hooks back; returns the files. A file with an unexpected form is left alone; one that is
/// no JSON is kept beside its successor.
pub fn restore(home: &StateFolder, root: &Path) -> io::Result<Vec<LostHooks>> {
    let lost = lost(home, root)?;
    let mut restored = Vec::new();
    for one in lost {
        if one.how == Loss::Gone && std::fs::symlink_metadata(&one.file).is_ok() && !set_aside(&one.file)? {
            continue;
        }
        let changes = plan::put(root, &[one.cli])?;
        for change in changes.iter().filter(|change| change.path == one.file) {
            change.perform(root)?;
        }
        if loss(one.cli, &one.file).is_none() {
            restored.push(one);
        }
    }
    Ok(restored)
}

/// Moves a file to the first free name behind it, so that nothing a person wrote is lost; a link
/// moves itself, not what it leads to. `false` where no name is free.
fn set_aside(file: &Path) -> io::Result<bool> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let names = (1..=MAX_SET_ASIDE).map(|number| file.with_file_name(format!("{name}.broken-{number}")));
    let Some(free) = names.into_iter().find(|path| std::fs::symlink_metadata(path).is_err()) else { return Ok(false) };
    std::fs::rename(file, free)?;
    Ok(true)
}

/// Whether a project's own settings call everloop at a moment, too. Then a plugin need not.
pub fn project_calls(root: &Path, cli: AgentCli, moment: &str) -> bool {
    let Some((file, _)) = cli.hooks() else { return false };
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    serde_json::from_str::<Value>(&text).is_ok_and(|parsed| plan::has_our_hook(&parsed, moment))
}

/// Why a CLI skips the hooks of a project without a word; `None` where it runs them.
pub fn skipped(cli: AgentCli, root: &Path, user_home: &Path) -> Option<String> {
    let agent = cli.kind().label();
    match cli {
        AgentCli::Codex => {
            let place = std::env::var_os("CODEX_HOME").map_or_else(|| user_home.join(".codex"), PathBuf::from);
            let text = std::fs::read_to_string(place.join("config.toml")).unwrap_or_default();
            let (folder, hooks) = codex_trust(&text, root);
            match (folder, hooks) {
                (false, _) => {
                    Some(format!("{agent} skips the hooks of {}: it does not trust the folder", root.display()))
                }
                (true, false) => Some(format!("{agent} skips the hooks of {}: it trusts none of them", root.display())),
                (true, true) => None,
            }
        }
        AgentCli::Gemini => {
            let text = std::fs::read_to_string(user_home.join(".gemini/trustedFolders.json")).unwrap_or_default();
            let trusted = gemini_trusts(&text, root);
            (!trusted).then(|| format!("{agent} skips the hooks of {}: it does not trust the folder", root.display()))
        }
        AgentCli::Claude | AgentCli::Opencode => None,
    }
}

/// What a person has to do about it.
pub fn trust_hint(cli: AgentCli) -> &'static str {
    match cli {
        AgentCli::Codex => "start `codex` in the folder once, trust it, and trust the hooks in `/hooks`",
        AgentCli::Gemini | AgentCli::Claude | AgentCli::Opencode => "start the CLI in the folder once and trust it",
    }
}

/// Whether codex trusts the folder, and any hook of its file.
fn codex_trust(text: &str, root: &Path) -> (bool, bool) {
    let (parsed, _) = DeTable::parse_recoverable(text);
    let table = parsed.get_ref();
    let projects = table.get("projects").and_then(|projects| projects.get_ref().as_table());
    let trusts = |dir: &Path| {
        let level = projects.and_then(|all| all.get(dir.display().to_string().as_str()));
        let level = level.and_then(|one| one.get_ref().get("trust_level")).and_then(|level| level.get_ref().as_str());
        level == Some("trusted")
    };
    let file = root.join(".codex/hooks.json").display().to_string();
    let state = table.get("hooks").and_then(|hooks| hooks.get_ref().get("state"));
    let state = state.and_then(|state| state.get_ref().as_table());
    let hooks = state.is_some_and(|all| {
        all.iter().any(|(key, one)| key.get_ref().contains(&file) && one.get_ref().get("trusted_hash").is_some())
    });
    (root.ancestors().any(trusts), hooks)
}

/// A folder is trusted by its own entry, by one of a folder above it, or through a neighbour.
fn gemini_trusts(text: &str, root: &Path) -> bool {
    let Ok(Value::Object(folders)) = serde_json::from_str::<Value>(text) else { return false };
    let level = |dir: &Path| folders.get(&dir.display().to_string()).and_then(Value::as_str);
    match level(root) {
        Some("DO_NOT_TRUST") => false,
        Some(_) => true,
        None => {
            let above = root.ancestors().skip(1).any(|dir| level(dir) == Some("TRUST_FOLDER"));
            let beside = folders.iter().any(|(dir, how)| {
                how == "TRUST_PARENT" && Path::new(dir).parent().is_some_and(|parent| root.starts_with(parent))
            });
            above || beside
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project whose hooks were written by `init`.
    fn project(cli: AgentCli) -> (tempfile::TempDir, StateFolder, PathBuf) {
        let world = tempfile::tempdir().expect("a folder");
        let home = StateFolder::open(Some(&world.path().join("state"))).expect("a state folder");
        let root = world.path().join("project");
        std::fs::create_dir(&root).expect("the folder is new");
        let changes = plan::put(&root, &[cli]).expect("the folder is empty");
        let mut originals = Originals::default();
        for change in &changes {
            originals.add(change, &root);
        }
        originals.save(&home, &root).expect("the state folder is ours");
        for change in &changes {
            change.perform(&root).expect("the project is ours");
        }
        (world, home, root)
    }

    #[test]
    fn emptied_removed_and_switched_off_hooks_are_found_and_put_back() {
        for cli in [AgentCli::Claude, AgentCli::Codex, AgentCli::Gemini] {
            let (_world, home, root) = project(cli);
            assert_eq!(lost(&home, &root).expect("it is read"), [], "{cli:?}");
            let file = root.join(cli.hooks().expect("it has hooks").0);
            for text in [Some("{}"), Some("not json"), Some(r#"{"hooks":{"Stop":[]},"theirs":1}"#), None] {
                match text {
                    Some(text) => std::fs::write(&file, text).expect("it is ours"),
                    None => std::fs::remove_file(&file).expect("it is there"),
                }
                assert_eq!(lost(&home, &root).expect("it is read").len(), 1, "{cli:?} {text:?}");
                assert_eq!(restore(&home, &root).expect("it is put back").len(), 1, "{cli:?} {text:?}");
                assert_eq!(lost(&home, &root).expect("it is read"), [], "{cli:?} {text:?}");
                let now = std::fs::read_to_string(&file).expect("it is there");
                let theirs = text.is_some_and(|text| text.contains("theirs"));
                assert_eq!(now.contains("theirs"), theirs, "what is not ours stays: {now}");
            }
            let kept = file.with_file_name(format!("{}.broken-1", file.file_name().expect("a name").to_string_lossy()));
            assert_eq!(std::fs::read_to_string(kept).expect("it was set aside"), "not json");
        }
        let (world, home, root) = project(AgentCli::Claude);
        let (settings, theirs) = (root.join(".claude/settings.json"), world.path().join("theirs"));
        std::fs::write(&theirs, "a person's file").expect("it is ours");
        std::fs::remove_file(&settings).expect("it is there");
        std::os::unix::fs::symlink(&theirs, &settings).expect("its place is free");
        assert_eq!(restore(&home, &root).expect("it is put back").len(), 1);
        assert_eq!(std::fs::read_to_string(&theirs).expect("it is there"), "a person's file", "a link is not followed");
        std::fs::write(root.join(".claude/settings.json"), r#"{"disableAllHooks":true}"#).expect("it is ours");
        assert_eq!(lost(&home, &root).expect("it is read")[0].how, Loss::SwitchedOff);
    }

    #[test]
    fn what_init_did_not_write_is_not_watched() {
        let (_world, home, root) = project(AgentCli::Claude);
        std::fs::create_dir(root.join(".gemini")).expect("it is new");
        std::fs::write(root.join(".gemini/settings.json"), "{}").expect("it is ours");
        assert_eq!(lost(&home, &root).expect("it is read"), []);
        Originals::forget(&home, &root).expect("it is there");
        std::fs::remove_file(root.join(".claude/settings.json")).expect("it is there");
        assert_eq!(lost(&home, &root).expect("it is read"), []);
    }

    #[test]
    fn trust_of_codex_and_gemini_is_read() {
        let root = Path::new("/home/me/project");
        let folder = "[projects.\"/home/me/project\"]\ntrust_level = \"trusted\"\n";
        assert_eq!(codex_trust("", root), (false, false));
        assert_eq!(codex_trust(folder, root), (true, false));
        let key = "[hooks.state.\"/home/me/project/.codex/hooks.json:stop:0:0\"]\ntrusted_hash = \"sha256:1\"\n";
        assert_eq!(codex_trust(&format!("{folder}{key}"), root), (true, true));
        assert_eq!(codex_trust(&folder.replace("\"trusted\"", "\"untrusted\""), root), (false, false));
        assert!(!gemini_trusts("", root) && !gemini_trusts("{}", root));
        assert!(gemini_trusts(r#"{"/home/me/project":"TRUST_FOLDER"}"#, root));
        assert!(gemini_trusts(r#"{"/home/me":"TRUST_FOLDER"}"#, root));
        assert!(gemini_trusts(r#"{"/home/me/other":"TRUST_PARENT"}"#, root));
        assert!(!gemini_trusts(r#"{"/home/me":"TRUST_FOLDER","/home/me/project":"DO_NOT_TRUST"}"#, root));
    }
}
