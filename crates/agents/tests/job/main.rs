//! Jobs with real processes. This binary is also the shim and the supervisor that the tests start,
//! hence its own `main` instead of the usual harness.

#![expect(clippy::unwrap_used, reason = "tests; clippy does not see that without the usual harness")]

mod ends;
mod leftovers;
mod output;
mod recovery;
mod room;
mod stopping;

use std::path::Path;
use std::process::ExitCode;

use everloop_agents::job;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().skip(1).map(String::as_str).collect::<Vec<_>>().as_slice() {
        [job::SHIM_ARG, dir] => ExitCode::from(job::run_shim(Path::new(dir)) as u8),
        ["__supervisor", dir] => recovery::supervisor(Path::new(dir)),
        ["__reap", name, value] => recovery::reap(name, value),
        _ => {
            let trials = [ends::all(), leftovers::all(), output::all(), recovery::all(), stopping::all()];
            let trials: Vec<Trial> = trials.into_iter().flatten().collect();
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

/// The tests of a module, named after their functions.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        /// All tests of this file.
        pub fn all() -> Vec<libtest_mimic::Trial> {
            let module = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$(libtest_mimic::Trial::test(format!("{module}::{}", stringify!($name)), || {
                $name();
                Ok(())
            })),*]
        }
    };
}
pub(crate) use trials;
