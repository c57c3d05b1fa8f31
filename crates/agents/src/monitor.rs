//! Probes what a loop watches. One probe is bounded in time and in what it reads, changes nothing,
//! and reports what differs from the known cursor. What is read is data, never an instruction.
//!
//! - `file`: files that match a glob; `stream`: lines added to a file; `command`: a command's
//!   output; HTTP is `api::get`
//!
//! A mailbox is in the ledger, so the supervisor probes it itself.

mod command;
mod file;
mod stream;

use std::path::Path;

use everloop_core::isolation::Isolation;
use everloop_core::time::Time;
use everloop_core::watch::{MonitorCursor, MonitorSpec, Target, WatchedContent};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::api;
use crate::redact::without_secrets;

/// Characters kept of a response or of a command's output.
const KEPT_CHARS: usize = 4_000;

/// One probe of a monitor.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    pub monitor: &'a MonitorSpec,
    /// The folder of the loop.
    pub dir: &'a Path,
    /// What its command may reach.
    pub isolation: &'a Isolation,
}

/// Probes once; `seen` is the state of the last probe. What is found is kept, so secrets are removed
/// from it.
pub async fn look(of: Probe<'_>, seen: Option<&MonitorCursor>) -> Result<WatchedContent, String> {
    let found = examine(of, seen).await.map_err(|why| without_secrets(&why))?;
    let WatchedContent { cursor, summary, text } = found;
    Ok(WatchedContent { cursor, summary: without_secrets(&summary), text: without_secrets(&text) })
}

/// What it finds, as it is.
async fn examine(of: Probe<'_>, seen: Option<&MonitorCursor>) -> Result<WatchedContent, String> {
    let monitor = of.monitor;
    let (dir, seen, within) = (of.dir.to_owned(), seen.cloned(), monitor.timeout);
    let probe = of;
    let of = monitor.target.of().to_owned();
    let slow = || format!("it took longer than {}", everloop_core::time::human(within));
    match &monitor.target {
        Target::Command(run) => command::look(run, &probe).await,
        Target::File(_) => {
            let walk = spawn_blocking(move || file::look(&of, &dir, seen.as_ref(), within));
            walk.await.map_err(|e| e.to_string())?
        }
        // A file on an unreachable server, or a pipe, may block its reader: the probe does not wait
        // for that thread.
        Target::Stream(_) => {
            let read = spawn_blocking(move || stream::look(&dir.join(of), seen.as_ref()));
            timeout(within, read).await.map_err(|_| slow())?.map_err(|e| e.to_string())?
        }
        Target::Http(_) => {
            let got = spawn_blocking(move || api::get(&of, within)).await.map_err(|e| e.to_string())??;
            let mark = if got.etag.is_empty() { hash(&got.body) } else { hash(got.etag.as_bytes()) };
            let body = head(&String::from_utf8_lossy(&got.body));
            let summary = format!("status {}", got.status);
            let text = format!("{of} answers with status {}:\n{body}", got.status, of = monitor.target.of());
            Ok(WatchedContent { cursor: format!("{}:{mark}", got.status), summary, text })
        }
        Target::Mailbox(_) => Err("a mailbox is probed by the supervisor".to_owned()),
    }
}

/// A short hash of the bytes.
fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The beginning of a text.
fn head(text: &str) -> String {
    let mut kept: String = text.chars().take(KEPT_CHARS).collect();
    if kept.len() < text.len() {
        kept.push_str("\n… (there is more)");
    }
    kept
}

/// The end of a text.
fn tail(text: &str) -> String {
    let count = text.chars().count();
    if count <= KEPT_CHARS {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - KEPT_CHARS).collect();
    format!("(there is more) …{kept}")
}

/// When a file was last written.
fn written(meta: &std::fs::Metadata) -> Option<Time> {
    let since = meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Time(i64::try_from(since.as_millis()).ok()?))
}
