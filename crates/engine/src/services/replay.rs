//! Whether the stored states follow from the journal.

use super::ServiceContext;
use crate::error::Failure;
use crate::replay::{ReplayReport, audit};

/// Walks the journal of the state folder; compares one loop, or all of them and the guard.
pub fn replay(context: &ServiceContext, word: Option<&str>) -> Result<ReplayReport, Failure> {
    let Some(ledger) = context.reader(&context.home()?)? else { return Ok(ReplayReport::default()) };
    let only = context.named_loop(&ledger, word)?;
    audit(&ledger, only.as_ref())
}
