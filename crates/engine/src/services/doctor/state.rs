//! The state folder: its permissions, whether the database and the journal are whole, and the
//! supervisor.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use everloop_core::time::{Time, human};
use everloop_store::{Ledger, Sqlite, replay};

use super::{Chart, DoctorFinding, Remedy};
use crate::error::Failure;
use crate::outboxes;
use crate::quantities::here;
use crate::record::read_state;
use crate::services::ServiceContext;
use crate::state_folder::{LockOwner, StateFolder};
use crate::text::count;

/// A last record later than now by more than this means that the clock was set back.
const CLOCK_SLACK_MS: i64 = 60_000;

/// The findings, and the ledger if it can be used.
pub(super) fn look(
    context: &ServiceContext,
    home: &StateFolder,
    supervisor: Option<&LockOwner>,
    remedy: &Remedy,
) -> (Vec<DoctorFinding>, Option<Sqlite>) {
    let mut chart = Chart::new("state");
    folder(&mut chart, home);
    wake_pipe(&mut chart, home, remedy);
    let ledger = match context.reader(home) {
        Ok(Some(ledger)) => Some(ledger),
        Ok(None) => {
            chart.ok("nothing was ever written: no loops yet");
            None
        }
        Err(failure) => {
            let hint = "move it away to start again; it holds the loops and the journal, so keep a copy";
            chart.fail(failure.message, failure.hint.unwrap_or_else(|| hint.to_owned()));
            None
        }
    };
    if let Some(ledger) = &ledger {
        database(&mut chart, ledger);
        journal(&mut chart, ledger, context.now());
        notifiers(&mut chart, ledger, context.now());
    }
    let usable = ledger.filter(|ledger| loops(&mut chart, ledger, supervisor));
    (chart.findings, usable)
}

/// An unreachable notifier is tried again automatically; a person may have to mend the other side.
fn notifiers(chart: &mut Chart, ledger: &Sqlite, now: Time) {
    match outboxes::troubles(ledger, now) {
        Ok(troubles) => {
            for (name, trouble) in troubles {
                chart.warn(format!("notifier `{name}` {trouble}"), format!("everloop ticket notifiers --test {name}"));
            }
        }
        Err(failure) => chart.warn(failure.message, "everloop ticket notifiers"),
    }
}

fn folder(chart: &mut Chart, home: &StateFolder) {
    let root = home.root();
    let me = std::fs::metadata("/proc/self").map(|meta| meta.uid());
    match std::fs::metadata(root) {
        Err(e) => chart.fail(format!("cannot read `{}`: {e}", root.display()), "use another one with --state-dir"),
        Ok(meta) if me.is_ok_and(|me| me != meta.uid()) => {
            chart.fail(format!("`{}` belongs to another user", root.display()), "use another one with --state-dir");
        }
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            chart.fail(
                format!("`{}` is readable by other users", root.display()),
                format!("chmod 700 {}", root.display()),
            );
        }
        Ok(_) => chart.ok(format!("{} is private", root.display())),
    }
}

/// A supervisor listens on a pipe; anything else of that name only swallows wake-ups.
fn wake_pipe(chart: &mut Chart, home: &StateFolder, remedy: &Remedy) {
    let Ok(meta) = std::fs::symlink_metadata(home.wake_pipe()) else { return };
    if meta.file_type().is_fifo() {
        return;
    }
    let text = format!("`{}` is not the pipe it should be", home.wake_pipe().display());
    if remedy.mends() && std::fs::remove_file(home.wake_pipe()).is_ok() {
        chart.fixed(text);
    } else {
        chart.warn(text, remedy.hint());
    }
}

fn database(chart: &mut Chart, ledger: &Sqlite) {
    let copy = "keep a copy of the folder; then `everloop replay` shows how far the journal can be trusted";
    match ledger.check_integrity() {
        Ok(wrong) if wrong.is_empty() => chart.ok("the database is sound"),
        Ok(wrong) => chart.fail(format!("the database is damaged: {}", wrong.join("; ")), copy),
        Err(e) => chart.fail(format!("cannot check the database: {e}"), copy),
    }
}

fn journal(chart: &mut Chart, ledger: &Sqlite, now: Time) {
    let mut last = None;
    let walked = replay::replay(ledger, |record| last = Some(record.at));
    match walked.and_then(|events| ledger.verify_chain().map(|_| events)) {
        Ok(events) => chart.ok(format!("the journal is whole: {}", count(events, "record"))),
        Err(e) => chart.fail(e.to_string(), "records before it can be trusted; keep a copy of the folder"),
    }
    if let Some(last) = last.filter(|last| last.0 > now.0 + CLOCK_SLACK_MS) {
        let ahead = human(last.since(now));
        chart.warn(
            format!("the journal's last record is {ahead} in the future: the clock was set back"),
            "set the clock",
        );
    }
}

/// Whether the states of all loops can be read.
fn loops(chart: &mut Chart, ledger: &Sqlite, supervisor: Option<&LockOwner>) -> bool {
    let states = ledger
        .loops()
        .map_err(Failure::from)
        .and_then(|rows| rows.iter().map(read_state).collect::<Result<Vec<_>, _>>());
    let states = match states {
        Ok(states) => states,
        Err(failure) => {
            chart.fail(failure.message, failure.hint.unwrap_or_else(|| "everloop replay".to_owned()));
            return false;
        }
    };
    let open = states.iter().filter(|s| !s.is_over()).count() as u64;
    match supervisor {
        Some(o) => {
            chart.ok(format!("`everloop {}` supervises since {} (process {})", o.role, here(o.since), o.process.pid));
        }
        None if open > 0 => {
            chart.warn(format!("{} not over and no supervisor runs", count(open, "loop")), "everloop up");
        }
        None => chart.ok("no supervisor runs, and no loop needs one"),
    }
    true
}
