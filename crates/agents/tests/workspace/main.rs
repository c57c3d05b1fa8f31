//! Workspaces and checks against real git and real processes. The binary is its own shim: checks
//! start it again with `__job`; `__noop` takes a turn that changes nothing, for the test that
//! counts git processes.

mod agents;
mod broken;
mod checks;
mod in_place;
mod landing;
mod places;
mod shared;
mod world;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test with its name.
type Case = (&'static str, fn() -> Result<(), Failed>);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, everloop_agents::job::SHIM_ARG, dir] => {
            let code = everloop_agents::job::run_shim(Path::new(dir));
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        [_, "__noop", repo, root] => {
            let done = world::wait(places::take_turns_that_change_nothing(Path::new(repo), Path::new(root)));
            return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        _ => {}
    }
    let cases =
        [places::CASES, agents::CASES, broken::CASES, landing::CASES, in_place::CASES, checks::CASES, shared::CASES]
            .concat();
    let trials = cases.into_iter().map(|(name, run)| Trial::test(name, run)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
