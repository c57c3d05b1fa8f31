//! The real agent programs against the fake model, without a network: the base of everloop's own
//! tests.

mod limits;
mod program;
mod server;
mod work;

use std::time::Duration;

use everloop_testkit::clis::{CliHome, CliProgram, ProgramRun};
use everloop_testkit::fake_model::FakeModel;

/// The slowest starts in ten seconds on a calm machine; what takes longer than this hangs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// One turn of `cli` while the model plays `script`.
fn turn(cli: CliProgram, script: &str) -> (FakeModel, CliHome, ProgramRun) {
    let model = FakeModel::start(script).expect("the script can be played");
    let leader_lease = CliHome::new(cli, &model.base_url()).expect("there is room for a seat");
    let run = leader_lease.run("make a file", WAIT_TIMEOUT).expect("it ends by itself");
    (model, leader_lease, run)
}
