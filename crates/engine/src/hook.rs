//! The context of a hook: a session that everloop did not start, seen from the hooks of its CLI.
//! The core decides whether it may stop; `services/hook.rs` puts the two together.
//!
//! - [`payload`]: the CLI's JSON on stdin, whichever CLI it is; [`answer`]: how it is refused something
//! - [`session_folder`]: the project and the loop that holds its sessions; [`tree`]: a signature of
//!   its files
//! - [`text`]: texts for the agent; [`transcript`]: its last words, and how full its context is
//! - [`guardian`]: files that may not shrink

pub mod answer;
pub mod guardian;
pub mod payload;
pub mod session_folder;
pub mod text;
pub mod transcript;
pub mod tree;
