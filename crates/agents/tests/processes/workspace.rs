//! Workspaces and checks against real git and real processes.

mod agents;
mod attacks;
mod broken;
mod checks;
mod in_place;
mod judges;
mod landing;
mod places;
mod shared;
mod world;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};

/// A test with its name.
type Case = (&'static str, fn() -> Result<(), Failed>);

/// All tests of this folder.
pub fn all() -> Vec<Trial> {
    let cases = [
        places::CASES,
        agents::CASES,
        attacks::CASES,
        broken::CASES,
        landing::CASES,
        in_place::CASES,
        judges::CASES,
        checks::CASES,
        shared::CASES,
    ];
    let trial = |(name, run): Case| Trial::test(format!("workspace::{name}"), run);
    cases.concat().into_iter().map(trial).collect()
}

/// A process that takes turns while its calls of git are counted.
pub fn take_counted_turns(repo: &Path, root: &Path) -> ExitCode {
    let done = world::wait(places::take_counted_turns(repo, root));
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
