//! `everloop status`: loops and what they are doing. One read of the ledger, never of the journal.

use std::time::Duration;

use everloop_core::guard::{Freeze, Guards, Scope};
use everloop_core::hook::{HookSession as Record, SESSION};
use everloop_core::immune::Immune;
use everloop_core::op::Ticket;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_core::why;
use everloop_store::{Ledger, Tickets};
use serde_json::{Value, json};

use super::Invocation;
use crate::error::{Code, Failure};
use crate::notifiers;
use crate::record::read_state;
use crate::state_folder::LockOwner;
use crate::state_folder::node_id;
use crate::ui::quantities::score;
use crate::ui::quantities::{coarse, moment, relative};
use crate::ui::quarantine;
use crate::ui::status::{StatusStyle, status_table};
use crate::ui::text::{clean, fit};

const HELP: &str = "Examples:
  everloop status
  everloop status k3f9 --json
  everloop status k3f9 --exit-code; echo $?

With --exit-code: 0 reached or working · 1 failed · 3 ended without reaching the goal · 4 a ticket waits for a person ·
5 held by the guard · 6 not over and no supervisor runs. Several loops: the first of 5, 4, 6 that one of them has; when all
are over, the latest decides.";

/// A session that was silent for longer counts as gone.
const SESSION_SHOWN: Duration = Duration::from_secs(24 * 3600);

/// Shows loops, what the guard holds, open tickets, and whether a supervisor runs.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct StatusArgs {
    /// Loop id or name [default: all]
    id: Option<String>,
    /// Make the exit code depend on the state
    #[arg(long)]
    exit_code: bool,
}

/// What one read of the ledger found.
#[derive(Debug, Default)]
struct Seen {
    loops: Vec<LoopState>,
    guards: Guards,
    tickets: Vec<Ticket>,
    /// Notifiers that cannot be reached, and what is wrong.
    troubles: Vec<(String, String)>,
    /// Sessions that everloop did not start, by id.
    sessions: Vec<(String, Record)>,
    immune: Immune,
    supervisor: Option<LockOwner>,
}

pub fn status(args: &StatusArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let seen = look_around(args.id.as_deref(), session)?;
    let look = session.ui.look(session.now());
    session.ui.answer(&lines(&seen, &look), &as_json(&seen, look.now))?;
    let code = if args.exit_code { exit_code(&seen) } else { Code::Ok };
    Ok(code)
}

fn look_around(word: Option<&str>, session: &Invocation) -> Result<Seen, Failure> {
    let home = session.home()?;
    let supervisor = home.owner();
    let Some(ledger) = session.reader(&home)? else {
        return match word {
            Some(_) => Err(super::no_loops()),
            None => Ok(Seen { supervisor, ..Seen::default() }),
        };
    };
    let mut loops = match word {
        Some(word) => vec![session.find_loop(&ledger, Some(word))?.1],
        None => ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?,
    };
    loops.sort_by_key(|s| std::cmp::Reverse((!s.is_over(), s.created_at)));
    let mut tickets = ledger.tickets(Tickets::Open)?;
    if word.is_some() {
        tickets.retain(|t| t.owner.is_none() || loops.iter().any(|s| t.owner.as_ref() == Some(&s.id)));
    }
    let mut sessions = Vec::new();
    for row in ledger.docs(SESSION)? {
        let record = super::hook::read_record(&row.body)?;
        let here = word.is_none() || loops.iter().any(|s| record.owner.as_ref() == Some(&s.id));
        if here && !record.ended && session.now().since(record.seen_at) < SESSION_SHOWN {
            sessions.push((row.key, record));
        }
    }
    let troubles = notifiers::troubles(&ledger, session.now())?;
    let (_, immune) = crate::immune::read(&ledger)?;
    Ok(Seen { loops, guards: ledger.guards()?, tickets, troubles, sessions, immune, supervisor })
}

fn lines(seen: &Seen, look: &StatusStyle) -> Vec<String> {
    let mut lines = if seen.loops.is_empty() {
        vec!["no loops yet; start one: everloop run \"GOAL\" --check 'CMD' --agent-cmd 'AGENT {prompt}'".to_owned()]
    } else {
        status_table(&seen.loops, &seen.guards, look)
    };
    lines.extend(quarantine::lines(&seen.immune, look, |_| true));
    lines.extend(seen.sessions.iter().map(|(id, record)| session_line(id, record, look)));
    lines.extend(seen.loops.iter().filter_map(|state| waiting_line(state, look)));
    let tries = |state: &LoopState| why::another_way(state).map(|tries| format!("{} {tries}", state.id));
    lines.extend(seen.loops.iter().filter_map(tries).map(|line| fit(&clean(&line), look.width)));
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

/// The freeze that keeps a loop from starting anything, with its scope.
pub(super) fn freeze_of<'a>(state: &LoopState, guards: &'a Guards) -> Option<(Scope, &'a Freeze)> {
    let scopes = [
        Scope::All,
        Scope::Node(node_id()),
        Scope::Account(state.spec.agent.account.clone()),
        Scope::Loop(state.id.clone()),
    ];
    scopes.into_iter().find_map(|scope| {
        let freeze = guards.get(&scope)?.state.freeze.as_ref()?;
        Some((scope, freeze))
    })
}

/// The supervisor as JSON.
pub(super) fn supervisor_json(owner: Option<&LockOwner>) -> Value {
    owner.map_or(Value::Null, |o| json!({ "role": o.role, "pid": o.process.pid, "since": o.since }))
}

fn as_json(seen: &Seen, now: Time) -> Value {
    let loops: Vec<Value> = seen.loops.iter().map(loop_json).collect();
    let hold = |(scope, freeze): (&Scope, &Freeze)| json!({ "scope": scope, "freeze": freeze });
    let frozen = seen.guards.iter().filter_map(|(scope, v)| v.state.freeze.as_ref().map(|f| (scope, f)));
    json!({
        "loops": loops,
        "holds": frozen.map(hold).collect::<Vec<_>>(),
        "quarantine": quarantine::as_json(&seen.immune, now),
        "tickets": seen.tickets,
        "notifiers": seen.troubles.iter().map(|(name, text)| json!({ "name": name, "trouble": text })).collect::<Vec<_>>(),
        "sessions": seen.sessions.iter().map(|(id, record)| json!({ "id": id, "session": record })).collect::<Vec<_>>(),
        "supervisor": supervisor_json(seen.supervisor.as_ref()),
    })
}

fn loop_json(state: &LoopState) -> Value {
    let (next_at, rule) = next_wake(state);
    json!({
        "id": state.id,
        "name": state.name,
        "goal": state.spec.goal,
        "dir": state.spec.workspace.dir,
        "phase": state.phase.label(),
        "paused": state.paused.is_some(),
        "checks": { "passing": state.board.passing().len(), "total": state.board.0.len() },
        "turns": state.turns,
        "max_turns": state.spec.bounds.max_turns,
        "spent": state.spent,
        "spent_estimated": state.spent_estimated,
        "next_at": next_at,
        "next_rule": rule,
        "strategy": state.strategy,
        "tickets": state.tickets,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
    })
}

fn next_wake(state: &LoopState) -> (Option<Time>, Option<&str>) {
    match &state.phase {
        Phase::Waiting { reason, .. } => (reason.until, Some(reason.rule.as_str())),
        Phase::New | Phase::Ready | Phase::Turn(_) | Phase::Ended { .. } => (None, None),
    }
}

fn exit_code(seen: &Seen) -> Code {
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
fn code_of_open(state: &LoopState, seen: &Seen) -> Code {
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
    use everloop_core::guard::{GuardState, Versioned};

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
        let open = Seen { loops: vec![state()], ..Seen::default() };
        assert_eq!(exit_code(&open), Code::Away);
        let watched = Seen { supervisor: Some(owner()), ..open };
        assert_eq!(exit_code(&watched), Code::Ok);
        let ticket = Ticket {
            id: 1,
            key: "stagnation:k3f9".into(),
            owner: Some(state().id),
            text: "look".into(),
            opened_at: START,
            closed: None,
        };
        let asking = Seen { tickets: vec![ticket], ..watched };
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
        let held = Seen { guards: [(Scope::All, Versioned { version: 1, state: frozen })].into(), ..asking };
        assert_eq!(exit_code(&held), Code::Held);
    }

    #[test]
    fn when_all_are_over_the_latest_decides() {
        let exhausted = ended(LoopEnd::Exhausted { bound: "turns".into() }, 5);
        let seen = Seen { loops: vec![exhausted, ended(LoopEnd::Reached, 9)], ..Seen::default() };
        assert_eq!(exit_code(&seen), Code::Ok);
        let seen = Seen { loops: vec![ended(LoopEnd::Stopped { by: "me".into() }, 9)], ..Seen::default() };
        assert_eq!(exit_code(&seen), Code::NotReached);
        assert_eq!(exit_code(&Seen::default()), Code::Ok);
    }
}
