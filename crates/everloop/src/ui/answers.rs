//! Answers of services as JSON, for `--json` and for agents, where they are more than plain data.

use everloop_core::guard::{Freeze, Scope};
use everloop_core::hook::HookSession as Record;
use everloop_core::ids::LoopId;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_core::why::why as explain;
use everloop_engine::services::status::{MeshTasks, StatusAnswer};
use everloop_engine::services::why::{LoopWhy, WhyAnswer};
use everloop_engine::state_folder::LockOwner;
use everloop_engine::trust::Difference;
use serde_json::{Value, json};

use super::quantities::moment;
use super::status::StatusStyle;
use super::{mesh, quarantine, sessions};

/// Why a loop is as it is, in a paragraph with times as the reader has them.
pub fn paragraph(found: &LoopWhy, look: &StatusStyle) -> String {
    explain(&found.state, look.now, &|at| moment(at, look.now, &look.zone))
}

/// The answer of `everloop why --json`.
pub fn why(found: &WhyAnswer, look: &StatusStyle) -> Value {
    match found {
        WhyAnswer::Session { id, record } => {
            json!({ "session": id, "record": record, "why": sessions::lines(id, record, look).join(" ") })
        }
        WhyAnswer::Mesh(found) => json!({
            "loop": found.detail.state.id,
            "why": mesh::paragraph(&found.detail, look),
            "reason": found.detail.reason,
            "leader": found.detail.leader.as_ref().map(|l| json!({ "node": l.node, "term": l.term, "until": l.until })),
            "tasks": found.detail.rows,
            "distrust": found.detail.distrust,
            "failed": found.detail.state.notes,
            "limited": found.detail.limited,
            "quarantine": quarantine::as_json(&found.detail.immune, look.now),
            "tickets": found.detail.tickets,
            "journal": found.detail.notes.iter().map(|r| json!({ "seq": r.seq, "at": r.at, "event": r.event })).collect::<Vec<_>>(),
            "copy": mesh::away_json(&found.view, look.now),
        }),
        WhyAnswer::Loop(found) => json!({
            "loop": found.state.id,
            "phase": found.state.phase,
            "why": paragraph(found, look),
            "freeze": found.freeze.as_ref().map(held),
            "quarantine": quarantine::as_json(&found.immune, look.now),
            "tickets": found.tickets,
            "sessions": found.sessions.iter().map(session).collect::<Vec<_>>(),
            "signs": found.signs.iter().map(|(rule, sign)| json!({ "rule": rule, "sign": sign })).collect::<Vec<_>>(),
            "supervisor": supervisor(found.supervisor.as_ref()),
            "next_look": found.next_look,
        }),
    }
}

fn held((scope, freeze): &(Scope, Freeze)) -> Value {
    json!({ "scope": scope, "freeze": freeze })
}

fn session((id, record): &(String, Record)) -> Value {
    json!({ "id": id, "session": record })
}

/// The supervisor as JSON.
fn supervisor(owner: Option<&LockOwner>) -> Value {
    owner.map_or(Value::Null, |o| json!({ "role": o.role, "pid": o.process.pid, "since": o.since }))
}

/// The answer of `everloop status --json`.
pub fn status(seen: &StatusAnswer, now: Time) -> Value {
    let loops: Vec<Value> = seen.loops.iter().map(loop_json).collect();
    let hold = |(scope, freeze): (&Scope, &Freeze)| json!({ "scope": scope, "freeze": freeze });
    let frozen = seen.guards.iter().filter_map(|(scope, v)| v.state.freeze.as_ref().map(|f| (scope, f)));
    let tasks = |(id, tasks): (&LoopId, &MeshTasks)| {
        let MeshTasks { goal, open, reached, failed } = tasks;
        json!({ "loop": id, "goal": goal, "open": open, "reached": reached, "failed": failed })
    };
    json!({
        "loops": loops,
        "mesh": seen.mesh.iter().map(tasks).collect::<Vec<_>>(),
        "holds": frozen.map(hold).collect::<Vec<_>>(),
        "quarantine": quarantine::as_json(&seen.immune, now),
        "tickets": seen.tickets,
        "notifiers": seen.troubles.iter().map(|(name, text)| json!({ "name": name, "trouble": text })).collect::<Vec<_>>(),
        "sessions": seen.sessions.iter().map(session).collect::<Vec<_>>(),
        "configuration": seen.configuration.iter().map(difference).collect::<Vec<_>>(),
        "supervisor": supervisor(seen.supervisor.as_ref()),
    })
}

fn difference(found: &Difference) -> Value {
    json!({ "dir": found.root, "state": found.standing, "hash": found.hash, "text": found.describe() })
}

fn loop_json(state: &LoopState) -> Value {
    let (next_at, rule) = next_wake(state);
    json!({
        "id": state.id,
        "name": state.name,
        "goal": state.spec.goal,
        "dir": state.spec.workspace.dir,
        "phase": state.label(),
        "paused": state.people.paused.is_some(),
        "checks": { "passing": state.progress.board.passing().len(), "total": state.progress.board.0.len() },
        "turns": state.task.turns,
        "max_turns": state.spec.bounds.max_turns,
        "spent": state.spend.spent,
        "spent_estimated": state.spend.estimated,
        "next_at": next_at,
        "next_rule": rule,
        "strategy": state.progress.strategy,
        "tickets": state.people.tickets,
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
