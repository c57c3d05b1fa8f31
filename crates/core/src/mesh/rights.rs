//! What the login of a node may write at the hub. Any node with a leader's login may become the
//! leader; one with a worker's takes tasks and reports about them, and writes nothing that only a
//! leader or a person writes. PostgreSQL enforces the same (`migrations/postgres/0006_rights.sql`).

use serde::{Deserialize, Serialize};

use super::{eligibility, keys};
use crate::immune;
use crate::op::Op;

/// Causes of tickets that a worker opens and closes.
const OWN_TICKETS: [&str; 3] = ["dead:", "distrust:", "immune."];
/// Kinds of documents that a worker writes.
const OWN_DOCS: [&str; 3] = [eligibility::ACCOUNT, immune::DOC, keys::KIND];

/// The rights of a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    /// All that nodes and people do.
    Leader,
    /// Assumed of a hub that has not answered yet.
    #[default]
    Worker,
}

impl Rights {
    /// What this login may not do of an operation, in words.
    pub fn refuses(self, op: &Op) -> Option<&'static str> {
        if self == Rights::Leader {
            return None;
        }
        match op {
            Op::Enqueue(_) => Some("make tasks"),
            Op::Amend { .. } => Some("retry or cancel tasks"),
            Op::Elect { .. } | Op::Lead { .. } | Op::Resign { .. } => Some("lead the mesh"),
            Op::SaveGuard { .. } => Some("write guards"),
            Op::SaveLoop { .. } => Some("write loops"),
            Op::SaveDoc { kind, .. } if OWN_DOCS.contains(&kind.as_str()) => None,
            Op::SaveDoc { kind, .. } if kind == super::KIND => Some("make or change loops of the mesh"),
            Op::SaveDoc { kind, .. } if kind == super::node::NODE => Some("drain or remove nodes"),
            Op::SaveDoc { .. } => Some("write this document"),
            Op::Signal { .. } | Op::Consume { .. } => Some("send or take messages"),
            Op::Stream(_) => Some("write streams"),
            Op::OpenTicket { key, .. } | Op::CloseTicket { key, .. } => {
                let own = OWN_TICKETS.iter().any(|cause| key.starts_with(cause));
                (!own).then_some("open or answer this ticket")
            }
            Op::Claim { .. }
            | Op::Take { .. }
            | Op::Renew { .. }
            | Op::Finish { .. }
            | Op::Release { .. }
            | Op::Shelve { .. }
            | Op::Heartbeat { .. }
            | Op::Append { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Fence, NodeId, TaskId};

    #[test]
    fn a_worker_reports_and_changes_nothing_that_a_leader_or_a_person_decides() {
        let doc =
            |kind: &str| Op::SaveDoc { kind: kind.to_owned(), key: "k".to_owned(), version: 1, body: String::new() };
        let close = |key: &str| Op::CloseTicket { key: key.to_owned(), answer: String::new() };
        let renew = Op::Renew { task: TaskId::new("k-1"), fence: Fence(1), lease: std::time::Duration::ZERO };
        let elect = Op::Elect { node: NodeId::new("n"), lease: std::time::Duration::ZERO };
        let refused = [doc("mesh"), doc("node"), doc("reconcile"), doc("anything"), close("mesh:k3f9"), elect];
        let allowed =
            [doc("account"), doc("immune"), doc("key"), close("distrust:k3f9:n"), close("immune.observer"), renew];
        for op in &refused {
            assert!(Rights::Worker.refuses(op).is_some() && Rights::Leader.refuses(op).is_none(), "{op:?}");
        }
        for op in &allowed {
            assert_eq!(Rights::Worker.refuses(op), None, "{op:?}");
        }
    }
}
