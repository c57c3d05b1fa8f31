//! Running futures and jobs from code that is not async.

use everloop_agents::job::ShimProgram;

use crate::error::Failure;

/// This binary, with which jobs are run.
pub fn own_shim() -> Result<ShimProgram, Failure> {
    ShimProgram::current().map_err(|e| Failure::failed("cannot find this program's own file").because(&e))
}

/// Runs a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| Failure::failed("cannot start the runtime").because(&e))?.block_on(future))
}
