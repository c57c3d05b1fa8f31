//! The command of a channel, with a text on standard input, for a bounded time. Its output is not
//! read; only its exit code counts.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use everloop_core::outbound::{Refusal, Undelivered};
use everloop_core::time::human;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::environment::Environment;

/// A program that takes longer is ended.
const WITHIN: Duration = Duration::from_secs(20);
/// Exit code of a program that rejects the delivery (`EX_DATAERR`).
const REFUSES: i32 = 65;

/// Runs `argv` in `dir` with `input`.
pub(super) async fn run(argv: &[String], dir: &Path, input: &str) -> Result<(), Undelivered> {
    tell(argv, dir, input, WITHIN).await
}

/// Starts the command; kills it with its process group when it takes longer than `within`.
async fn tell(argv: &[String], dir: &Path, input: &str, within: Duration) -> Result<(), Undelivered> {
    let away = |why: String| Err(Undelivered::away(why));
    let Some((program, args)) = argv.split_first() else { return away("there is no command".to_owned()) };
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).env_clear().envs(Environment::from_ours(&[]).into_vars());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return away(format!("`{program}` cannot be started: {e}")),
    };
    let group = child.id().map(|id| Pid::from_raw(id.cast_signed()));
    let pipe = child.stdin.take();
    let talk = async {
        if let Some(mut pipe) = pipe {
            // A program that does not read all of its input may still succeed.
            pipe.write_all(input.as_bytes()).await.ok();
        }
        child.wait().await
    };
    let ended = timeout(within, talk).await;
    if let Some(group) = group {
        // Its background processes have had their time. An error means that the group is already
        // gone.
        killpg(group, Signal::SIGKILL).ok();
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) if status.code() == Some(REFUSES) => {
            Err(Undelivered::refused(format!("`{program}` rejected it"), Refusal::Content))
        }
        Ok(Ok(status)) => away(format!("`{program}` failed: {status}")),
        Ok(Err(e)) => away(format!("`{program}`: {e}")),
        Err(_) => away(format!("`{program}` took longer than {}", human(within))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, dir: &Path, within: Duration) -> Result<(), Undelivered> {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(tell(&argv, dir, "hello\n", within))
    }

    #[test]
    fn it_hears_what_is_said_and_how_it_ended_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let minute = Duration::from_secs(60);
        assert_eq!(run("cat > heard", dir.path(), minute), Ok(()));
        assert_eq!(std::fs::read_to_string(dir.path().join("heard")).expect("it was written"), "hello\n");
        let failed = run("exit 3", dir.path(), minute);
        assert!(matches!(failed, Err(how) if how.refused.is_none() && how.why.contains("exit status: 3")));
        let rejected = run("exit 65", dir.path(), minute).expect_err("it rejects");
        assert_eq!(rejected.refused, Some(Refusal::Content));
        assert!(run("exec 0<&-; exit 0", dir.path(), minute).is_ok(), "the input need not be read");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().expect("a folder");
        let late = run("sleep 600 & sleep 600", dir.path(), Duration::from_millis(200));
        assert!(matches!(late, Err(how) if how.refused.is_none() && how.why.contains("took longer")));
    }
}
