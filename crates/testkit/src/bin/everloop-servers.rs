//! The servers that all tests of a run share: starts them, prints a line `NAME=VALUE` for each, and
//! ends them when its standard input is closed. `./test` holds that pipe, so the servers end with
//! it however it ends.

use std::io::{Read, Write};

use everloop_testkit::postgres::{PostgresServer, SHARED, ServerSetup};

fn main() -> std::io::Result<()> {
    let server = PostgresServer::start(ServerSetup::default());
    let mut out = std::io::stdout();
    writeln!(out, "{SHARED}={}", server.port())?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(server);
    Ok(())
}
