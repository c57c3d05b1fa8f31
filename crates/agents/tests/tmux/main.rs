//! Panes with a real tmux: what is typed arrives byte for byte, what screens mean, whose pane it is.

#![expect(clippy::unwrap_used, reason = "tests; clippy sees only functions that are marked as such")]

mod lives;
mod mine;
mod ready;
mod screens;
mod turns;
mod typed;
mod world;
