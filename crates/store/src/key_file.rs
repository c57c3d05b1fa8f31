//! Files with keys: drawn once, for their owner alone, whole or not at all.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A secret of 256 bits.
pub(crate) type Secret = [u8; 32];

/// Keeps the drafts of threads of one process apart.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Draws a secret.
pub(crate) fn draw() -> io::Result<Secret> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(secret)
}

/// Writes the file unless it is there. It appears whole, and of two processes one writes it.
pub(crate) fn create_once(path: &Path, text: &str) -> io::Result<()> {
    let number = DRAWN.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{name}.{}-{number}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let placed = written.and_then(|()| place(&aside, path));
    match std::fs::remove_file(&aside) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => placed,
    }
}

/// Moves a whole file to a place that no other process has taken; a file that is there stays.
fn place(aside: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(aside, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A file system without links. Of two first processes at this very moment the later one's
        // key stays.
        Err(_) if !path.exists() => std::fs::rename(aside, path),
        other => other,
    }
}

/// The bytes of so many hexadecimal digits; `None` when they are others.
pub(crate) fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let digits = |c: &u8| c.is_ascii_hexdigit();
    if hex.len() != 2 * N || !hex.as_bytes().iter().all(digits) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..2 * N).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
