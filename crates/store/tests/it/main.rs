//! One binary for all integration tests of the ledgers.
//!
//! - `story`: 100,000 random operations, the same answers from every ledger
//! - `draw`: how such operations are drawn
//! - `rules`: what the documentation of `Ledger` promises, one by one
//! - `disk`: reopening, crashes, damage, formats, file modes
//! - `writers`: several connections on one file
//! - `fixture`: files of every released format are read back exactly

#![expect(clippy::unwrap_used, reason = "clippy sees tests only in functions marked as such, not in what they call")]

mod disk;
mod draw;
mod fixture;
mod rules;
mod story;
mod writers;
