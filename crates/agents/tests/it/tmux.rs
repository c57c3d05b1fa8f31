//! Panes with a real tmux: what is typed arrives byte for byte, what screens mean, whose pane it is.

mod lives;
mod mine;
mod ready;
mod screens;
mod turns;
mod typed;
mod world;
