//! The hub, and the line from a node to it: calls that are lost on their way there or back,
//! refused, or late.

use everloop_core::mesh::node::{Hint, HubAway, HubResult};
use everloop_core::op::{Op, Refusal, Reply};
use everloop_store::{Error, Ledger, Model};

use super::faults::MeshFault;
use super::world::World;

/// Hints are counted as part of a herd for so long after the hub came back.
const RETURN_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Well,
    /// Unreachable: down, or it accepts no connection, or its tables are gone.
    Away,
    /// It answers and writes nothing.
    ReadOnly,
    /// Every other connection is one too many.
    Crowded,
}

#[derive(Default)]
pub(super) struct Hub {
    pub model: Model,
    pub mood: Mood,
    /// Since when it is well.
    pub since: u64,
    /// Its clock is so far ahead of a right one.
    pub ahead: i64,
    /// Until then no duration can be derived from its clock, because the clock was set.
    pub odd_until: u64,
    /// How often it was set back to an older copy.
    pub copies: u64,
    pub backup: Option<Model>,
    /// Calls in this second.
    second: (u64, u64),
    /// The most of them after a return.
    pub herd: u64,
}

impl Hub {
    /// Becomes what it was at the last backup, if there is one.
    pub fn restore(&mut self) -> bool {
        let Some(backup) = self.backup.clone() else { return false };
        self.model = backup;
        self.copies += 1;
        true
    }

    fn count(&mut self, now: u64) {
        if self.since == 0 || now - self.since > RETURN_MS {
            return;
        }
        let second = now / 1000;
        self.second = if self.second.0 == second { (second, self.second.1 + 1) } else { (second, 1) };
        self.herd = self.herd.max(self.second.1);
    }
}

/// What a node's line does to its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing comes through.
    Both,
    /// Requests of the node do not reach the hub.
    Requests,
    /// Answers of the hub do not reach the node.
    Answers,
    /// Ten seconds nothing, ten seconds everything, since then.
    Flapping(u64),
}

/// Ten seconds, in milliseconds.
const FLAP_MS: u64 = 10_000;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Nothing happens at the hub.
    Lost,
    /// The hub carries it out, and the answer is lost.
    AnswerLost,
    /// The hub carries it out so much later, and the answer is lost.
    Late(u64),
}

/// The kind of a call to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read,
    Write,
}

impl World {
    /// A node reads from the hub: whether it answers.
    pub(super) fn read_hub(&mut self, n: usize) -> HubResult<()> {
        match self.fate(n, Call::Read) {
            Fate::Answered => {
                self.hub.count(self.now);
                Ok(())
            }
            Fate::Lost | Fate::AnswerLost | Fate::Late(_) => Err(HubAway(String::new())),
        }
    }

    /// A node writes at the hub, under a term if it does so as leader.
    pub(super) fn write_hub(
        &mut self,
        n: usize,
        term: Option<u64>,
        ops: &[Op],
    ) -> HubResult<Result<Vec<Reply>, Refusal>> {
        match self.fate(n, Call::Write) {
            Fate::Answered => {
                let answer = self.write_at_hub(n, term, ops);
                self.nodes[n].seen = self.hub.model.last_seq().expect("the model answers");
                self.learn_term(n, ops, &answer);
                return Ok(answer);
            }
            // Refused or not, no answer comes back.
            Fate::AnswerLost => drop(self.write_at_hub(n, term, ops)),
            Fate::Late(wait) => {
                let ops = ops.to_vec();
                self.later(wait, move |w| w.arrive_late(n, term, &ops));
            }
            Fate::Lost => {}
        }
        Err(HubAway(String::new()))
    }

    /// Under which term a node takes itself for the leader.
    fn learn_term(&mut self, n: usize, ops: &[Op], answer: &Result<Vec<Reply>, Refusal>) {
        match (ops.first(), answer) {
            (Some(Op::Elect { .. }), Ok(replies)) => {
                let term = replies.iter().find_map(|r| if let Reply::Elected(term) = r { *term } else { None });
                self.nodes[n].term = term;
            }
            (Some(Op::Resign { .. }), _) | (_, Err(Refusal::NotLeader { .. })) => self.nodes[n].term = None,
            _ => {}
        }
    }

    fn write_at_hub(&mut self, n: usize, term: Option<u64>, ops: &[Op]) -> Result<Vec<Reply>, Refusal> {
        self.hub.count(self.now);
        if let Some(what) = ops.iter().find_map(|op| self.nodes[n].rights.refuses(op)) {
            self.violated("rights", format!("{} has the login of a worker and tries to {what}", self.nodes[n].id));
            return Err(Refusal::Rights { what: what.to_owned() });
        }
        let wrong = ops.iter().find_map(|op| self.takes_away(op));
        match self.hub.model.transact(self.time(), ops) {
            Ok(replies) => {
                if let Some(wrong) = wrong.filter(|_| !self.faults.late) {
                    self.violated(wrong.invariant, wrong.text);
                }
                self.after(Some((n, term)), ops);
                Ok(replies)
            }
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(error) => unreachable!("the model answers: {error}"),
        }
    }

    /// A request reaches the hub that was sent long ago, perhaps under a term.
    fn arrive_late(&mut self, n: usize, term: Option<u64>, ops: &[Op]) {
        if self.hub.mood != Mood::Away && self.hub.mood != Mood::ReadOnly {
            self.trace.say(self.now, "late", self.nodes[n].id.as_str());
            // Whether it is accepted or refused, the answer is lost.
            self.faults.late = true;
            drop(self.write_at_hub(n, term, ops));
            self.faults.late = false;
        }
    }

    fn fate(&mut self, n: usize, call: Call) -> Fate {
        if self.nodes[n].dying {
            return Fate::Lost;
        }
        let fault = self.meet();
        let line = self.line(n, call);
        match fault {
            Some(MeshFault::KillBefore) => {
                self.nodes[n].dying = true;
                Fate::Lost
            }
            Some(MeshFault::KillAfter) => {
                self.nodes[n].dying = true;
                if line == Fate::Lost { Fate::Lost } else { Fate::AnswerLost }
            }
            Some(MeshFault::LoseRequest | MeshFault::HubError(_)) => Fate::Lost,
            Some(MeshFault::LoseAnswer) if line != Fate::Lost => Fate::AnswerLost,
            Some(MeshFault::Late(wait)) if line != Fate::Lost => Fate::Late(wait),
            Some(MeshFault::Stop(wait)) => {
                self.stop_thread(n, wait);
                if line == Fate::Lost { Fate::Lost } else { Fate::Late(wait) }
            }
            Some(MeshFault::HubAway(wait)) => {
                self.hub_goes(wait);
                Fate::Lost
            }
            Some(MeshFault::LoseAnswer | MeshFault::Late(_) | MeshFault::DiskFull) | None => line,
        }
    }

    /// What hub and line do to a call without further misfortune.
    fn line(&mut self, n: usize, call: Call) -> Fate {
        let heard = match self.hub.mood {
            Mood::Well => true,
            Mood::Away => false,
            Mood::ReadOnly => call == Call::Read,
            Mood::Crowded => self.dice.one_in(2),
        };
        let node = &self.nodes[n];
        let fate = match node.cut {
            Some(Cut::Both | Cut::Requests) => Fate::Lost,
            Some(Cut::Answers) => Fate::AnswerLost,
            Some(Cut::Flapping(since)) if ((self.now - since) / FLAP_MS).is_multiple_of(2) => Fate::Lost,
            Some(Cut::Flapping(_)) | None => Fate::Answered,
        };
        if heard && self.same_hub(n) { fate } else { Fate::Lost }
    }

    /// Whether the hub knows all that this node saw there; nodes do not work with a hub that was
    /// set back.
    fn same_hub(&mut self, n: usize) -> bool {
        if self.nodes[n].copy != self.hub.copies {
            if self.hub.model.last_seq().expect("the model answers") < self.nodes[n].seen {
                return false;
            }
            self.nodes[n].copy = self.hub.copies;
        }
        true
    }

    /// A hint goes to the other nodes. Hints are lost, late, doubled and out of order.
    pub(super) fn spread(&mut self, n: usize, hint: &Hint) {
        for other in 0..self.nodes.len() {
            if other == n || self.nodes[other].cut.is_some() {
                continue;
            }
            let wait = self.dice.between(1, 40);
            let (what, waits) = match if self.faults.chance.is_random() { self.dice.below(20) } else { 9 } {
                0 => (Some("hint lost"), [None, None]),
                1 => (Some("hint late"), [Some(wait * 1_000), None]),
                2 => (Some("hint twice"), [Some(wait), Some(wait + 100)]),
                _ => (None, [Some(wait), None]),
            };
            if let Some(what) = what {
                self.count(what);
            }
            for wait in waits.into_iter().flatten() {
                let hint = hint.clone();
                self.later(wait, move |w| w.hear(other, hint));
            }
        }
    }
}
