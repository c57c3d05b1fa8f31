//! Keeps the beginning and the end of a stream on disk, in constant memory. Reading them back is
//! the business of `super::output`.
//!
//! The beginning is `<stream>.head`. The end is a row of segments `<stream>.tail.<n>` of half the
//! tail's size each; when one is full the next begins and the one before the last is removed. The
//! numbers give the order and how much was dropped, so there is no index that could be lost.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::files;
use super::spec::OutputCaps;

/// One of a command's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Stream {
    /// The prefix of its files.
    fn name(self) -> &'static str {
        match self {
            Stream::Out => "out",
            Stream::Err => "err",
        }
    }

    /// Path of its beginning.
    pub(super) fn head_path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.head", self.name()))
    }

    /// Path of the `n`-th segment of its end.
    pub(super) fn segment_path(self, dir: &Path, n: u64) -> PathBuf {
        dir.join(format!("{}.tail.{n}", self.name()))
    }

    /// The number of the segment in a file name, if it belongs to this stream.
    pub(super) fn segment_number(self, file_name: &str) -> Option<u64> {
        file_name.strip_prefix(self.name())?.strip_prefix(".tail.")?.parse().ok()
    }
}

/// The files of one stream.
#[derive(Debug)]
pub(super) struct StreamCapture {
    dir: PathBuf,
    stream: Stream,
    segment_bytes: u64,
    head: Option<File>,
    /// The segment being written and its size.
    segment: Option<(File, u64)>,
    next_segment: u64,
    /// After a failed write nothing more is kept; the command goes on.
    pub(super) failed: Option<io::Error>,
}

/// The size of a segment of the tail.
pub(super) fn segment_bytes(caps: OutputCaps) -> u64 {
    (caps.tail_bytes / 2).max(1)
}

impl StreamCapture {
    /// Creates no file before there is something to keep.
    pub(super) fn new(dir: &Path, stream: Stream, caps: OutputCaps) -> Self {
        let segment_bytes = segment_bytes(caps);
        Self { dir: dir.to_owned(), stream, segment_bytes, head: None, segment: None, next_segment: 0, failed: None }
    }

    /// Keeps what fits. `head_left` is what the head may still take, for both streams.
    pub(super) fn push(&mut self, bytes: &[u8], head_left: &mut u64) {
        if self.failed.is_none()
            && let Err(e) = self.write(bytes, head_left)
        {
            self.failed = Some(e);
        }
    }

    fn write(&mut self, mut bytes: &[u8], head_left: &mut u64) -> io::Result<()> {
        // Once the tail has begun the head is closed, or the two would not be in order.
        if *head_left > 0 && self.next_segment == 0 {
            let fits = usize::try_from(*head_left).unwrap_or(usize::MAX).min(bytes.len());
            if self.head.is_none() {
                self.head = Some(files::create_private(&self.stream.head_path(&self.dir))?);
            }
            if let Some(head) = &mut self.head {
                head.write_all(&bytes[..fits])?;
            }
            *head_left -= fits as u64;
            bytes = &bytes[fits..];
        }
        while !bytes.is_empty() {
            let (mut file, held) = match self.segment.take() {
                Some(open) if open.1 < self.segment_bytes => open,
                _ => (self.begin_segment()?, 0),
            };
            let room = usize::try_from(self.segment_bytes - held).unwrap_or(usize::MAX);
            let part = &bytes[..bytes.len().min(room)];
            file.write_all(part)?;
            self.segment = Some((file, held + part.len() as u64));
            bytes = &bytes[part.len()..];
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<File> {
        let n = self.next_segment;
        if let Some(oldest) = n.checked_sub(2) {
            fs::remove_file(self.stream.segment_path(&self.dir, oldest))?;
        }
        self.next_segment = n + 1;
        files::create_private(&self.stream.segment_path(&self.dir, n))
    }

    /// Removes the tail: the last resort when there is no space for the exit record.
    pub(super) fn drop_tail(&mut self) {
        self.segment = None;
        for n in self.next_segment.saturating_sub(2)..self.next_segment {
            // Best effort: what cannot be removed frees no space, which the caller detects.
            fs::remove_file(self.stream.segment_path(&self.dir, n)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_in_segments() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = StreamCapture::new(dir.path(), Stream::Out, OutputCaps { head_bytes: 4, tail_bytes: 8 });
        let mut head_left = 4;
        for piece in ["ab", "cdef", "ghijklmnopqrstuvw", "x"] {
            capture.push(piece.as_bytes(), &mut head_left);
        }
        assert!(capture.failed.is_none());
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        assert_eq!(read(Stream::Out.head_path(dir.path())).as_deref(), Some("abcd"));
        let segments: Vec<_> = (0..6).map(|n| read(Stream::Out.segment_path(dir.path(), n))).collect();
        assert_eq!(segments, [None, None, None, Some("qrst".into()), Some("uvwx".into()), None]);
    }

    #[test]
    fn a_disk_that_refuses_does_not_stop_the_command() {
        let mut capture = StreamCapture::new(Path::new("/nonexistent"), Stream::Err, OutputCaps::CHECK);
        capture.push(b"x", &mut 10);
        capture.push(b"y", &mut 10);
        assert!(capture.failed.is_some());
    }
}
