//! `everloop status`: loops and what they are doing. One read of the ledger, never of the journal.

use everloop_core::hook::HookSession as Record;
use everloop_core::ids::LoopId;
use everloop_core::state::{LoopState, Phase};
use everloop_core::why;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::status::{self as services, MeshTasks, StatusAnswer, freeze_of};
use everloop_engine::state_folder::LockOwner;

use super::VerbSession;
use crate::ui::answers;
use crate::ui::quantities::score;
use crate::ui::quantities::{coarse, moment, relative};
use crate::ui::quarantine;
use crate::ui::status::{StatusStyle, status_table};
use crate::ui::text::{clean, count, fit};

const HELP: &str = "Examples:
  everloop status
  everloop status k3f9 --json
  everloop status k3f9 --exit-code; echo $?

With --exit-code: 0 reached or working · 1 failed · 3 ended without reaching the goal · 4 a ticket waits for a person ·
5 held by the guard · 6 not over and no supervisor runs. Several loops: the first of 5, 4, 6 that one of them has; when all
are over, the latest decides.";

/// Shows loops (of this folder first), what the guard holds, open tickets, and whether a supervisor
/// runs.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct StatusArgs {
    /// Loop id or name [default: the loops of this folder, and those of others that are not over]
    id: Option<String>,
    /// Show ended loops of other folders too
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Make the exit code depend on the state
    #[arg(long)]
    exit_code: bool,
}

pub fn status(args: &StatusArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let seen = services::status(session, args.id.as_deref())?;
    let look = session.ui.look(session.now());
    let shown = |state: &LoopState| args.all || args.id.is_some() || !state.is_over() || state.is_in(&session.dir);
    let loops: Vec<LoopState> = seen.loops.iter().filter(|state| shown(state)).cloned().collect();
    session.ui.answer(&lines(&seen, &loops, &look), &answers::status(&seen, look.now))?;
    let code = if args.exit_code { exit_code(&seen) } else { Code::Ok };
    Ok(code)
}

/// The lines about `loops`, which are some of those that were seen.
fn lines(seen: &StatusAnswer, loops: &[LoopState], look: &StatusStyle) -> Vec<String> {
    let mut lines = if seen.loops.is_empty() && !seen.mesh.is_empty() {
        Vec::new()
    } else if seen.loops.is_empty() {
        vec!["no loops yet; start one: everloop run \"GOAL\" --check 'CMD' --agent-cmd 'AGENT {prompt}'".to_owned()]
    } else {
        status_table(loops, &seen.guards, look)
    };
    let hidden = seen.loops.len() - loops.len();
    if hidden > 0 {
        lines.push(format!("… and {} in other folders: everloop status --all", count(hidden as u64, "ended loop")));
    }
    lines.extend(seen.mesh.iter().map(|(id, tasks)| mesh_line(id, tasks, look)));
    lines.extend(quarantine::lines(&seen.immune, look, |_| true));
    lines.extend(seen.sessions.iter().map(|(id, record)| session_line(id, record, look)));
    lines.extend(loops.iter().filter_map(|state| waiting_line(state, look)));
    let tries = |state: &LoopState| why::another_way(state).map(|tries| format!("{} {tries}", state.id));
    lines.extend(loops.iter().filter_map(tries).map(|line| fit(&clean(&line), look.width)));
    let doubts = |state: &LoopState| why::doubted(state).map(|doubted| format!("{} {doubted}", state.id));
    lines.extend(loops.iter().filter_map(doubts).map(|line| fit(&clean(&line), look.width)));
    for ticket in &seen.tickets {
        let owner = ticket.owner.as_ref().map_or(String::new(), |id| format!(" {id}"));
        let line = format!(
            "{} #{}{owner} ({}): {}",
            look.paint.warn("ticket"),
            ticket.id,
            relative(ticket.opened_at, look.now),
            clean(&ticket.text)
        );
        lines.push(fit(&line, look.width));
    }
    for (name, trouble) in &seen.troubles {
        let line = format!("{} {name} {}", look.paint.warn("notifier"), clean(trouble));
        lines.push(fit(&line, look.width));
    }
    for difference in &seen.configuration {
        // Not cut: its end is the command that helps.
        lines.push(format!("{} {}", look.paint.warn("config"), clean(&difference.describe())));
    }
    match &seen.supervisor {
        Some(owner) => lines.push(supervisor_line(owner, look)),
        None if seen.loops.iter().all(LoopState::is_over) => {}
        None => {
            lines.push(look.paint.warn("no supervisor is running: nothing happens until one does"));
            lines.push("hint: everloop up".to_owned());
        }
    }
    lines
}

/// What this node did for a loop of the mesh.
fn mesh_line(id: &LoopId, tasks: &MeshTasks, look: &StatusStyle) -> String {
    let MeshTasks { goal, open, reached, failed } = tasks;
    let over = reached + failed;
    let id = clean(id.as_str());
    let line = format!(
        "mesh {id}: {open} tasks in work here, {over} over ({reached} reached); `everloop mesh show {id}`: {}",
        clean(goal)
    );
    fit(&line, look.width)
}

/// A session that everloop did not start: where it is, and what it waits for by its own account.
fn session_line(id: &str, record: &Record, look: &StatusStyle) -> String {
    let seen = relative(record.seen_at, look.now);
    let mut parts = vec![format!("session {} of {} ({}), seen {seen}", clean(id), record.agent, clean(&record.name))];
    parts.extend(record.verdict.as_ref().map(|verdict| score(&verdict.board)));
    if record.holds > 0 {
        parts.push(format!("held {} in a row", record.holds));
    }
    if !record.pending.is_empty() {
        parts.push(format!("waits for {}", clean(&record.pending.join(", "))));
    }
    if let Some(until) = record.parked_until.filter(|until| *until > look.now) {
        parts.push(format!("limited by its vendor until {}", moment(until, look.now, &look.zone)));
    }
    fit(&parts.join("; "), look.width)
}

fn waiting_line(state: &LoopState, look: &StatusStyle) -> Option<String> {
    let Phase::Waiting { reason, .. } = &state.phase else { return None };
    let said = why::waiting(reason, look.now, &|at| moment(at, look.now, &look.zone));
    Some(fit(&format!("{} waits: {}", state.id, clean(&said)), look.width))
}

fn supervisor_line(owner: &LockOwner, look: &StatusStyle) -> String {
    let since = moment(owner.since, look.now, &look.zone);
    let age = coarse(look.now.since(owner.since));
    format!("supervisor: `everloop {}`, process {}, since {since} ({age})", clean(&owner.role), owner.process.pid)
}

fn exit_code(seen: &StatusAnswer) -> Code {
    let over = |state: &LoopState| match &state.phase {
        Phase::Ended { ending, .. } => Some(Code::of(ending)),
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) => None,
    };
    let open: Vec<Code> = seen.loops.iter().filter(|s| !s.is_over()).map(|s| code_of_open(s, seen)).collect();
    if open.is_empty() {
        return seen.loops.iter().max_by_key(|s| s.updated_at).and_then(over).unwrap_or(Code::Ok);
    }
    let urgent = [Code::Held, Code::NeedsPerson, Code::Away];
    urgent.into_iter().find(|code| open.contains(code)).unwrap_or(Code::Ok)
}

/// A freeze comes with a ticket, so the freeze is checked first: its code is more specific.
fn code_of_open(state: &LoopState, seen: &StatusAnswer) -> Code {
    if freeze_of(state, &seen.guards).is_some() {
        Code::Held
    } else if seen.tickets.iter().any(|t| t.owner.as_ref() == Some(&state.id)) {
        Code::NeedsPerson
    } else if seen.supervisor.is_none() {
        Code::Away
    } else {
        Code::Ok
    }
}

#[cfg(test)]
mod tests {
    use everloop_agents::process::Identity;
    use everloop_core::event::LoopEnd;
    use everloop_core::guard::{Freeze, GuardState, Scope, Versioned};
    use everloop_core::op::Ticket;
    use everloop_core::time::Time;

    use super::*;
    use everloop_testkit::sample::{START, state};

    fn owner() -> LockOwner {
        let process = Identity { pid: 1, start_ticks: 1, boot: String::new() };
        LockOwner { process, role: "up".to_owned(), since: START }
    }

    fn ended(ending: LoopEnd, at: i64) -> LoopState {
        LoopState { phase: Phase::Ended { ending, at: Time(at) }, updated_at: Time(at), ..state() }
    }

    #[test]
    fn the_exit_code_tells_what_is_most_urgent() {
        let open = StatusAnswer { loops: vec![state()], ..StatusAnswer::default() };
        assert_eq!(exit_code(&open), Code::Away);
        let watched = StatusAnswer { supervisor: Some(owner()), ..open };
        assert_eq!(exit_code(&watched), Code::Ok);
        let ticket = Ticket {
            id: 1,
            key: "stagnation:k3f9".into(),
            owner: Some(state().id),
            text: "look".into(),
            opened_at: START,
            closed: None,
        };
        let asking = StatusAnswer { tickets: vec![ticket], ..watched };
        assert_eq!(exit_code(&asking), Code::NeedsPerson);
        let freeze = Freeze {
            cause: "person".into(),
            audit: vec![],
            since: START,
            until: None,
            canary_at: None,
            canary_every_ms: 0,
            by: Some("me".into()),
        };
        let frozen = GuardState { freeze: Some(freeze), ..GuardState::default() };
        let held = StatusAnswer { guards: [(Scope::All, Versioned { version: 1, state: frozen })].into(), ..asking };
        assert_eq!(exit_code(&held), Code::Held);
    }

    #[test]
    fn when_all_are_over_the_latest_decides() {
        let exhausted = ended(LoopEnd::Exhausted { bound: "turns".into() }, 5);
        let seen = StatusAnswer { loops: vec![exhausted, ended(LoopEnd::Reached, 9)], ..StatusAnswer::default() };
        assert_eq!(exit_code(&seen), Code::Ok);
        let seen =
            StatusAnswer { loops: vec![ended(LoopEnd::Stopped { by: "me".into() }, 9)], ..StatusAnswer::default() };
        assert_eq!(exit_code(&seen), Code::NotReached);
        let failed = ended(LoopEnd::Failed { why: "its folder is gone".into() }, 9);
        assert_eq!(exit_code(&StatusAnswer { loops: vec![failed], ..StatusAnswer::default() }), Code::Failed);
        assert_eq!(exit_code(&StatusAnswer::default()), Code::Ok);
    }
}
