//! What a node reports while it works: lines of the log, and what the simulator checks.

use std::fmt;
use std::time::Duration;

use crate::ids::{LoopId, NodeId, TaskId};
use crate::mesh::reconcile::ReconcilePlan;
use crate::time::Time;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Only for the simulator.
    Silent,
    /// An ordinary step.
    Step,
    /// Something is wrong.
    Warning,
}

/// Something that happened to a node.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is one line of the log, which its text explains")]
pub enum NodeEvent<'a> {
    HubAway { doing: &'static str, error: &'a str },
    HubBack { turn: Duration },
    LeaderChanged { term: Option<u64> },
    GivesUpLeading { id: &'a LoopId, error: &'a str },
    LoopNoted { id: &'a LoopId, note: &'a str },
    LoopNotWritten { id: &'a LoopId, error: &'a str },
    LoopUnreadable { id: &'a LoopId, error: &'a str },
    LoopDistrusted { id: &'a LoopId, why: &'a str },
    ReportRefused { task: &'a TaskId, why: &'a str },
    ActionFailed { id: &'a LoopId, doing: &'static str, error: &'a str },
    BranchMoved { task: &'a TaskId },
    Reclaimed { task: &'a TaskId },
    Reconciled { plan: &'a ReconcilePlan },
    NotReconciled { error: &'a str },
    Taken { key: &'a str },
    Trial { key: &'a str },
    BegunOffline { key: &'a str },
    Adopted { key: &'a str },
    NotAdopted { key: &'a str, error: &'a str },
    Begun { key: &'a str },
    NotBegun { key: &'a str, error: &'a str },
    Lost { key: &'a str },
    GivenBack { key: &'a str, why: &'a str },
    Released { key: &'a str },
    PushFailed { key: &'a str, error: &'a str },
    Reported { key: &'a str },
    NotCounted { key: &'a str, error: &'a str },
    UnknownToHub { key: &'a str },
    NotWritten { what: &'static str, error: &'a str },
    Remembered,
    Offered { rows: usize, since: Time },
    LeftToOthers { holds: usize, oldest: Time },
    NothingOffered,
    NotRecorded,
    Forgotten { id: &'a LoopId },
    LimitLearned { account: &'a str, node: &'a NodeId },
}

impl NodeEvent<'_> {
    /// How much it matters.
    pub fn weight(&self) -> Weight {
        match self {
            NodeEvent::Remembered
            | NodeEvent::Offered { .. }
            | NodeEvent::LeftToOthers { .. }
            | NodeEvent::NothingOffered
            | NodeEvent::Trial { .. }
            | NodeEvent::Taken { .. }
            | NodeEvent::Released { .. } => Weight::Silent,
            NodeEvent::HubAway { .. }
            | NodeEvent::GivesUpLeading { .. }
            | NodeEvent::LoopUnreadable { .. }
            | NodeEvent::LoopDistrusted { .. }
            | NodeEvent::ReportRefused { .. }
            | NodeEvent::ActionFailed { .. }
            | NodeEvent::NotBegun { .. }
            | NodeEvent::GivenBack { .. }
            | NodeEvent::PushFailed { .. }
            | NodeEvent::UnknownToHub { .. }
            | NodeEvent::NotWritten { .. } => Weight::Warning,
            _ => Weight::Step,
        }
    }
}

impl fmt::Display for NodeEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeEvent::HubAway { doing, error } => {
                write!(f, "the hub is away (could not {doing}); what is under way goes on: {error}")
            }
            NodeEvent::HubBack { .. } => write!(f, "the hub is back"),
            NodeEvent::LeaderChanged { term: Some(term) } => write!(f, "this node is the leader, term {term}"),
            NodeEvent::LeaderChanged { term: None } => write!(f, "this node is not the leader"),
            NodeEvent::GivesUpLeading { id, error } => {
                write!(f, "this node cannot do the leader's work for loop {id} and leaves it to another: {error}")
            }
            NodeEvent::LoopNoted { id, note } => write!(f, "loop {id}: {note}"),
            NodeEvent::LoopNotWritten { id, error } => {
                write!(f, "loop {id} was not written; it is read again: {error}")
            }
            NodeEvent::LoopUnreadable { id, error } => write!(f, "loop {id} cannot be read: {error}"),
            NodeEvent::LoopDistrusted { id, why } => write!(f, "nothing of loop {id} is run here: {why}"),
            NodeEvent::ReportRefused { task, why } => write!(f, "the report of task {task} is not accepted: {why}"),
            NodeEvent::ActionFailed { id, doing, error } => {
                write!(f, "loop {id}: could not {doing}; it is tried again: {error}")
            }
            NodeEvent::BranchMoved { task } => write!(f, "the branch moved meanwhile; task {task} is merged again"),
            NodeEvent::Reclaimed { task } => write!(f, "the node that held task {task} is silent; it is free again"),
            NodeEvent::Reconciled { plan } => f.write_str(&plan.said().join("; ")),
            NodeEvent::NotReconciled { error } => write!(f, "nothing was reconciled; it is tried again: {error}"),
            NodeEvent::Taken { key } => write!(f, "takes {key}"),
            NodeEvent::Trial { key } => write!(f, "{key} is a trial"),
            NodeEvent::BegunOffline { key } => write!(f, "offline: begins {key} of its own share"),
            NodeEvent::Adopted { key } => write!(f, "{key}, begun offline, belongs to this node"),
            NodeEvent::NotAdopted { key, error } => write!(f, "{key}, begun offline, is not given to it: {error}"),
            NodeEvent::Begun { key } => write!(f, "works on {key}"),
            NodeEvent::NotBegun { key, error } => write!(f, "{key} cannot be begun here and is given back: {error}"),
            NodeEvent::Lost { key } => write!(f, "{key} was lost to another node"),
            NodeEvent::GivenBack { key, why } => write!(f, "{key} cannot go on here and is given back: {why}"),
            NodeEvent::Forgotten { id } => write!(f, "what was left of {id} is removed"),
            NodeEvent::Released { key } => write!(f, "releases {key}"),
            NodeEvent::PushFailed { key, error } => {
                write!(f, "the work of {key} cannot be pushed; it is tried again: {error}")
            }
            NodeEvent::Reported { key } => write!(f, "the hub has the report of {key}"),
            NodeEvent::NotCounted { key, error } => write!(f, "the result of {key} does not count: {error}"),
            NodeEvent::UnknownToHub { key } => write!(f, "the hub does not know {key} any more"),
            NodeEvent::NotWritten { what, error } => write!(f, "cannot write {what}: {error}"),
            NodeEvent::Remembered => write!(f, "remembers what is free"),
            NodeEvent::Offered { rows, .. } => write!(f, "{rows} tasks may be taken"),
            NodeEvent::LeftToOthers { .. } => write!(f, "leaves what is free to other nodes"),
            NodeEvent::NothingOffered => write!(f, "nothing is free for this node"),
            NodeEvent::NotRecorded => write!(f, "the end of an attempt is missing in the record of the fleet"),
            NodeEvent::LimitLearned { account, node } => {
                write!(f, "node {node} found that the vendor does not serve account {account} now")
            }
        }
    }
}
