//! The tiny programs that this binary becomes when everloop or a shell starts it: an agent that
//! records its run time or that of another program, one that floods, one that prints records, and a step that syncs a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::{Result, measure};

/// Runs the program that `args` name; `None` when they name none.
pub fn play(args: &[String], began_ns: u64) -> Option<Result<()>> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["__stamp", file] => Some(stamp(Path::new(file), began_ns)),
        ["__timed", file, program, rest @ ..] => Some(timed(Path::new(file), program, rest)),
        ["__sync", file, times] => Some(sync(Path::new(file), times)),
        ["__flood", bytes] => Some(flood(bytes)),
        ["__talk", file, bytes] => Some(talk(Path::new(file), bytes, began_ns)),
        _ => None,
    }
}

/// Records when this process began and when it is about to end. One write: lines of two agents
/// never mix.
fn stamp(file: &Path, began_ns: u64) -> Result<()> {
    let mut out = OpenOptions::new().append(true).create(true).open(file)?;
    out.write_all(format!("{began_ns} {}\n", measure::monotonic()).as_bytes())?;
    Ok(())
}

/// Runs another program and records when it began and ended.
fn timed(file: &Path, program: &str, rest: &[&str]) -> Result<()> {
    let began_ns = measure::monotonic();
    let status = Command::new(program).args(rest).status()?;
    stamp(file, began_ns)?;
    if status.success() { Ok(()) } else { Err(format!("`{program}` ended with {status}").into()) }
}

/// Appends and syncs a page, `times` times: what a shell loop would have to do to be as durable.
fn sync(file: &Path, times: &str) -> Result<()> {
    let mut out = OpenOptions::new().append(true).create(true).open(file)?;
    for _ in 0..times.parse::<u32>()? {
        measure::synced_append(&mut out)?;
    }
    Ok(())
}

/// Prints this many bytes in everloop's native records, then the last record, and its time.
fn talk(file: &Path, bytes: &str, began_ns: u64) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    out.write_all(b"{\"said\":\"session\",\"id\":\"bench\",\"model\":null}\n")?;
    let line = format!("{{\"said\":\"text\",\"text\":\"{}\"}}\n", "x".repeat(400));
    for _ in 0..bytes.parse::<usize>()? / line.len() {
        out.write_all(line.as_bytes())?;
    }
    out.write_all(b"{\"said\":\"result\",\"ok\":true,\"text\":\"done\"}\n")?;
    out.flush()?;
    stamp(file, began_ns)
}

/// Writes this many bytes of 80-column lines to stdout.
fn flood(bytes: &str) -> Result<()> {
    let line = format!("{}\n", "x".repeat(79));
    let block = line.repeat(800);
    let mut out = std::io::stdout().lock();
    let mut left = bytes.parse::<usize>()?;
    while left > 0 {
        let n = left.min(block.len());
        out.write_all(&block.as_bytes()[..n])?;
        left -= n;
    }
    out.flush()?;
    Ok(())
}
