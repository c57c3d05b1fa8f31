//! What a hook needs to know: a session that everloop did not start, seen from the hooks of its CLI. Whether it may stop is
//! decided in the core; `cli/hook.rs` puts the two together.
//!
//! - [`payload`]: what the CLI says on stdin, whichever CLI it is
//! - [`session_folder`]: the project and the loop whose checks count there; [`tree`]: a signature of its files
//! - [`text`]: what the agent is told; [`transcript`]: what it said last, and how full its context is
//! - [`guardian`]: files that may not shrink

pub mod guardian;
pub mod payload;
pub mod session_folder;
pub mod text;
pub mod transcript;
pub mod tree;
