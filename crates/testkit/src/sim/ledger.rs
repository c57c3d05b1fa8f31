//! The simulated ledger: the model of the store, kept on the simulated disk.
//!
//! Every batch is one record (`magic length checksum {now, ops} as JSON`), written and synced
//! before it counts. Opening reads the valid prefix and does it all again; a torn tail is dropped,
//! a damaged middle is refused, never guessed at. While nothing was torn the model in memory *is*
//! what the disk holds, so that opening is free ([`Ledger::reopen`]).

use everloop_core::guard::Guards;
use everloop_core::immune::{DOC, FLEET, Immune};
use everloop_core::op::{Op, Reply};
use everloop_core::time::Time;
use everloop_store::{Durability, Error, Ledger as _, Model, Recipients, TaskFilter, TaskOwner, Tickets, durability};
use serde::{Deserialize, Serialize};

use super::disk::{Disk, Errno};
use super::random::Random;

/// The name of the ledger's file.
pub const FILE: &str = "ledger";
const MAGIC: &[u8; 4] = b"EVLR";
const HEAD: usize = 12;

#[derive(Serialize)]
struct RecordRef<'a> {
    now: Time,
    ops: &'a [Op],
}

#[derive(Deserialize)]
struct Record {
    now: Time,
    ops: Vec<Op>,
}

/// The ledger of a simulated machine.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    model: Model,
    /// The model is ahead of the disk: a batch is being written.
    ahead: bool,
    /// The last journal record that was confirmed as safe.
    promised: u64,
}

/// A batch that the rules accept and that is not on disk yet.
#[derive(Debug)]
pub struct Prepared {
    bytes: Vec<u8>,
    replies: Vec<Reply>,
}

impl Ledger {
    /// What it holds.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The last journal record that must survive everything.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Whether no batch is half written.
    pub fn is_settled(&self) -> bool {
        !self.ahead
    }

    /// Checks a batch against the rules. After this only [`Ledger::write`], [`Ledger::sync`],
    /// [`Ledger::confirm`] or [`Ledger::reopen`] may follow.
    pub fn prepare(&mut self, now: Time, ops: &[Op]) -> Result<Prepared, Error> {
        let replies = self.model.transact(now, ops)?;
        self.ahead = true;
        let body = serde_json::to_vec(&RecordRef { now, ops }).expect("operations are plain data");
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(Prepared { bytes, replies })
    }

    /// Writes the batch.
    pub fn write(&mut self, prepared: &Prepared, disk: &mut Disk, random: &mut Random) -> Result<(), Error> {
        let new = disk.read(FILE).is_none();
        disk.append(FILE, &prepared.bytes, random).map_err(failed)?;
        if new { disk.sync_folder().map_err(failed) } else { Ok(()) }
    }

    /// Makes it safe.
    pub fn sync(disk: &mut Disk, random: &mut Random) -> Result<(), Error> {
        match durability() {
            Durability::Full => disk.sync(FILE, random).map_err(failed),
            Durability::Normal => Ok(()),
        }
    }

    /// The caller may know.
    pub fn confirm(&mut self, prepared: Prepared) -> Vec<Reply> {
        self.ahead = false;
        self.promised = self.last_seq();
        prepared.replies
    }

    /// A whole transaction of a process that does not crash (a command of a person).
    pub fn transact(
        &mut self,
        now: Time,
        ops: &[Op],
        disk: &mut Disk,
        random: &mut Random,
    ) -> Result<Vec<Reply>, Error> {
        let prepared = self.prepare(now, ops)?;
        self.write(&prepared, disk, random)?;
        Self::sync(disk, random)?;
        Ok(self.confirm(prepared))
    }

    /// Opens it after a crash. Reads the disk only when the model may differ from it.
    pub fn reopen(&mut self, disk: &mut Disk, random: &mut Random, doubt: bool) -> Result<(), Error> {
        if !self.ahead && !doubt {
            return Ok(());
        }
        let (model, good) = read(disk.read(FILE).unwrap_or_default())?;
        let all = disk.read(FILE).unwrap_or_default();
        if good < all.len() {
            // The torn tail must not stand before the next record.
            let kept = all[..good].to_vec();
            disk.write("ledger.new", &kept, random).map_err(failed)?;
            disk.sync("ledger.new", random).map_err(failed)?;
            disk.rename("ledger.new", FILE).map_err(failed)?;
            disk.sync_folder().map_err(failed)?;
        }
        // What was only in the cache counts from now on, so it must not be lost later.
        disk.sync(FILE, random).map_err(failed)?;
        self.model = model;
        self.ahead = false;
        Ok(())
    }

    /// Whether the disk holds exactly the content of the model.
    pub fn agrees(&self, disk: &Disk) -> Result<bool, Error> {
        let (stored, _) = read(disk.read(FILE).unwrap_or_default())?;
        Ok(same(&stored, &self.model))
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

    /// All guards in the ledger.
    pub fn guards(&self) -> Guards {
        self.model.guards().expect("the model always answers")
    }
}

fn failed(errno: Errno) -> Error {
    match errno {
        Errno::Full => Error::Full { doing: "commit" },
        Errno::Io => Error::Unreadable { what: "the disk".to_owned(), why: "I/O error".to_owned() },
    }
}

/// Applies the valid prefix again; returns the model and the length of the prefix.
fn read(bytes: &[u8]) -> Result<(Model, usize), Error> {
    let mut model = Model::default();
    let mut at = 0;
    while let Some(body) = record_at(bytes, at) {
        let record: Record = serde_json::from_slice(body).map_err(|e| damaged(at, &e.to_string()))?;
        model.transact(record.now, &record.ops)?;
        at += HEAD + body.len();
    }
    // Whatever follows is a torn tail, unless a good record stands behind it.
    let behind = (at + 1..bytes.len()).find(|&later| record_at(bytes, later).is_some());
    match behind {
        Some(later) => Err(damaged(at, &format!("a good record stands behind it, at {later}"))),
        None => Ok((model, at)),
    }
}

fn damaged(at: usize, why: &str) -> Error {
    Error::Unreadable { what: format!("the record at {at}"), why: why.to_owned() }
}

fn record_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let head = bytes.get(at..at + HEAD)?;
    let number = |range: std::ops::Range<usize>| Some(u32::from_le_bytes(head.get(range)?.try_into().ok()?));
    if &head[..4] != MAGIC {
        return None;
    }
    let body = bytes.get(at + HEAD..at + HEAD + number(4..8)? as usize)?;
    (crc32fast::hash(body) == number(8..12)?).then_some(body)
}

fn same(a: &Model, b: &Model) -> bool {
    let all = TaskFilter { owner: TaskOwner::Any, states: Vec::new(), limit: usize::MAX };
    let answers = |m: &Model| {
        let journal = m.journal_raw(0, usize::MAX).ok();
        (m.loops().ok(), m.tasks(&all).ok(), m.guards().ok(), journal)
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
    use crate::sim::disk::Loss;

    fn signal(n: u32) -> Vec<Op> {
        vec![Op::Signal { to: "k3f9".to_owned(), by: "person".to_owned(), body: format!("message {n}") }]
    }

    fn written(n: u32) -> (Ledger, Disk, Random) {
        let (mut ledger, mut disk, mut random) = (Ledger::default(), Disk::default(), Random::new(5));
        for k in 0..n {
            ledger.transact(Time(i64::from(k)), &signal(k), &mut disk, &mut random).expect("nothing fails here");
        }
        (ledger, disk, random)
    }

    #[test]
    fn a_torn_tail_is_dropped_and_everything_promised_is_there() {
        for seed in 0..200 {
            let (mut ledger, mut disk, _) = written(3);
            let mut random = Random::new(seed);
            let prepared = ledger.prepare(Time(9), &signal(9)).expect("nothing fails here");
            ledger.write(&prepared, &mut disk, &mut random).expect("nothing fails here");
            disk.power_loss(Loss::Mixed, &mut random);
            ledger.reopen(&mut disk, &mut random, true).expect("a torn tail is no damage");
            let messages = ledger.model().messages(Recipients::All, 10).expect("the model always answers");
            assert!(messages.len() == 3 || messages.len() == 4);
            assert!(ledger.agrees(&disk).expect("it can be read"));
        }
    }

    #[test]
    fn a_damaged_middle_is_refused() {
        let (ledger, disk, mut random) = written(3);
        let mut bytes = disk.read(FILE).expect("it was written").to_vec();
        bytes[HEAD + 3] ^= 1;
        let mut damaged = Disk::default();
        damaged.write(FILE, &bytes, &mut random).expect("nothing fails here");
        assert!(ledger.clone().reopen(&mut damaged, &mut random, true).is_err());
    }
}
