//! The API agent as a process, against a scripted server on this machine. This binary is also that
//! process, hence its own `main` instead of the usual harness.

#![expect(clippy::unwrap_used, reason = "tests; clippy does not see that without the usual harness")]

mod limits;
mod server;
mod sessions;
mod streams;
mod tls;
mod tools;
mod world;

use std::process::ExitCode;

use everloop_agents::api::API_ARG;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, part, options, prompt] = args.as_slice()
        && part == API_ARG
    {
        return world::agent(options, prompt);
    }
    let trials = [limits::all(), sessions::all(), streams::all(), tls::all(), tools::all()];
    let trials: Vec<Trial> = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
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
