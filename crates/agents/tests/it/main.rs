//! What needs no program of its own: parsers of what agents print, panes of tmux, mail.

#![expect(clippy::unwrap_used, reason = "tests; clippy does not see that in functions that tests share")]

mod notify;
mod streams;
mod tmux;
