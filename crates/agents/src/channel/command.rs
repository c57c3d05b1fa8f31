//! The command of a channel, with a text on standard input, for a bounded time. Only its exit code
//! counts; the last line of its errors explains a failure.

use std::time::Duration;

use everloop_core::outbound::{Refusal, Undelivered};

use crate::redact::without_secrets;
use crate::short_command::ShortCommand;

/// A program that takes longer is ended.
pub(super) const WITHIN: Duration = Duration::from_secs(20);
/// Exit code of a program that rejects the delivery (`EX_DATAERR`).
const REFUSES: i32 = 65;

/// Runs it once.
pub(super) async fn run(command: &ShortCommand<'_>) -> Result<(), Undelivered> {
    let ended = command.run().await.map_err(Undelivered::away)?;
    if ended.status.success() {
        return Ok(());
    }
    let program = command.argv.first().map_or("", String::as_str);
    if ended.status.code() == Some(REFUSES) {
        return Err(Undelivered::refused(format!("`{program}` rejected it"), Refusal::Content));
    }
    let said = without_secrets(&ended.last_line());
    let after = if said.is_empty() { String::new() } else { format!(": {said}") };
    Err(Undelivered::away(format!("`{program}` failed: {}{after}{}", ended.status, command.hint(&said))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use everloop_core::isolation::IsolationMode;

    use super::*;
    use crate::isolation::for_tests;

    fn run(script: &str, dir: &Path, within: Duration) -> Result<(), Undelivered> {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut isolation = for_tests(IsolationMode::Auto, dir);
        isolation.writable.push(dir.join("open"));
        let command = ShortCommand { argv: &argv, dir, input: "hello\n", isolation: &isolation, within };
        runtime.block_on(super::run(&command))
    }

    #[test]
    fn it_hears_what_is_said_and_how_it_ended_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let minute = Duration::from_secs(60);
        std::fs::create_dir(dir.path().join("open")).expect("the folder is new");
        assert_eq!(run("cat > open/heard", dir.path(), minute), Ok(()));
        assert_eq!(std::fs::read_to_string(dir.path().join("open/heard")).expect("it was written"), "hello\n");
        let failed = run("exit 3", dir.path(), minute);
        assert!(matches!(failed, Err(how) if how.refused.is_none() && how.why.contains("exit status: 3")));
        let rejected = run("exit 65", dir.path(), minute).expect_err("it rejects");
        assert_eq!(rejected.refused, Some(Refusal::Content));
        assert!(run("exec 0<&-; exit 0", dir.path(), minute).is_ok(), "the input need not be read");
        let path = dir.path().join("heard").display().to_string();
        let closed = run(&format!("cat > {path}"), dir.path(), minute).expect_err("only named paths can be written");
        assert!(closed.why.contains(&format!("`writable = [\"{}\"]`", dir.path().display())), "{closed:?}");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().expect("a folder");
        let late = run("sleep 600 & sleep 600", dir.path(), Duration::from_millis(200));
        assert!(matches!(late, Err(how) if how.refused.is_none() && how.why.contains("took longer")));
        assert_eq!(WITHIN, Duration::from_secs(20), "as the guide says");
    }
}
