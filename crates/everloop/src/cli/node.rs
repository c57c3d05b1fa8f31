//! `everloop node`: the machines of the mesh.

use std::time::Duration;

use everloop_core::mesh::alone::DOWN;
use everloop_core::mesh::reconcile::Sign;
use everloop_core::op::Op;
use everloop_core::time::{Time, human};
use everloop_store::{Ledger, NodeRow, Postgres};
use serde_json::{Value, json};

use super::Invocation;
use crate::error::{Code, Failure};
use crate::membership::Membership;
use crate::supervisor::mesh::{NODE, Wish};
use crate::ui::figures;
use crate::ui::table::Table;
use crate::ui::text::clean;

/// Silent for so long, a node is suspected; twice as long again, it is taken for dead.
const SUSPECT: Duration = Duration::from_secs(15);

/// The machines of the mesh that this one belongs to.
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    /// What to do
    #[command(subcommand)]
    what: What,
}

/// What can be done with nodes.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List them: who supervises, what each holds, when it was heard last
    List,
    /// Let a node end what it has and take nothing more
    Drain {
        /// Its name
        node: String,
        /// Let it work again
        #[arg(long)]
        undo: bool,
    },
    /// Take a node that is gone for good off the list; one that comes back takes nothing
    Remove {
        /// Its name
        node: String,
    },
}

/// The hub of the mesh that this machine belongs to.
pub(super) fn hub(session: &Invocation) -> Result<(Membership, Postgres), Failure> {
    let Some(membership) = Membership::read(&session.home()?)? else {
        return Err(Failure::config("this machine belongs to no mesh").hint("join one: everloop join postgres://…"));
    };
    let hub = membership.open()?;
    Ok((membership, hub))
}

pub fn node(args: &NodeArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let (membership, mut hub) = hub(session)?;
    match &args.what {
        What::List => list(&membership, &hub, session),
        What::Drain { node, undo: false } => wish(&mut hub, node, Wish::Drain, "takes nothing more", session),
        What::Drain { node, undo: true } => wish(&mut hub, node, Wish::Work, "works again", session),
        What::Remove { node } => wish(&mut hub, node, Wish::Remove, "is off the list", session),
    }
}

fn list(membership: &Membership, hub: &Postgres, session: &Invocation) -> Result<Code, Failure> {
    let now = membership.hub_now()?;
    let leader = hub.leader()?.filter(|leader| leader.until > now);
    let mut table = Table::new(&["NODE", "STATE", "ROLE", "HOLDS", "HEARD", "VERSION"]);
    let mut all = Vec::new();
    for row in hub.nodes()? {
        let wish = hub.doc(NODE, row.node.as_str())?.and_then(|doc| serde_json::from_str(&doc.body).ok());
        if wish == Some(Wish::Remove) {
            continue;
        }
        let info: Value = serde_json::from_str(&row.info).unwrap_or_default();
        let leads = leader.as_ref().is_some_and(|leader| leader.node == row.node);
        let sign = Sign::read(row.node.clone(), row.seen_at, &row.info);
        let state = state(&sign, wish, now);
        let missed = sign.missed(DOWN, now);
        let holds: Vec<&str> = info["holds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mine = if row.node == membership.node { " (this)" } else { "" };
        table.row([
            format!("{}{mine}", clean(row.node.as_str())),
            state.to_owned(),
            if leads { "supervisor".to_owned() } else { "worker".to_owned() },
            clean(&holds.join(" ")),
            heard(&row, missed, now),
            clean(info["version"].as_str().unwrap_or("?")),
        ]);
        all.push(json!({ "node": row.node, "state": state, "leads": leads, "holds": holds, "seen_at": row.seen_at,
            "version": info["version"], "next_beat": sign.next, "silent_since": missed.map(|_| row.seen_at) }));
    }
    let mut lines = table.lines(session.ui.width());
    if all.is_empty() {
        lines = vec!["no node was ever heard; start one: everloop up".to_owned()];
    }
    session.ui.answer(&lines, &json!({ "hub": membership.hub, "epoch": leader.map(|l| l.term), "nodes": all }))?;
    Ok(Code::Ok)
}

/// When a node was heard; of one that is silent also when it said it would be heard again.
fn heard(row: &NodeRow, missed: Option<Time>, now: Time) -> String {
    match missed {
        None => format!("{} ago", human(now.since(row.seen_at))),
        Some(back) => {
            format!("silent since {} (said it would be back at {})", figures::here(row.seen_at), figures::here(back))
        }
    }
}

fn state(sign: &Sign, wish: Option<Wish>, now: Time) -> &'static str {
    let silent = now.since(sign.seen_at);
    match wish {
        _ if sign.leaves => "stopped",
        _ if silent >= DOWN => "down",
        _ if silent >= SUSPECT => "suspect",
        Some(Wish::Drain) => "draining",
        _ => "ready",
    }
}

fn wish(hub: &mut Postgres, node: &str, wish: Wish, said: &str, session: &Invocation) -> Result<Code, Failure> {
    if !hub.nodes()?.iter().any(|row| row.node.as_str() == node) {
        return Err(Failure::usage(format!("there is no node `{node}`")).hint("`everloop node list` shows them"));
    }
    let version = hub.doc(NODE, node)?.map_or(0, |doc| doc.version);
    let body = serde_json::to_string(&wish).expect("a word always has a JSON form");
    hub.transact(session.now(), &[Op::SaveDoc { kind: NODE.to_owned(), key: node.to_owned(), version, body }])?;
    session.ui.said(&format!("node `{node}` {said}"), &json!({ "node": node, "wish": wish }))?;
    Ok(Code::Ok)
}

#[cfg(test)]
mod tests {
    use everloop_core::ids::NodeId;

    use super::*;

    #[test]
    fn of_a_silent_node_it_is_shown_when_it_said_it_would_be_back() {
        let (node, now) = (NodeId::new("n1"), Time(1_000_000));
        let row = |info: &str| NodeRow { node: node.clone(), info: info.to_owned(), seen_at: Time(900_000) };
        let told = |info: &str| {
            let row = row(info);
            let sign = Sign::read(row.node.clone(), row.seen_at, info);
            (heard(&row, sign.missed(DOWN, now), now), state(&sign, None, now))
        };
        let (text, state) = told(r#"{"next_beat":905000}"#);
        assert!(text.starts_with("silent since ") && text.contains(" (said it would be back at "), "{text}");
        assert_eq!(state, "down");
        assert_eq!(told("{}"), ("100s ago".to_owned(), "down"), "it promised nothing");
        assert_eq!(told(r#"{"next_beat":null,"leaving":true}"#), ("100s ago".to_owned(), "stopped"));
        assert_eq!(told(r#"{"next_beat":960000}"#).0, "100s ago", "it may still come");
    }
}
