//! Panes with a real tmux: typed text arrives byte for byte, screens have the right meaning,
//! ownership holds.

#![expect(clippy::unwrap_used, reason = "tests; clippy sees only functions that are marked as such")]

mod lives;
mod mine;
mod ready;
mod screens;
mod turns;
mod typed;
mod world;
