//! `everloop mesh nodes`, `drain` and `remove`: the nodes of the mesh.

use std::time::Duration;

use everloop_core::mesh::offline::DOWN;
use everloop_core::mesh::reconcile::Sign;
use everloop_core::op::Op;
use everloop_core::time::{Time, human};
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::Membership;
use everloop_engine::node_keys::NodeKeys;
use everloop_engine::supervisor::mesh::{NODE, Wish};
use everloop_store::{Ledger, NodeRow, Postgres};
use serde_json::{Value, json};

use super::trust;
use crate::cli::VerbSession;
use crate::ui::quantities;
use crate::ui::table::Table;
use crate::ui::text::clean;

/// A node that is silent for this long is suspected.
const SUSPECT: Duration = Duration::from_secs(15);

/// A node that is named.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// Name of the node
    node: String,
}

/// A node that takes no more tasks, or takes them again.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the node
    node: String,
    /// Let it take tasks again
    #[arg(long)]
    undo: bool,
}

pub fn drain(args: &DrainArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (wanted, said) =
        if args.undo { (Wish::Work, "takes tasks again") } else { (Wish::Drain, "takes no more tasks") };
    wish(&mut session.hub()?.1, &args.node, wanted, said, session)
}

pub fn remove(args: &RemoveArgs, session: &VerbSession) -> Result<Code, Failure> {
    let said = "is removed; where its key is trusted it stays so until `everloop mesh trust --revoke` there";
    wish(&mut session.hub()?.1, &args.node, Wish::Remove, said, session)
}

pub fn nodes(session: &VerbSession) -> Result<Code, Failure> {
    let (membership, hub) = session.hub()?;
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    list(&membership, &hub, &keys, session)
}

fn list(membership: &Membership, hub: &Postgres, keys: &NodeKeys, session: &VerbSession) -> Result<Code, Failure> {
    let now = membership.hub_now()?;
    let leader = hub.leader()?.filter(|leader| leader.until > now);
    let mut table = Table::new(&["NODE", "STATE", "ROLE", "KEY", "HOLDS", "LAST SEEN", "VERSION"]);
    let mut all = Vec::new();
    let listed = trust::listed(keys, hub)?;
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
        let key = listed.iter().find(|listing| listing.node == row.node);
        let key = key.map_or("none", |listing| trust::standing(keys, listing));
        let mine = if row.node == membership.node { " (this)" } else { "" };
        table.row([
            format!("{}{mine}", clean(row.node.as_str())),
            state.to_owned(),
            if leads { "leader".to_owned() } else { "worker".to_owned() },
            key.to_owned(),
            clean(&holds.join(" ")),
            heard(&row, missed, now),
            clean(info["version"].as_str().unwrap_or("?")),
        ]);
        all.push(json!({ "node": row.node, "state": state, "leads": leads, "key": key, "holds": holds, "seen_at": row.seen_at,
            "version": info["version"], "next_beat": sign.next, "silent_since": missed.map(|_| row.seen_at) }));
    }
    let mut lines = table.lines(session.ui.width());
    if all.is_empty() {
        lines = vec!["no node has joined yet; start one: everloop up".to_owned()];
    }
    session.ui.answer(&lines, &json!({ "hub": membership.hub, "epoch": leader.map(|l| l.term), "nodes": all }))?;
    Ok(Code::Ok)
}

/// Time of the last heartbeat; for a silent node also when it announced the next one.
fn heard(row: &NodeRow, missed: Option<Time>, now: Time) -> String {
    match missed {
        None => format!("{} ago", human(now.since(row.seen_at))),
        Some(back) => {
            format!(
                "silent since {} (announced its return for {})",
                quantities::here(row.seen_at),
                quantities::here(back)
            )
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

fn wish(hub: &mut Postgres, node: &str, wish: Wish, said: &str, session: &VerbSession) -> Result<Code, Failure> {
    if !hub.nodes()?.iter().any(|row| row.node.as_str() == node) {
        return Err(Failure::usage(format!("there is no node `{node}`")).hint("`everloop mesh nodes` shows them"));
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
        assert!(text.starts_with("silent since ") && text.contains(" (announced its return for "), "{text}");
        assert_eq!(state, "down");
        assert_eq!(told("{}"), ("100s ago".to_owned(), "down"), "it announced nothing");
        assert_eq!(told(r#"{"next_beat":null,"leaving":true}"#), ("100s ago".to_owned(), "stopped"));
        assert_eq!(told(r#"{"next_beat":960000}"#).0, "100s ago", "it may still come");
    }
}
