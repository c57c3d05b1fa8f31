//! The exit code and output of a shell command. It sees the environment of a check, and no
//! credentials.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use everloop_core::time::human;
use everloop_core::watch::WatchedContent;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::{hash, tail};
use crate::environment::Environment;

/// Bytes of output that are read; the rest is ignored.
const MOST_BYTES: u64 = 256 << 10;

pub(super) async fn look(run: &str, dir: &Path, within: Duration) -> Result<WatchedContent, String> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{{ {run}\n}} 2>&1")]).current_dir(dir);
    command.env_clear().envs(Environment::from_ours(&[]).into_vars());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| format!("`{run}` cannot be started: {e}"))?;
    let group = child.id().map(|id| Pid::from_raw(id.cast_signed()));
    let pipe = child.stdout.take();
    let listen = async {
        let mut output = Vec::new();
        if let Some(pipe) = pipe {
            // A command that writes more gets a closed pipe; what it wrote before counts.
            pipe.take(MOST_BYTES).read_to_end(&mut output).await.ok();
        }
        child.wait().await.map(|status| (status, output))
    };
    let ended = timeout(within, listen).await;
    if let Some(group) = group {
        // Its background processes have had their time. An error means that the group is already
        // gone.
        killpg(group, Signal::SIGKILL).ok();
    }
    let (status, output) = match ended {
        Ok(Ok(ended)) => ended,
        Ok(Err(e)) => return Err(format!("`{run}`: {e}")),
        Err(_) => return Err(format!("`{run}` took longer than {}", human(within))),
    };
    let how = status.code().map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit {code}"));
    let text = String::from_utf8_lossy(&output);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(WatchedContent {
        cursor: format!("{how}:{}", hash(&output)),
        summary: format!("{how}: {last}"),
        text: format!("`{run}`: {how}\n{}", tail(&text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, within: Duration) -> Result<WatchedContent, String> {
        let dir = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(look(script, dir.path(), within))
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
}
