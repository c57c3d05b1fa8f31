//! Loops and nodes of the mesh in words, and what a node knows while the hub is away.

use everloop_core::event::Event;
use everloop_core::mesh::why::sentence;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::time::{Time, human};
use everloop_engine::node_files::copy::{HeldTask, HubCopy};
use everloop_engine::services::mesh::{MeshDetail, MeshView};
use serde_json::{Value, json};

use super::quantities::{self, moment};
use super::quarantine;
use super::status::StatusStyle;
use super::text::clean;

/// That the hub is away, how old the copy is, and what this node does meanwhile.
pub fn away(copy: &HubCopy, now: Time) -> Vec<String> {
    let cause = copy.failure.causes.last().unwrap_or(&copy.failure.message);
    let age = match copy.as_of {
        Some(at) => format!("as of {} ({} ago)", quantities::here(at), human(now.since(at))),
        None => "of an unknown time".to_owned(),
    };
    let mut lines = vec![format!("The hub is away ({}). This is this node's copy of it, {age}.", clean(cause))];
    let meanwhile = &copy.meanwhile;
    if meanwhile.supervisor.is_none() {
        lines.push("Meanwhile nothing happens on this node: no supervisor runs (`everloop up` starts one).".to_owned());
        return lines;
    }
    let since = meanwhile.away_since.map_or(String::new(), |at| format!(", offline since {}", quantities::here(at)));
    let free = match meanwhile.free {
        0 => "it knows no free task that it could begin".to_owned(),
        free => format!("of {free} free tasks that it knows it begins those of its own share"),
    };
    let held = match meanwhile.held.len() {
        0 => "holds no task".to_owned(),
        1 => "goes on with one task".to_owned(),
        held => format!("goes on with {held} tasks"),
    };
    lines.push(format!("Meanwhile this node{since} {held}; {free}."));
    lines.extend(meanwhile.held.iter().map(held_line));
    lines
}

fn held_line(task: &HeldTask) -> String {
    let (id, owner) = (clean(task.held.task.as_str()), clean(task.held.owner.as_str()));
    let alone = if task.held.alone { ", begun without the hub" } else { "" };
    format!("  task {id} of loop {owner}, fence {}: {}{alone}", task.held.fence, task.words())
}

/// The same as JSON; null while the hub answers.
pub fn away_json(view: &MeshView, now: Time) -> Value {
    let Some(copy) = view.copy() else { return Value::Null };
    let held = |task: &HeldTask| {
        json!({ "task": task.held.task, "fence": task.held.fence, "loop": task.held.owner, "phase": task.phase,
            "alone": task.held.alone, "text": task.words() })
    };
    json!({
        "why": copy.failure.message,
        "as_of": copy.as_of,
        "age_s": copy.as_of.map(|at| now.since(at).as_secs()),
        "away_since": copy.meanwhile.away_since,
        "supervisor": copy.meanwhile.supervisor.is_some(),
        "held": copy.meanwhile.held.iter().map(held).collect::<Vec<_>>(),
        "free": copy.meanwhile.free,
        "members": copy.meanwhile.members,
    })
}

/// Why a loop of the mesh is as it is.
pub fn why(detail: &MeshDetail, view: &MeshView, look: &StatusStyle) -> Vec<String> {
    let clock = |at: Time| moment(at, look.now, &look.zone);
    let state = &detail.state;
    let mut lines = view.copy().map_or_else(Vec::new, |copy| away(copy, look.now));
    lines.push(paragraph(detail, look));
    let inputs: Vec<String> = detail.reason.inputs.iter().map(|(name, value)| format!("{name} {value}")).collect();
    lines.push(clean(&format!("Rule      {} ({})", detail.reason.rule, inputs.join(", "))));
    lines.push(match &detail.leader {
        Some(leader) => {
            let until = clock(own_time(leader.until));
            clean(&format!("Leader    {} under term {}, its lease until {until}", leader.node, leader.term))
        }
        None => "Leader    none".to_owned(),
    });
    if let Some(why) = &detail.distrust {
        lines.push(format!("Refused   this node runs and believes nothing of it: {}", clean(why)));
    }
    for row in &detail.rows {
        lines.push(clean(&format!("Task      {} {}", row.task.id, task_words(row, &clock))));
    }
    for (check, note) in &state.notes {
        let first = note.lines().next().unwrap_or_default();
        lines.push(clean(&format!(
            "Failed    {check}: {first} ({} tasks so far)",
            state.tried.get(check).unwrap_or(&0)
        )));
    }
    for (account, limited) in &detail.limited {
        lines.push(clean(&format!("Limited   account {account} until {}", clock(limited.held.until))));
    }
    lines.extend(quarantine::lines(&detail.immune, look, |_| true));
    for ticket in &detail.tickets {
        lines.push(clean(&format!("Ticket    mesh:{} {}", ticket.id, ticket.text)));
    }
    for record in &detail.notes {
        if let Event::Note { text } = &record.event {
            lines.push(clean(&format!("Journal   {}: {text}", clock(own_time(record.at)))));
        }
    }
    lines
}

/// The sentence about it.
pub fn paragraph(detail: &MeshDetail, look: &StatusStyle) -> String {
    let clock = |at: Time| moment(own_time(at), look.now, &look.zone);
    let (state, said) = (&detail.state, sentence(&detail.reason, detail.now, &clock));
    let passing = state.judged.as_ref().map_or(0, |judged| judged.board.passing().len());
    let total = state.spec.wanted.checks.len();
    let result = match &state.research {
        Some(found) => format!("{} of {} experiments were kept.", found.keep_count(), found.number),
        None => format!("{passing} of {total} checks pass on its branch."),
    };
    clean(&format!("Loop {} ({}) of the mesh: {said} {result}", state.id, state.name))
}

/// Times of the hub are machine time.
fn own_time(hub: Time) -> Time {
    everloop_agents::clock::program().program(hub)
}

fn task_words(row: &TaskRow, clock: &dyn Fn(Time) -> String) -> String {
    let failed = match row.failures {
        0 => String::new(),
        n => format!("; {n} attempts came to nothing"),
    };
    let state = match &row.state {
        TaskState::Leased { node, until } => {
            format!("is held by {node} under fence {}, its lease until {}", row.fence, clock(own_time(*until)))
        }
        TaskState::Queued => "waits for a node".to_owned(),
        TaskState::Done => "is done and waits to be merged".to_owned(),
        TaskState::Dead => "came to nothing".to_owned(),
        TaskState::Blocked => "is blocked".to_owned(),
    };
    format!("{state}: {}{failed}", row.task.title)
}
