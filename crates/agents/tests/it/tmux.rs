//! Panes with a real tmux: typed text arrives byte for byte, screens have the right meaning,
//! ownership holds.

mod lives;
mod mine;
mod ready;
mod screens;
mod turns;
mod typed;
mod world;
