//! The API agent as a process of its own, against a scripted server on this machine.

mod limits;
mod server;
mod sessions;
mod streams;
mod tls;
mod tools;
pub mod world;

use libtest_mimic::Trial;

/// All tests of this folder.
pub fn all() -> Vec<Trial> {
    [limits::all(), sessions::all(), streams::all(), tls::all(), tools::all()].into_iter().flatten().collect()
}
