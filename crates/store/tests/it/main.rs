//! One binary for all integration tests of the ledgers.
//!
//! - `story`: 100,000 random operations, the same answers from every ledger
//! - `draw`: how such operations are drawn
//! - `rules`: the semantics in the documentation of `Ledger`, one by one
//! - `disk`: reopening, crashes, damage, formats, file modes
//! - `writers`: several connections on one file; `workers`: those of a research run
//! - `postgres`: the hub: wrong ones, damage, logins, TLS; `faults`: faults on the way to it
//! - `channel_binding`: logins that are bound to the certificate of a hub
//! - `nodes`: several nodes at one hub get the answers of some order; `pooler`: the same through a
//!   pooler
//! - `fixture`: files of every released format are read back exactly

#![expect(clippy::unwrap_used, reason = "clippy sees tests only in functions marked as such, not in what they call")]

mod channel_binding;
mod disk;
mod draw;
mod faults;
mod fixture;
mod nodes;
mod pooler;
mod postgres;
mod rules;
mod story;
mod workers;
mod writers;
