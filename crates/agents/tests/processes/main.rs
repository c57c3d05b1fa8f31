//! Processes of this crate's own: jobs, workspaces with their checks, the API agent. This binary is
//! also the shim, the supervisor and the agent that the tests start, hence its own `main` instead
//! of the usual harness.

#![expect(clippy::unwrap_used, reason = "tests; clippy does not see that without the usual harness")]

mod api;
mod job;
mod workspace;

use std::path::Path;
use std::process::ExitCode;

use everloop_agents::api::API_ARG;
use everloop_agents::job::{SHIM_ARG, run_shim};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [SHIM_ARG, dir] => ExitCode::from(u8::try_from(run_shim(Path::new(dir))).unwrap_or(1)),
        [API_ARG, options, prompt] => api::world::agent(options, prompt),
        ["__supervisor", ref dirs @ ..] => job::recovery::supervisor(dirs),
        ["__reap", name, value] => job::recovery::reap(name, value),
        ["__inside", root, planted] => job::verdict::inside(Path::new(root), planted),
        ["__turns", repo, root] => workspace::take_counted_turns(Path::new(repo), Path::new(root)),
        _ => {
            let trials: Vec<Trial> = [api::all(), job::all(), workspace::all()].into_iter().flatten().collect();
            libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
        }
    }
}

/// The tests of a module, named after its functions.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        /// All tests of this file.
        pub fn all() -> Vec<libtest_mimic::Trial> {
            let module = module_path!().split_once("::").map_or("", |(_, module)| module);
            vec![$(libtest_mimic::Trial::test(format!("{module}::{}", stringify!($name)), || {
                $name();
                Ok(())
            })),*]
        }
    };
}
pub(crate) use trials;
