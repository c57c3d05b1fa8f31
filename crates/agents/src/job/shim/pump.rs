//! Processes a command's output: counts, redacts, scans for a marker, keeps it within its caps.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use super::super::HIDE_PREFIX;
use super::super::capture::{Stream, StreamCapture};
use super::super::marker::Scanner;
use super::super::spec::Spec;
use super::super::text::plain;
use crate::redact::{Redactor, Secret};

/// Size of one read; fits into the processor's cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Reads of one stream before the other one and the clock are served.
const READS_IN_A_ROW: usize = 4;
/// Bytes of the end that go into the record.
const LAST_BYTES: usize = 2048;

/// Both streams of a command.
#[derive(Debug)]
pub(super) struct Pump {
    out: Line,
    err: Line,
    sums: Sums,
    buffer: Vec<u8>,
}

/// One stream of the program: its pipe, its redaction, its scanner and its capture.
#[derive(Debug)]
struct Line {
    /// `None` once it ended.
    fd: Option<OwnedFd>,
    redactor: Redactor,
    scanner: Option<Scanner>,
    capture: StreamCapture,
}

/// Totals of both streams.
#[derive(Debug)]
struct Sums {
    bytes: u64,
    head_left: u64,
    backoff: Option<Duration>,
    last: Vec<u8>,
}

impl Pump {
    /// Secrets are the variables that the command sees too, and those that it must not.
    pub(super) fn new(dir: &Path, spec: &Spec, vars: &[(OsString, OsString)], (out, err): (OwnedFd, OwnedFd)) -> Self {
        let seen = spec.secrets.iter().filter_map(|name| secret(name, vars));
        let secrets: Vec<Secret> = seen.chain(vars.iter().cloned().filter_map(hidden)).collect();
        let line = |fd, stream| Line {
            fd: Some(fd),
            redactor: Redactor::new(&secrets),
            scanner: spec.backoff_word.as_deref().map(Scanner::new),
            capture: StreamCapture::new(dir, stream, spec.caps),
        };
        Self {
            out: line(out, Stream::Out),
            err: line(err, Stream::Err),
            sums: Sums { bytes: 0, head_left: spec.caps.head_bytes, backoff: None, last: Vec::new() },
            buffer: vec![0; CHUNK_BYTES],
        }
    }

    /// Streams that have not ended.
    pub(super) fn open(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.out, &self.err].into_iter().filter_map(|l| l.fd.as_ref()).map(AsFd::as_fd)
    }

    /// Reads what is available, for a bounded number of reads.
    pub(super) fn read(&mut self) {
        for line in [&mut self.out, &mut self.err] {
            line.read(&mut self.buffer, &mut self.sums);
        }
    }

    /// Flushes what was held back and closes the pipes.
    pub(super) fn finish(&mut self) {
        for line in [&mut self.out, &mut self.err] {
            line.finish(&mut self.sums);
        }
    }

    /// Bytes received, kept or not.
    pub(super) fn bytes(&self) -> u64 {
        self.sums.bytes
    }

    /// The delay of the last marker.
    pub(super) fn backoff(&self) -> Option<Duration> {
        self.sums.backoff
    }

    /// The end of both streams together.
    pub(super) fn last_text(&self) -> String {
        plain(&self.sums.last)
    }

    /// Why output is missing, if it is.
    pub(super) fn capture_error(&self) -> Option<String> {
        [&self.out, &self.err].into_iter().find_map(|l| l.capture.failed.as_ref()).map(ToString::to_string)
    }

    /// Frees the disk space of the kept ends.
    pub(super) fn drop_tails(&mut self) {
        self.out.capture.drop_tail();
        self.err.capture.drop_tail();
    }
}

impl Line {
    fn read(&mut self, buffer: &mut [u8], sums: &mut Sums) {
        for _ in 0..READS_IN_A_ROW {
            let Some(fd) = &self.fd else { return };
            match nix::unistd::read(fd, buffer) {
                Ok(0) => return self.finish(sums),
                Ok(n) => self.push(&buffer[..n], sums),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(e) => {
                    self.capture.failed.get_or_insert(io::Error::from(e));
                    return self.finish(sums);
                }
            }
        }
    }

    fn push(&mut self, bytes: &[u8], sums: &mut Sums) {
        sums.bytes += bytes.len() as u64;
        let Self { redactor, scanner, capture, .. } = self;
        redactor.push(bytes, &mut |clean| take(clean, scanner, capture, sums));
    }

    fn finish(&mut self, sums: &mut Sums) {
        self.fd = None;
        let Self { redactor, scanner, capture, .. } = self;
        redactor.finish(&mut |clean| take(clean, scanner, capture, sums));
        if let Some(delay) = scanner.as_mut().and_then(Scanner::finish) {
            sums.backoff = Some(delay);
        }
    }
}

fn take(clean: &[u8], scanner: &mut Option<Scanner>, capture: &mut StreamCapture, sums: &mut Sums) {
    if let Some(delay) = scanner.as_mut().and_then(|s| s.push(clean)) {
        sums.backoff = Some(delay);
    }
    let end = &clean[clean.len().saturating_sub(LAST_BYTES)..];
    sums.last.extend_from_slice(end);
    sums.last.drain(..sums.last.len().saturating_sub(LAST_BYTES));
    capture.push(clean, &mut sums.head_left);
}

fn hidden((name, value): (OsString, OsString)) -> Option<Secret> {
    let name = name.to_str()?.strip_prefix(HIDE_PREFIX)?.to_owned();
    Some(Secret { name, value: value.into_vec() })
}

fn secret(name: &str, vars: &[(OsString, OsString)]) -> Option<Secret> {
    let (_, value) = vars.iter().find(|(known, _)| known == name)?;
    Some(Secret { name: name.to_owned(), value: value.clone().into_vec() })
}
