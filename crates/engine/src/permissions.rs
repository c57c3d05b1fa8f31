//! Permission requests in the ledger: the ticket of a request, and the document beside a loop with
//! what was allowed for always. `core::permission` decides what an answer covers.

use everloop_core::event::Event;
use everloop_core::hex::hex;
use everloop_core::ids::LoopId;
use everloop_core::op::{Op, Refusal};
use everloop_core::permission::{
    LoopPermissions, PERMISSION, PERMISSION_LATER, PERMISSIONS_FORMAT, PermissionCall, PermissionWord,
};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Sqlite};
use sha2::{Digest, Sha256};

use crate::error::Failure;
use crate::record::record;

/// The kind of the documents.
const DOCS: &str = "permissions";
/// The supervisor may write at the same time; then it is read and changed again.
const MAX_CONFLICT_RETRIES: u32 = 16;

/// What is remembered about a loop, with the version of that document.
pub fn known(ledger: &impl Ledger, owner: &LoopId) -> Result<(u64, LoopPermissions), Failure> {
    let Some(row) = ledger.doc(DOCS, owner.as_str())? else { return Ok((0, LoopPermissions::default())) };
    let known: LoopPermissions = serde_json::from_str(&row.body)
        .map_err(|e| Failure::failed(format!("cannot read the permissions of loop `{owner}`")).because(&e))?;
    if known.format > PERMISSIONS_FORMAT {
        let message = format!("the permissions of loop `{owner}` are in a newer format ({})", known.format);
        return Err(Failure::failed(message).hint("use the everloop that wrote it, or a newer one"));
    }
    Ok((row.version, known))
}

fn save(owner: &LoopId, version: u64, known: LoopPermissions) -> Op {
    let known = LoopPermissions { format: PERMISSIONS_FORMAT, ..known };
    let body = serde_json::to_string(&known).expect("plain data always has a JSON form");
    Op::SaveDoc { kind: DOCS.to_owned(), key: owner.to_string(), version, body }
}

/// The change that a person's answer makes, for the transaction that closes the ticket.
pub fn answered(ledger: &impl Ledger, owner: &LoopId, key: &str, text: &str) -> Result<Op, Failure> {
    let (version, mut known) = known(ledger, owner)?;
    known.answer(key, &PermissionWord::of(text));
    Ok(save(owner, version, known))
}

/// Bytes of the digest of a request in its key: the answer to one request must not be that of
/// another, so that a second one with the same digest cannot be found.
const DIGEST_BYTES: usize = 16;

/// A request and its loop.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub owner: &'a LoopId,
    pub call: &'a PermissionCall,
    /// The turn, for the text.
    pub turn: &'a str,
}

impl Asked<'_> {
    /// The key of its ticket while the CLI waits: one per loop and request.
    pub fn key(&self) -> String {
        format!("{PERMISSION}{}", self.suffix())
    }

    /// The key of its ticket when it was refused for want of an answer.
    fn later_key(&self) -> String {
        format!("{PERMISSION_LATER}{}", self.suffix())
    }

    fn suffix(&self) -> String {
        let digest = Sha256::digest(format!("{}\0{}", self.call.tool, self.call.input));
        format!("{}:{}", self.owner, hex(&digest[..DIGEST_BYTES]))
    }

    /// Opens the ticket that the CLI waits for.
    pub fn open(&self, ledger: &mut Sqlite, now: Time) -> Result<(), Failure> {
        let (key, text) = (self.key(), self.call.question(self.turn));
        change(ledger, now, |ledger| {
            let (version, mut known) = known(ledger, self.owner)?;
            known.ask(&key, self.call);
            let opened = Event::TicketOpened { key: key.clone(), text: text.clone() };
            let ticket = Op::OpenTicket { key: key.clone(), owner: Some(self.owner.clone()), text: text.clone() };
            let mut ops = vec![save(self.owner, version, known), ticket];
            ops.extend(record(ledger, Some(self.owner), &[opened], now)?);
            Ok(ops)
        })
    }

    /// No answer came: the request is refused, and a ticket for the next time takes its place.
    pub fn give_up(&self, ledger: &mut Sqlite, now: Time) -> Result<(), Failure> {
        let (key, later) = (self.key(), self.later_key());
        let text = format!("{}. No answer came in time, so it was refused", self.call.question(self.turn));
        change(ledger, now, |ledger| {
            let (version, mut known) = known(ledger, self.owner)?;
            known.ask(&later, self.call);
            known.unattended = true;
            let mut ops = vec![
                save(self.owner, version, known),
                Op::CloseTicket { key: key.clone(), answer: "no answer in time: refused".to_owned() },
                Op::OpenTicket { key: later.clone(), owner: Some(self.owner.clone()), text: text.clone() },
            ];
            let events = [
                Event::TicketClosed { key: key.clone() },
                Event::TicketOpened { key: later.clone(), text: text.clone() },
            ];
            ops.extend(record(ledger, Some(self.owner), &events, now)?);
            Ok(ops)
        })
    }
}

/// Writes what `plan` makes of the ledger, again when another process was faster.
fn change(ledger: &mut Sqlite, now: Time, plan: impl Fn(&Sqlite) -> Result<Vec<Op>, Failure>) -> Result<(), Failure> {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let ops = plan(ledger)?;
        match ledger.transact(now, &ops) {
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
    Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on the permissions of a loop")))
}
