//! The immune system's document in the ledger: read it, write steps to it. What the steps are is the core's.

use everloop_core::event::Event;
use everloop_core::immune::{DOC, Did, FLEET, IMMUNE_VERSION, Immune};
use everloop_core::op::{Op, Refusal};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};

use crate::error::Failure;

/// Somebody else may write at the same time; then it is read again and decided again.
const ATTEMPTS: u32 = 8;

/// What is remembered, with its version; nothing yet is version 0.
pub fn read(ledger: &impl Ledger) -> Result<(u64, Immune), Failure> {
    let Some(row) = ledger.doc(DOC, FLEET)? else { return Ok((0, Immune::default())) };
    let broken = |why: String| Failure::failed(format!("the record of who fails cannot be read: {why}"));
    let immune: Immune = serde_json::from_str(&row.body).map_err(|e| broken(e.to_string()))?;
    if immune.immune_version > IMMUNE_VERSION {
        return Err(
            broken("a newer everloop wrote it".to_owned()).hint("use the everloop that wrote it, or a newer one")
        );
    }
    Ok((row.version, immune))
}

/// Commits what `decide` makes of the document, with its events, in one transaction.
pub fn write(
    ledger: &mut impl Ledger,
    now: Time,
    decide: impl Fn(&Immune) -> Result<Vec<Did>, Failure>,
) -> Result<Immune, Failure> {
    for _ in 0..ATTEMPTS {
        let (version, mut immune) = read(ledger)?;
        let steps = decide(&immune)?;
        for step in &steps {
            immune.apply(step, now);
        }
        let body = serde_json::to_string(&immune).expect("it is plain data and always has a JSON form");
        let events = steps.into_iter().map(|step| Event::Immune { step: Box::new(step) }).collect();
        let save = Op::SaveDoc { kind: DOC.to_owned(), key: FLEET.to_owned(), version, body };
        match ledger.transact(now, &[save, Op::Append { owner: None, events }]) {
            Ok(_) => return Ok(immune),
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Failure::failed("the record of who fails is written by somebody else all the time"))
}
