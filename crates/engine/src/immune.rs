//! The immune system's document in the ledger: reads it and writes steps to it. The core decides
//! the steps.

use everloop_core::immune::{DOC, FLEET, Immune, ImmuneStep};
use everloop_core::op::Refusal;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};

use crate::error::Failure;

/// Another process may write at the same time; then the document is read and decided again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// The document with its version; a missing one is version 0.
pub fn read(ledger: &(impl Ledger + ?Sized)) -> Result<(u64, Immune), Failure> {
    let Some(row) = ledger.doc(DOC, FLEET)? else { return Ok((0, Immune::default())) };
    let immune = Immune::read(&row.body).map_err(|why| {
        Failure::failed(format!("cannot read the record of quarantines: {why}"))
            .hint("use the everloop that wrote it, or a newer one")
    })?;
    Ok((row.version, immune))
}

/// Commits what `decide` makes of the document, with its events, in one transaction.
pub fn write(
    ledger: &mut impl Ledger,
    now: Time,
    decide: impl Fn(&Immune) -> Result<Vec<ImmuneStep>, Failure>,
) -> Result<Immune, Failure> {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (version, mut immune) = read(ledger)?;
        let steps = decide(&immune)?;
        match ledger.transact(now, &immune.save(version, steps, now)) {
            Ok(_) => return Ok(immune),
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on the record of quarantines")))
}
