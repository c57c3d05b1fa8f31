//! Rhythm: when a persona looks next and what wakes it. A persona is a loop without an end; with
//! nothing to do it sleeps.
//!
//! A look costs nothing. A turn starts only if there is work and the guard permits.
//!
//! - [`persona`]: what makes a loop a persona
//! - [`signal`]: what arrives; [`reflex`]: what a signal does to a sleeping persona; [`row`]: the
//!   signals that wait, as rows of the ledger
//! - [`filter`]: which entries of a stream a route takes; [`glob`]: patterns of tags and topics
//! - [`cadence`]: the character of a persona as data; [`calendar`]: wall clocks, cron and DST
//! - [`next`](mod@next): when to look next, with every factor
//! - [`factor`]: the factors, as sentences; [`bucket`]: the wake budget; [`rate`]: the smoothed
//!   rate of signals; [`metabolism`]: how much arrives; [`mood`]: the same as one word
//! - [`wish`]: when the agent wants to be woken
//! - [`inward`]: reflections and dreams, and the memory that they leave
//! - [`state`]: what is remembered of a persona; [`strip`]: what it did in a period

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

/// Empty looks in a row after which a persona is shown as parked, as for loops with monitors.
pub const PARK_AFTER: u32 = 30;

pub mod bucket;
pub mod cadence;
pub mod calendar;
pub mod factor;
pub mod filter;
pub mod glob;
pub mod inward;
pub mod metabolism;
pub mod mood;
pub mod next;
pub mod persona;
pub mod rate;
pub mod reflex;
pub mod row;
pub mod signal;
pub mod state;
pub mod strip;
pub mod wish;

#[cfg(test)]
mod tests_support;
