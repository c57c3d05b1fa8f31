//! The records of a research run: the table of its experiments, which is only appended to, and the
//! sums of the run. Both follow from the journal, so a crash loses nothing of them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::planted::{self, Bug};
use everloop_core::research::row::{Row, header, last_number};
use everloop_core::research::state::ExperimentStep;
use everloop_core::research::steps::{next_steps, steps_so_far};
use everloop_core::research::summary;
use everloop_core::state::{KeptWork, LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::shell::shared_run;
use everloop_store::{Ledger, OpenMode, Sqlite};

use crate::caller::Caller;
use crate::error::Failure;
use crate::mailbox;
use crate::state_folder::StateFolder;

/// Name of the table.
pub const TABLE: &str = "autoresearch-results.tsv";
/// Folder of the sums, beside the table.
const SESSIONS: &str = "research-sessions";
/// Records of the journal that are read at once.
const PAGE: usize = 500;
/// The end of a table in which its last row is looked for.
const TAIL_BYTES: u64 = 64 << 10;
/// A measurement that waits for another one looks this often.
const WAIT: Duration = Duration::from_millis(20);

/// The loop as a person sees it: with what all workers of its run found.
pub fn with_findings(ledger: &impl Ledger, mut state: LoopState) -> Result<LoopState, Failure> {
    let Some((_, shared)) = shared_run(ledger, &state)? else { return Ok(state) };
    state.research = shared.view(&state.id);
    let Some(found) = state.research.as_deref().filter(|_| !state.is_helper()) else { return Ok(state) };
    if let Some(commit) = &found.champion.commit {
        state.progress.work = Some(commit.clone());
    }
    let kept = |number: u32, commit: &String| KeptWork {
        task: TaskId::new(format!("experiment-{number}")),
        commit: Some(commit.clone()),
        diffstat: String::new(),
        integrated: None,
    };
    state.progress.kept_count = found.keep_count();
    state.progress.kept = found.keeps.iter().skip(1).map(|keep| kept(keep.number, &keep.commit)).collect();
    Ok(state)
}

/// The loop that a run is named after.
pub fn run_of(state: &LoopState) -> &LoopId {
    state.shared_run().unwrap_or(&state.id)
}

/// The folder of a run's records.
pub fn folder(home: &StateFolder, id: &LoopId) -> PathBuf {
    home.research().join(id.as_str())
}

/// The table of a run.
pub fn table(home: &StateFolder, state: &LoopState) -> PathBuf {
    let configured = state.spec.research.as_ref().and_then(|research| research.results.clone());
    configured.map_or_else(|| folder(home, run_of(state)).join(TABLE), PathBuf::from)
}

/// All rows of a run, in their order, the baseline first.
pub fn rows_of(ledger: &Sqlite, state: &LoopState) -> Result<Vec<Row>, Failure> {
    let mut all = Vec::new();
    for id in state.team() {
        all.extend(rows(ledger, &id)?);
    }
    all.sort_by_key(|row| row.number);
    Ok(all)
}

/// The rows that one loop decided.
pub fn rows(ledger: &dyn Ledger, id: &LoopId) -> Result<Vec<Row>, Failure> {
    let (mut rows, mut after) = (Vec::new(), 0);
    loop {
        let page = ledger.journal(after, Some(id), PAGE)?;
        let Some(last) = page.last() else { return Ok(rows) };
        after = last.seq;
        rows.extend(page.into_iter().filter_map(|record| match record.event {
            Event::Experiment { step } => match *step {
                ExperimentStep::Baseline { row, .. } | ExperimentStep::Decided { row } => Some(*row),
                ExperimentStep::Measured { .. }
                | ExperimentStep::Crashed { .. }
                | ExperimentStep::Branched { .. }
                | ExperimentStep::Seeded { .. }
                | ExperimentStep::Calibrated { .. }
                | ExperimentStep::Replayed { .. } => None,
            },
            _ => None,
        }));
    }
}

/// Appends to the table what it lacks, and writes the sums again.
pub fn record(home: &StateFolder, state: &LoopState) -> Result<(), Failure> {
    let (Some(spec), Some(research)) = (&state.spec.research, &state.research) else { return Ok(()) };
    let path = table(home, state);
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot write `{}`", path.display())).because(&e);
    if let Some(parent) = path.parent() {
        home.make(parent)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(cannot)?;
    file.lock().map_err(cannot)?;
    let size = file.metadata().map_err(cannot)?.len();
    let mut end = String::new();
    let mut known = None;
    // The last row is near the end, unless others write to the same file.
    for from in [size.saturating_sub(TAIL_BYTES), 0] {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).map_err(cannot)?;
        file.read_to_end(&mut bytes).map_err(cannot)?;
        end = String::from_utf8_lossy(&bytes).into_owned();
        known = last_number(&end, run_of(state));
        if known.is_some() || from == 0 {
            break;
        }
    }
    let from = known.map_or(0, |number| number + 1);
    // Another worker was faster.
    if known.is_some_and(|number| number > research.number) {
        return Ok(());
    }
    let recent = research.rows.iter().filter(|row| row.number >= from);
    let missing: Vec<Row> = match research.rows.first() {
        Some(first) if first.number <= from && from > 0 => recent.cloned().collect(),
        _ if from > research.number => Vec::new(),
        _ => {
            let all = rows_of(&Sqlite::open(&home.database(), OpenMode::ReadOnly)?, state)?;
            all.into_iter().filter(|row| row.number >= from).collect()
        }
    };
    if planted::is(Bug::TableRewritten) {
        file.set_len(0).map_err(cannot)?;
    }
    let mut text = if size == 0 { header(spec.metric.direction) } else { String::new() };
    // A line that a crash cut off is ended first.
    if size > 0 && !end.ends_with('\n') {
        text.push('\n');
    }
    text.extend(missing.iter().map(Row::line));
    file.write_all(text.as_bytes()).map_err(cannot)?;
    write_sums(home, state)
}

/// Writes the sums of the run.
fn write_sums(home: &StateFolder, state: &LoopState) -> Result<(), Failure> {
    let (Some(spec), Some(research)) = (&state.spec.research, &state.research) else { return Ok(()) };
    let dir = folder(home, run_of(state)).join(SESSIONS);
    home.make(&dir)?;
    // All rows are read once, when there will be no more: reading them after every experiment would
    // take longer and longer.
    let steps = match &state.phase {
        Phase::Ended { .. } => {
            let rows = rows_of(&Sqlite::open(&home.database(), OpenMode::ReadOnly)?, state)?;
            next_steps(&rows, &spec.plan, research.sigma())
        }
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) => steps_so_far(spec, research),
    };
    let steps: Vec<String> = steps.into_iter().map(|step| step.text).collect();
    let found: Vec<&str> = research.keeps.iter().skip(1).map(|keep| keep.description.as_str()).collect();
    let sums = serde_json::json!({
        "id": run_of(state),
        "workers": spec.workers,
        "goal": state.spec.goal,
        "metric": {
            "command": spec.metric.check.run,
            "direction": spec.metric.direction,
            "baseline": research.baseline,
            "final": research.champion.value(),
            "sigma": research.sigma(),
        },
        "iterations": research.number,
        "keeps": research.keep_count(),
        "champion": research.champion.commit,
        "findings": found,
        "next_steps": steps,
        "summary": summary::summary(spec, research, state.spec.bounds.max_turns),
    });
    let path = dir.join(format!("{}.json", run_of(state)));
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot write `{}`", path.display())).because(&e);
    let partial = path.with_extension("partial");
    std::fs::write(&partial, format!("{sums:#}\n")).map_err(cannot)?;
    std::fs::rename(&partial, &path).map_err(cannot)
}

/// The author of comments.
const AUTHOR: &str = "everloop";

/// Comments on the task of the last experiment how the run is doing, every few experiments and once.
pub fn comment(home: &StateFolder, state: &LoopState, now: Time) -> Result<(), Failure> {
    let (Some(spec), Some(found)) = (&state.spec.research, &state.research) else { return Ok(()) };
    let Some(row) = found.rows.last().filter(|row| summary::is_line_due(row.number)) else { return Ok(()) };
    let text = summary::status_line(spec, found);
    let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite)?;
    let is_there = mailbox::comments(&ledger, &row.task)?.iter().any(|comment| comment.text == text);
    if is_there || ledger.task(&row.task)?.is_none() {
        return Ok(());
    }
    let caller = Caller::Person(AUTHOR.to_owned());
    let comment = mailbox::letter(&ledger, mailbox::comments_of(&row.task), &text, &caller)?;
    ledger.transact(now, &[comment])?;
    Ok(())
}

/// Waits until no other measurement runs on this machine under this state folder; the next one waits
/// until the answer is dropped.
pub async fn one_at_a_time(home: &StateFolder) -> Result<File, String> {
    home.make(&home.research()).map_err(|failure| failure.message)?;
    let path = home.research().join("measuring.lock");
    let cannot = |e: std::io::Error| format!("cannot lock `{}`: {e}", path.display());
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(WAIT).await,
            Err(TryLockError::Error(e)) => return Err(cannot(e)),
        }
    }
}
