//! The size of the binary.

use crate::report::{BenchRow, heading, remark};
use crate::{Options, Result};

pub fn run(options: &Options) -> Result<()> {
    heading("size");
    let bytes = std::fs::metadata(&options.everloop)?.len();
    let value = format!("{:.2} MB", bytes as f64 / 1e6);
    BenchRow::new("binary", value).goal("<= 12 MB", bytes <= 12_000_000).print();
    remark("peers: sloop 10 MB, ralph-orchestrator 35, ralph-tui 361, ralphy 474");
    Ok(())
}
