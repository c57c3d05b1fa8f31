//! Sends a text to another program: a command with the text on standard input, for a bounded time.
//! Its output is not read; only the exit code counts.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use everloop_core::time::human;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::environment::Environment;

/// Why a text did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The receiver is away; another attempt may work.
    Away(String),
    /// The receiver refuses this one for good.
    Refused(String),
}

/// The exit code of a program that refuses its input (`EX_DATAERR`).
const REFUSES: i32 = 65;

/// Runs `argv` in `dir` with `input`; it is killed with all it started when it takes longer than `within`.
pub async fn tell(argv: &[String], dir: &Path, input: &str, within: Duration) -> Result<(), DeliveryError> {
    let away = |why: String| Err(DeliveryError::Away(why));
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
            // A program that does not read all of it may still succeed.
            pipe.write_all(input.as_bytes()).await.ok();
        }
        child.wait().await
    };
    let ended = timeout(within, talk).await;
    if let Some(group) = group {
        // Whatever it left behind has had its time. A group that is gone is what is wanted.
        killpg(group, Signal::SIGKILL).ok();
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) if status.code() == Some(REFUSES) => {
            Err(DeliveryError::Refused(format!("`{program}` does not want it")))
        }
        Ok(Ok(status)) => away(format!("`{program}` failed: {status}")),
        Ok(Err(e)) => away(format!("`{program}`: {e}")),
        Err(_) => away(format!("`{program}` took longer than {}", human(within))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, dir: &Path, within: Duration) -> Result<(), DeliveryError> {
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
        assert!(matches!(failed, Err(DeliveryError::Away(why)) if why.contains("exit status: 3")));
        assert!(matches!(run("exit 65", dir.path(), minute), Err(DeliveryError::Refused(_))));
        assert!(run("exec 0<&-; exit 0", dir.path(), minute).is_ok(), "it need not listen");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().expect("a folder");
        let late = run("sleep 600 & sleep 600", dir.path(), Duration::from_millis(200));
        assert!(matches!(late, Err(DeliveryError::Away(why)) if why.contains("took longer")));
    }
}
