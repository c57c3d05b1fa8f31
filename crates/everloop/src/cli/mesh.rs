//! `everloop mesh`: several nodes that work on the same loops. Here: these loops; `nodes`: the
//! machines; `join`, `leave`: this one; `trust`: keys; `hub`: the database that they share.

use std::collections::BTreeMap;

use everloop_core::ids::NodeId;
use everloop_core::mesh::eligibility::{self, ACCOUNT, Limited};
use everloop_core::mesh::keys::{Keyring, read_loop, sealed};
use everloop_core::mesh::{End, KIND, MeshLoop};
use everloop_core::op::{Refusal, TaskRow, TaskState};
use everloop_core::why;
use everloop_engine::error::{Code, Failure};
use everloop_engine::immune;
use everloop_engine::membership::Membership;
use everloop_engine::node_keys::NodeKeys;
use everloop_store::{Error, Ledger, Postgres, Tickets};
use serde_json::json;

use super::VerbSession;
use crate::ui::quantities::{self, Accuracy};
use crate::ui::quarantine as view;
use crate::ui::table::Table;
use crate::ui::text::clean;

mod hub;
mod join;
mod leave;
mod nodes;
mod trust;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL='postgres://node:…@db.example.com/loops?sslmode=verify-full' everloop mesh join && everloop up
  everloop run \"GOAL\" --check 'CMD' --agent claude --mesh
  everloop mesh show k3f9

A loop of the mesh is created with `everloop run … --mesh`; nodes (`everloop up`) work on it.";

/// Another node may write at the same time; then the loop is read and changed again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// Joins machines into a mesh; lists, shows and stops the loops that they work on.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct MeshArgs {
    /// What to do with the mesh
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `mesh`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List all loops
    List,
    /// Show one: its checks, its tasks and their holders, and what landed
    Show {
        /// Id of the loop
        id: String,
    },
    /// End one; tasks under way are stopped, and what landed stays
    Stop {
        /// Id of the loop
        id: String,
    },
    /// List the nodes: the leader, the tasks of each, and its last heartbeat
    Nodes,
    /// Let a node finish its tasks and take no more
    Drain(nodes::DrainArgs),
    /// Remove a node that is gone for good; one that comes back takes nothing
    Remove(nodes::RemoveArgs),
    /// Make this machine a node of a mesh
    Join(join::JoinArgs),
    /// Remove this node from its mesh
    Leave(leave::LeaveArgs),
    /// List the keys of the mesh, and trust them or not
    Trust(trust::TrustArgs),
    /// Show what nodes would run of a loop, and sign it as it stands in the hub
    Sign(trust::SignArgs),
    /// Create, check or migrate the hub of a mesh, in PostgreSQL
    Hub(hub::HubArgs),
}

pub fn mesh(args: &MeshArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::List => list(session),
        What::Show { id } => {
            let (membership, hub) = session.hub()?;
            let (_, state) = find(&hub, id)?;
            show(&hub, &state, &signature(&hub, &membership, &state, session)?, session)
        }
        What::Stop { id } => stop(id, session),
        What::Nodes => nodes::nodes(session),
        What::Drain(args) => nodes::drain(args, session),
        What::Remove(args) => nodes::remove(args, session),
        What::Join(args) => join::join(args, session),
        What::Leave(args) => leave::leave(args, session),
        What::Trust(args) => trust::trust(args, session),
        What::Sign(args) => trust::sign(args, session),
        What::Hub(args) => hub::hub(args, session),
    }
}

fn find(hub: &Postgres, id: &str) -> Result<(u64, MeshLoop), Failure> {
    let Some(doc) = hub.doc(KIND, id)? else {
        return Err(Failure::usage(format!("the mesh has no loop `{id}`")).hint("`everloop mesh list` shows them"));
    };
    let state = MeshLoop::read(&doc.body)
        .map_err(|why| Failure::failed(format!("cannot read loop `{id}` of the mesh: {why}")))?;
    Ok((doc.version, state))
}

/// The key that signed a loop, and why this node runs nothing of it, if that is so.
struct Signature {
    signer: Option<String>,
    distrust: Option<String>,
}

fn signature(
    hub: &Postgres,
    membership: &Membership,
    state: &MeshLoop,
    session: &VerbSession,
) -> Result<Signature, Failure> {
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    let signer = state.signed.as_ref().map(|made| {
        let node = keys.trust().node_of(&made.seal.key).map_or("an unknown node", NodeId::as_str);
        format!("{} of {}", made.seal.key.fingerprint(), clean(node))
    });
    let doc = hub.doc(KIND, state.id.as_str())?;
    let fault = doc.and_then(|doc| read_loop(&state.id, &doc.body, &keys).err());
    Ok(Signature { signer, distrust: fault.map(|fault| fault.to_string()) })
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let (membership, hub) = session.hub()?;
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    let mut table = Table::new(&["ID", "STATE", "CHECKS", "OPEN", "LANDED", "GOAL"]);
    let mut all = Vec::new();
    for doc in hub.docs(KIND)? {
        let Ok(state) = MeshLoop::read(&doc.body) else { continue };
        let (passing, total) = checks(&state);
        let runs = state.ended.is_some() || read_loop(&state.id, &doc.body, &keys).is_ok();
        table.row([
            clean(state.id.as_str()),
            if runs { label(&state).to_owned() } else { format!("{}, not trusted here", label(&state)) },
            format!("{passing}/{total}"),
            state.open.len().to_string(),
            state.landed_count.to_string(),
            clean(&state.spec.wanted.goal),
        ]);
        all.push(json!({ "id": state.id, "state": label(&state), "passing": passing, "checks": total,
            "open": state.open.len(), "landed": state.landed_count, "goal": state.spec.wanted.goal, "trusted": runs }));
    }
    let mut lines = table.lines(session.ui.width());
    if all.is_empty() {
        lines = vec![
            "the mesh has no loop yet; make one: everloop run \"GOAL\" --check 'CMD' --agent claude --mesh".to_owned(),
        ];
    }
    session.ui.answer(&lines, &json!({ "loops": all }))?;
    Ok(Code::Ok)
}

fn checks(state: &MeshLoop) -> (usize, usize) {
    let passing = state.judged.as_ref().map_or(0, |judged| judged.board.passing().len());
    (passing, state.spec.wanted.checks.len())
}

/// The state of a loop in one or two words.
fn label(state: &MeshLoop) -> &'static str {
    match (&state.ended, &state.judged) {
        (Some(End::Reached), _) => "reached",
        (Some(End::Stopped), _) => "stopped",
        (Some(End::GivenUp { .. }), _) => "given up",
        (Some(End::Exhausted { .. }), _) => "exhausted",
        (None, None) => "baseline",
        (None, Some(_)) => "working",
    }
}

fn show(hub: &Postgres, state: &MeshLoop, signature: &Signature, session: &VerbSession) -> Result<Code, Failure> {
    let rows: Vec<TaskRow> = state
        .open
        .iter()
        .map(|open| hub.task(&open.task))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    let (passing, total) = checks(state);
    let mut lines = about(state, signature);
    lines.push(format!("Checks    {passing} of {total} pass on the branch"));
    for result in state.judged.iter().flat_map(|judged| &judged.board.0) {
        lines.push(format!("          {} {}", clean(&result.verdict.to_string()), clean(&result.name)));
    }
    let aside = state.used().microusd.saturating_sub(state.spent.microusd);
    let aside = if aside > 0 { format!(", {} reserved", quantities::money(aside)) } else { String::new() };
    lines.push(format!("Used      {}{aside}", quantities::spend(state.spent, Accuracy::Reported)));
    if let Some(reason) = &state.waits {
        lines.push(format!("Waits     {}", clean(&why::waiting(reason, session.now(), &quantities::here))));
    }
    let (limited, record) = (limits(hub, state)?, immune::read(hub)?.1);
    let look = session.ui.look(session.now());
    for (account, limited) in &limited {
        let until = quantities::moment(limited.held.until, look.now, &look.zone);
        lines.push(format!(
            "Limited   account {} until {until}, reported by {}",
            clean(account),
            clean(limited.node.as_str())
        ));
    }
    lines.extend(view::lines(&record, &look, |_| true));
    for ticket in hub.tickets(Tickets::Open)?.iter().filter(|ticket| ticket.owner.as_ref() == Some(&state.id)) {
        lines.push(format!("Ticket    mesh:{} {}", ticket.id, clean(&ticket.text)));
    }
    for row in &rows {
        lines.push(format!("Task      {} {}: {}", clean(row.task.id.as_str()), holder(row), clean(&row.task.title)));
    }
    for landed in state.landed.iter().rev() {
        let (task, node) = (clean(landed.task.as_str()), clean(landed.node.as_str()));
        lines.push(format!(
            "Landed    {} {task} by {node}: {}",
            &landed.commit[..landed.commit.len().min(10)],
            clean(&landed.check)
        ));
    }
    session.ui.answer(
        &lines,
        &json!({ "loop": state, "tasks": rows, "limited": limited, "distrust": signature.distrust,
        "quarantine": view::as_json(&record, look.now) }),
    )?;
    Ok(Code::Ok)
}

/// What a loop is, and by which key.
fn about(state: &MeshLoop, signature: &Signature) -> Vec<String> {
    let ended = state.ended.as_ref().map_or(String::new(), |end| format!(": {end}"));
    let signer = signature.signer.as_deref().map_or("by no key".to_owned(), |key| format!("by {key}"));
    let mut lines = vec![format!("Loop      {} ({})", clean(state.id.as_str()), clean(&state.name))];
    if let Some(why) = &signature.distrust {
        lines.push(format!("Refused   this node runs and believes nothing of it: {}", clean(why)));
    }
    lines.extend([
        format!("Goal      {}", clean(&state.spec.wanted.goal)),
        format!("State     {}{ended}", label(state)),
        format!("Work      {} on {}", clean(&state.spec.branch), clean(&state.spec.remote)),
        format!("Signed    {signer}"),
    ]);
    lines
}

/// The loop's accounts that are limited now.
fn limits(hub: &Postgres, state: &MeshLoop) -> Result<BTreeMap<String, Limited>, Failure> {
    let mut found = BTreeMap::new();
    for account in eligibility::shared([&state.spec.wanted]) {
        let limited = hub.doc(ACCOUNT, &account)?.and_then(|doc| Limited::read(&doc.body));
        found.extend(limited.map(|limited| (account, limited)));
    }
    Ok(found)
}

fn holder(row: &TaskRow) -> String {
    match &row.state {
        TaskState::Leased { node, .. } => format!("held by {}", clean(node.as_str())),
        TaskState::Done => "done, waits to be merged".to_owned(),
        other => other.label().to_owned(),
    }
}

fn stop(id: &str, session: &VerbSession) -> Result<Code, Failure> {
    let (membership, mut hub) = session.hub()?;
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    // The leader writes it often; then it is read again.
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (version, mut state) = find(&hub, id)?;
        if state.ended.is_some() {
            return Err(Failure::usage(format!("loop `{id}` is over: {}", label(&state))));
        }
        state.stop = true;
        let note = format!("{} wants it to stop", super::message::send::person());
        match hub.transact(session.now(), &sealed(state.save(version, &[note]), &keys)) {
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            other => {
                other?;
                session.ui.said(&format!("loop `{id}` stops"), &json!({ "id": id, "stop": true }))?;
                return Ok(Code::Ok);
            }
        }
    }
    Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on loop `{id}`"))
        .hint("try again"))
}
