//! The notifiers of the user and of a project, each with an outbox in the ledger. `core::notify`
//! decides what they deliver and when; the supervisor sends it.

use everloop_core::notify::{LocalTime, OUTBOX_FORMAT, Outbox};
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::Ledger;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::Failure;

/// The kind of the documents that hold outboxes.
pub const DOCS: &str = "notify";

/// The outbox of a notifier, with its version.
pub fn outbox(ledger: &impl Ledger, key: &str) -> Result<(u64, Outbox), Failure> {
    let Some(row) = ledger.doc(DOCS, key)? else { return Ok((0, Outbox::default())) };
    Ok((row.version, read(key, &row.body)?))
}

fn read(key: &str, body: &str) -> Result<Outbox, Failure> {
    let outbox: Outbox = serde_json::from_str(body)
        .map_err(|e| Failure::failed(format!("cannot read the outbox of `{key}`")).because(&e))?;
    if outbox.format > OUTBOX_FORMAT {
        return Err(Failure::failed(format!("the outbox of `{key}` is in a newer format ({})", outbox.format))
            .hint("use the everloop that wrote it, or a newer one"));
    }
    Ok(outbox)
}

/// The operation that keeps an outbox.
pub fn save(key: &str, version: u64, outbox: &Outbox) -> Op {
    let body = serde_json::to_string(outbox).expect("an outbox is plain data and always has a JSON form");
    Op::SaveDoc { kind: DOCS.to_owned(), key: key.to_owned(), version, body }
}

/// The local date and time.
pub fn moment(now: Time) -> LocalTime {
    let at = Timestamp::from_millisecond(now.0).unwrap_or_default();
    LocalTime { now, local_minutes: TimeZone::system().to_offset(at).seconds() / 60 }
}

/// Notifiers that cannot be reached, by name, in words. Those that are no longer tried are left
/// out.
pub fn troubles(ledger: &impl Ledger, now: Time) -> Result<Vec<(String, String)>, Failure> {
    /// No wait between two attempts is longer than half of this.
    const TRIED: std::time::Duration = std::time::Duration::from_secs(2 * 3600);
    let mut found = Vec::new();
    for row in ledger.docs(DOCS)? {
        let outbox = read(&row.key, &row.body)?;
        let tried = outbox.failing.as_ref().is_some_and(|f| f.next + TRIED > now);
        let name = row.key.split_once('@').map_or(row.key.as_str(), |(name, _)| name).to_owned();
        found.extend(outbox.trouble(now).filter(|_| tried).map(|text| (name, text)));
    }
    Ok(found)
}
