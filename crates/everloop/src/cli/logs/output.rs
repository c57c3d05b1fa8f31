//! `everloop logs --turn`: what an agent said and did, also while it runs; its output with `--raw`.

use std::path::PathBuf;

use everloop_agents::job::{self, Stream};
use everloop_core::ids::TurnId;
use everloop_core::state::{LoopState, Phase};
use everloop_core::transcript::Transcript;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::transcript;
use everloop_store::Sqlite;
use serde_json::json;

use super::{LogsArgs, POLL_INTERVAL};
use crate::cli::VerbSession;
use crate::ui::Format;
use crate::ui::transcript::TranscriptLines;

/// Bytes shown of each stream: both ends of it.
const SHOWN_BYTES: u64 = 1 << 20;
/// Bytes compared to find what is new. A turn that writes more between two reads is shown with
/// gaps.
const WINDOW_BYTES: u64 = 64 << 10;

pub fn show(word: &str, args: &LogsArgs, session: &VerbSession, ledger: &Sqlite) -> Result<Code, Failure> {
    let (turn, dir) = find(word, args, session, ledger)?;
    if !args.raw {
        return steps(&turn, args, session);
    }
    if args.follow && session.ui.format() == Format::Text {
        follow(&dir, session)?;
        return Ok(Code::Ok);
    }
    let read = |stream| job::both_ends(&dir, stream, SHOWN_BYTES).map_err(|e| unreadable(&turn, &e));
    let (out, err) = (read(Stream::Out)?, read(Stream::Err)?);
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    if !err.trim().is_empty() {
        lines.push("--- stderr ---".to_owned());
        lines.extend(err.lines().map(str::to_owned));
    }
    let running = job::record(&dir).map_err(|e| unreadable(&turn, &e))?.is_none();
    session.ui.answer(&lines, &json!({ "turn": turn, "running": running, "stdout": out, "stderr": err }))?;
    Ok(Code::Ok)
}

/// What the agent said and did; with `--follow` as it comes.
fn steps(turn: &TurnId, args: &LogsArgs, session: &VerbSession) -> Result<Code, Failure> {
    if !args.follow || session.ui.format() == Format::Json {
        let found = transcript::transcript(session, turn)?;
        let mut lines = left_out(&found.transcript);
        lines.extend(TranscriptLines::default().of(&found.transcript.steps, session.ui.paint()));
        session.ui.answer(&lines, &found)?;
        return Ok(Code::Ok);
    }
    let mut follower = transcript::follow(session, turn)?;
    let (mut shown, mut printer) = (0, TranscriptLines::default());
    loop {
        follower.read()?;
        let steps = follower.transcript();
        let until = if follower.is_over() { usize::MAX } else { steps.settled() };
        let first = shown.max(steps.left_out);
        let new: Vec<_> = steps.since(first).take(until.saturating_sub(first)).collect();
        shown = first + new.len();
        session.ui.out_lines(&printer.of(new, session.ui.paint()))?;
        if follower.is_over() || session.ui.closed() {
            return Ok(Code::Ok);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn left_out(transcript: &Transcript) -> Vec<String> {
    let count = transcript.left_out;
    (count > 0).then(|| format!("… {count} earlier steps are in the output: --raw")).into_iter().collect()
}

fn unreadable(turn: &TurnId, error: &job::JobError) -> Failure {
    Failure::failed(format!("cannot read the output of turn `{turn}`")).because(error)
}

/// Finds the turn and its folder.
fn find(word: &str, args: &LogsArgs, session: &VerbSession, ledger: &Sqlite) -> Result<(TurnId, PathBuf), Failure> {
    let no_output = || {
        Failure::usage(format!("there is no output of turn `{word}`"))
            .hint("`everloop show ID` lists the turns of a loop; the output of old ones is removed")
    };
    let turn = match word.parse::<u32>() {
        Ok(number) => {
            let (_, state) = session.find_loop(ledger, args.id.as_deref())?;
            by_number(&state, number).ok_or_else(|| {
                Failure::usage(format!("loop `{}` has no turn {number}", state.id))
                    .hint(format!("`everloop show {}` lists its turns", state.id))
            })?
        }
        Err(_) => word.parse().map_err(|_| no_output())?,
    };
    let dir = session.home()?.turn(&turn);
    // A name with slashes would lead out of the folder of turns.
    if word.contains('/') || !dir.is_dir() {
        return Err(no_output());
    }
    Ok((turn, dir))
}

fn by_number(state: &LoopState, number: u32) -> Option<TurnId> {
    let running = match &state.phase {
        Phase::Turn(turn) if turn.number == number => Some(turn.id.clone()),
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) | Phase::Ended { .. } => None,
    };
    running.or_else(|| state.progress.tries.iter().find(|t| t.number == number).map(|t| t.turn.clone()))
}

fn follow(dir: &std::path::Path, session: &VerbSession) -> Result<(), Failure> {
    let failed = |e: job::JobError| Failure::failed(format!("cannot read `{}`", dir.display())).because(&e);
    let mut seen = [String::new(), String::new()];
    loop {
        // Read before the output: what comes in between is shown the next time.
        let over = job::record(dir).map_err(failed)?.is_some() || is_gone(dir).map_err(failed)?;
        for (stream, seen) in [Stream::Out, Stream::Err].into_iter().zip(&mut seen) {
            let now = job::output(dir, stream, WINDOW_BYTES).map_err(failed)?;
            // Only whole lines, unless nothing more will come.
            let whole = if over { now.len() } else { now.rfind('\n').map_or(0, |i| i + 1) };
            let new = fresh(seen, &now[..whole]);
            if !new.is_empty() {
                session.ui.out(new.strip_suffix('\n').unwrap_or(new))?;
            }
            now[..whole].clone_into(seen);
        }
        if over || session.ui.closed() {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether the shim ended without a record.
fn is_gone(dir: &std::path::Path) -> Result<bool, job::JobError> {
    Ok(job::started(dir)?.is_some_and(|s| !s.shim.is_alive()) && job::record(dir)?.is_none())
}

/// What `now` holds beyond `seen`, when both are the last part of a growing text.
fn fresh<'a>(seen: &str, now: &'a str) -> &'a str {
    if let Some(new) = now.strip_prefix(seen) {
        return new;
    }
    // The window moved on and now begins somewhere in a line; its whole lines are looked for among
    // those seen.
    let lines = now.find('\n').map_or("", |end| &now[end + 1..]);
    let starts = seen.match_indices('\n').map(|(end, _)| &seen[end + 1..]).filter(|rest| !rest.is_empty());
    starts.into_iter().find_map(|rest| lines.strip_prefix(rest)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_found_in_a_sliding_window() {
        assert_eq!(fresh("", "a\nb\n"), "a\nb\n");
        assert_eq!(fresh("a\nb\n", "a\nb\nc\n"), "c\n");
        assert_eq!(fresh("one\ntwo\nthree\n", "e\ntwo\nthree\nfour\n"), "four\n");
        assert_eq!(fresh("a\nb\n", "a\nb\n"), "");
        assert_eq!(fresh("a\nb\n", "x\ny\n"), "x\ny\n");
        assert_eq!(fresh("ää\nö\n", "ä\nö\nü\n"), "ü\n");
    }
}
