//! The exit code and output of a shell command. It sees the environment of a check, and no
//! credentials; it reads what its section opens, and writes nothing else.

use everloop_core::watch::WatchedContent;

use super::{Probe, hash, tail};
use crate::short_command::ShortCommand;

pub(super) async fn look(run: &str, of: &Probe<'_>) -> Result<WatchedContent, String> {
    let argv = ["sh".to_owned(), "-c".to_owned(), format!("{{ {run}\n}} 2>&1")];
    let command =
        ShortCommand { argv: &argv, dir: of.dir, input: "", isolation: of.isolation, within: of.monitor.timeout };
    let ended = command.run().await.map_err(|why| why.replacen("`sh`", &format!("`{run}`"), 1))?;
    let how = ended.status.code().map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit {code}"));
    let text = String::from_utf8_lossy(&ended.out);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let hint = if ended.status.success() { String::new() } else { command.hint(&text) };
    Ok(WatchedContent {
        cursor: format!("{how}:{}", hash(&ended.out)),
        summary: format!("{how}: {last}{hint}"),
        text: format!("`{run}`: {how}\n{}", tail(&text)),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everloop_core::isolation::{CommandAccess, IsolationMode};
    use everloop_core::watch::{EVERY, MonitorSpec, Target};

    use super::*;
    use crate::isolation::for_tests;

    fn run(script: &str, within: Duration) -> Result<WatchedContent, String> {
        let dir = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let monitor = MonitorSpec {
            name: "it".to_owned(),
            target: Target::Command(script.to_owned()),
            every: EVERY,
            timeout: within,
            title: String::new(),
            prompt: String::new(),
            access: CommandAccess::default(),
        };
        let isolation = for_tests(IsolationMode::Auto, dir.path());
        let probe = Probe { monitor: &monitor, dir: dir.path(), isolation: &isolation };
        runtime.block_on(crate::monitor::look(probe, None))
    }

    #[test]
    fn what_it_prints_is_kept_without_keys_and_its_environment_is_the_allow_list() {
        let key = format!("ghp_{}", "a1B2c3".repeat(6));
        let found = run(&format!("env; echo {key}; echo last {key} >&2"), Duration::from_secs(60));
        let found = found.expect("it can be run");
        assert!(found.text.contains("[redacted:github token]") && found.summary.contains("[redacted:"), "{found:?}");
        assert!(!format!("{found:?}").contains(&key), "{found:?}");
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets it for tests");
        assert!(found.text.contains("PATH=") && !found.text.contains("CARGO_MANIFEST_DIR"), "{found:?}");
    }

    #[test]
    fn the_exit_code_and_the_output_count() {
        let minute = Duration::from_secs(60);
        let cursor = |script: &str| run(script, minute).expect("it can be run").cursor;
        assert_eq!(cursor("echo a"), cursor("echo a"));
        assert_ne!(cursor("echo a"), cursor("echo b"));
        assert_ne!(cursor("echo a"), cursor("echo a; exit 1"));
        assert_ne!(cursor("true"), cursor("echo a >&2"), "standard error is part of the cursor");
        let found = run("echo one; echo two >&2; exit 3 # done", minute).expect("it can be run");
        assert_eq!(found.summary, "exit 3: two");
        assert!(found.text.ends_with("exit 3\none\ntwo\n"), "{found:?}");
    }

    #[test]
    fn one_that_hangs_or_floods_is_bounded() {
        let late = run("sleep 600 & sleep 600", Duration::from_millis(200));
        assert!(late.expect_err("it hangs").contains("took longer"));
        let flood = run("yes", Duration::from_secs(60)).expect("it ends with the closed pipe");
        assert!(flood.text.len() < 10_000);
    }

    #[test]
    fn it_writes_only_its_own_folder_for_temporary_files() {
        let minute = Duration::from_secs(60);
        let found = run("echo x > file; echo y > $TMPDIR/file && cat $TMPDIR/file; ls", minute).expect("it can be run");
        assert_eq!(found.summary, "exit 0: y", "{found:?}");
    }
}
