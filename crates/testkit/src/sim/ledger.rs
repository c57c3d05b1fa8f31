//! The simulated ledger: the model of the store, and the log of batches from which it is made again
//! after a crash.
//!
//! What SQLite promises is taken for granted, not written again: a batch is there as a whole or not
//! at all, and what a power loss leaves is the beginning of the log. Which part of it had to be
//! safe by then is the product's own decision ([`durability`]). While nothing was cut off the model
//! in memory *is* what the log holds, so that opening is free ([`Ledger::reopen`]).

use everloop_core::guard::Guards;
use everloop_core::immune::{DOC, FLEET, Immune};
use everloop_core::op::{Op, Reply, TaskRow};
use everloop_core::time::Time;
use everloop_store::{Durability, Error, Ledger as _, Model, Recipients, TaskFilter, TaskOwner, Tickets, durability};

use super::fault::Loss;
use crate::random::Random;

/// The ledger of a simulated machine.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    model: Model,
    /// What is written, in its order.
    log: Vec<(Time, Vec<Op>)>,
    /// So many batches of it survive a power loss.
    synced: usize,
    /// The model is ahead of the log: a batch is being written.
    ahead: bool,
    /// The model may differ from the log: the next process that opens it reads it again.
    pub doubt: bool,
    /// The last journal record that was confirmed as safe, and must survive everything.
    pub promised: u64,
}

/// A batch that the rules accept and that is not written yet.
#[derive(Debug)]
pub struct Prepared {
    batch: (Time, Vec<Op>),
    replies: Vec<Reply>,
}

impl Ledger {
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the model is what the log holds: no batch is half written, nothing is in doubt.
    pub fn is_settled(&self) -> bool {
        !self.ahead && !self.doubt
    }

    /// Checks a batch against the rules. After this only [`Ledger::write`], [`Ledger::sync`],
    /// [`Ledger::confirm`] or [`Ledger::reopen`] may follow.
    pub fn prepare(&mut self, now: Time, ops: &[Op]) -> Result<Prepared, Error> {
        let replies = self.model.transact(now, ops)?;
        self.ahead = true;
        Ok(Prepared { batch: (now, ops.to_vec()), replies })
    }

    pub fn write(&mut self, prepared: &Prepared) {
        self.log.push(prepared.batch.clone());
    }

    /// Makes it safe.
    pub fn sync(&mut self) {
        match durability() {
            Durability::Full => self.synced = self.log.len(),
            Durability::Normal => {}
        }
    }

    /// The device does not answer: how much of what was written is safe is unknown until a read.
    pub fn fail_to_sync(&mut self, random: &mut Random) {
        if random.one_in(2) {
            self.synced = self.log.len();
        }
        self.log.truncate(self.synced);
    }

    /// The caller may know.
    pub fn confirm(&mut self, prepared: Prepared) -> Vec<Reply> {
        self.ahead = false;
        self.promised = self.last_seq();
        prepared.replies
    }

    /// A whole transaction of a process that does not crash (a command of a person).
    pub fn transact(&mut self, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        let prepared = self.prepare(now, ops)?;
        self.write(&prepared);
        self.sync();
        Ok(self.confirm(prepared))
    }

    /// The power fails; whether that could take something away.
    pub fn power_loss(&mut self, loss: Loss, random: &mut Random) -> bool {
        let unsynced = self.log.len() - self.synced;
        self.log.truncate(self.synced + loss.keeps(unsynced as u64, random) as usize);
        self.doubt |= unsynced > 0;
        unsynced > 0
    }

    /// Opens it after a crash. Reads the log only when the model may differ from it.
    pub fn reopen(&mut self) -> Result<(), Error> {
        if self.is_settled() {
            return Ok(());
        }
        self.model = self.read()?;
        // What was only in the cache counts from now on, so it must not be lost later.
        self.synced = self.log.len();
        (self.ahead, self.doubt) = (false, false);
        Ok(())
    }

    /// Applies the log again.
    fn read(&self) -> Result<Model, Error> {
        let mut model = Model::default();
        for (now, ops) in &self.log {
            model.transact(*now, ops)?;
        }
        Ok(model)
    }

    /// Whether the log holds exactly the content of the model.
    pub fn agrees(&self) -> Result<bool, Error> {
        Ok(same(&self.read()?, &self.model))
    }

    /// The sequence number of the last journal record.
    pub fn last_seq(&self) -> u64 {
        self.model.last_seq().expect("the model always answers")
    }

    /// The immune system's document, with its version.
    pub fn immune(&self) -> (u64, Immune) {
        let row = self.model.doc(DOC, FLEET).expect("the model always answers");
        row.map_or_else(Default::default, |row| {
            (row.version, serde_json::from_str(&row.body).expect("a stored document can be read"))
        })
    }

    pub fn guards(&self) -> Guards {
        self.model.guards().expect("the model always answers")
    }
}

/// All tasks of a ledger.
pub fn all_tasks(model: &Model) -> Vec<TaskRow> {
    let all = TaskFilter { owner: TaskOwner::Any, states: Vec::new(), limit: usize::MAX };
    model.tasks(&all).expect("the model always answers")
}

fn same(a: &Model, b: &Model) -> bool {
    let answers = |m: &Model| {
        let journal = m.journal_raw(0, usize::MAX).ok();
        (m.loops().ok(), all_tasks(m), m.guards().ok(), journal)
    };
    let more = |m: &Model| {
        let tickets = m.tickets(Tickets::Newest(usize::MAX)).ok();
        (tickets, m.messages(Recipients::All, usize::MAX).ok(), m.docs(DOC).ok())
    };
    answers(a) == answers(b) && more(a) == more(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_promised_is_there_after_a_power_loss() {
        let signal = |n: u64| Op::Signal { to: "k3f9".to_owned(), by: "person".to_owned(), body: n.to_string() };
        for seed in 0..50 {
            let mut ledger = Ledger::default();
            for n in 0..3 {
                ledger.transact(Time(0), &[signal(n)]).expect("nothing fails here");
            }
            let prepared = ledger.prepare(Time(9), &[signal(9)]).expect("nothing fails here");
            ledger.write(&prepared);
            assert!(ledger.power_loss(Loss::Part, &mut Random::new(seed)));
            ledger.reopen().expect("what is left can be read");
            let messages = ledger.model().messages(Recipients::All, 10).expect("the model always answers");
            assert!(messages.len() == 3 || messages.len() == 4);
            assert!(ledger.agrees().expect("it can be read"));
        }
    }
}
