//! Reads back what `super::capture` kept, while the job runs or later.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::capture::{Stream, segment_bytes};
use super::error::JobError;
use super::files;
use super::job_log::JobLog;
use super::text::plain;

/// The files of one stream.
#[derive(Debug, Default)]
pub(super) struct KeptOutput {
    head: Option<(PathBuf, u64)>,
    segments: Vec<(PathBuf, u64)>,
    /// Bytes that were dropped between head and segments.
    dropped: u64,
}

impl KeptOutput {
    /// Lists the files.
    pub(super) fn find(dir: &Path, stream: Stream) -> Result<Self, JobError> {
        let head_path = stream.head_path(dir);
        let head = files::size(&head_path).map(|len| (head_path, len));
        let entries = fs::read_dir(dir).map_err(JobError::io("read", dir))?;
        let mut numbers: Vec<u64> =
            entries.flatten().filter_map(|e| stream.segment_number(e.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        let dropped = match numbers.first() {
            // Every segment before the first remaining one was full when it was removed.
            Some(first) if *first > 0 => JobLog::read(dir)?.spec.map_or(0, |s| segment_bytes(s.caps)) * first,
            _ => 0,
        };
        let segments = numbers
            .into_iter()
            .map(|n| stream.segment_path(dir, n))
            .filter_map(|path| files::size(&path).map(|len| (path, len)))
            .collect();
        Ok(Self { head, segments, dropped })
    }

    /// The length of the stream, kept or not.
    pub(super) fn total(&self) -> u64 {
        self.head.iter().chain(&self.segments).map(|(_, len)| len).sum::<u64>() + self.dropped
    }

    /// The files, each with its offset in the stream and its length.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        let mut at = 0;
        let head = self.head.iter().map(|part| (part, 0));
        let tail = self.segments.iter().enumerate().map(|(n, part)| (part, if n == 0 { self.dropped } else { 0 }));
        head.chain(tail).map(move |((path, len), dropped)| {
            let from = at + dropped;
            at = from + len;
            (path.as_path(), from, *len)
        })
    }

    fn first(&self, max_bytes: u64) -> Vec<u8> {
        match &self.head {
            Some((path, len)) => read_part(path, 0, max_bytes.min(*len)),
            None => Vec::new(),
        }
    }

    /// The end, without reaching across a gap into the head.
    fn last(&self, max_bytes: u64) -> Vec<u8> {
        let whole = if self.dropped == 0 { self.head.as_slice() } else { &[] };
        let mut parts = Vec::new();
        let mut left = max_bytes;
        for (path, len) in whole.iter().chain(&self.segments).rev() {
            let take = left.min(*len);
            parts.push(read_part(path, len - take, take));
            left -= take;
            if left == 0 {
                break;
            }
        }
        parts.reverse();
        parts.concat()
    }
}

/// The end of a stream as text that is safe to show.
pub fn output(dir: &Path, stream: Stream, max_bytes: u64) -> Result<String, JobError> {
    Ok(plain(&KeptOutput::find(dir, stream)?.last(max_bytes)))
}

/// The beginning and the end of a stream, half of `max_bytes` each, with a line in between that
/// gives the number of missing bytes.
pub fn both_ends(dir: &Path, stream: Stream, max_bytes: u64) -> Result<String, JobError> {
    let kept = KeptOutput::find(dir, stream)?;
    if kept.dropped == 0 && kept.total() <= max_bytes {
        return Ok(plain(&kept.last(max_bytes)));
    }
    let (first, last) = (kept.first(max_bytes / 2), kept.last(max_bytes - max_bytes / 2));
    let missing = kept.total().saturating_sub((first.len() + last.len()) as u64);
    Ok(format!("{}\n… {missing} bytes not kept …\n{}", plain(&first), plain(&last)))
}

/// A segment that was removed meanwhile reads as empty.
fn read_part(path: &Path, from: u64, len: u64) -> Vec<u8> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = files::read(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(len).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::capture::StreamCapture;
    use super::super::spec::{OutputCaps, Spec, prepare};
    use super::*;

    fn kept(text: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let caps = OutputCaps { head_bytes: 4, tail_bytes: 8 };
        prepare(dir.path(), &Spec { caps, ..Spec::new(vec!["true".to_owned()], "/") }).unwrap();
        StreamCapture::new(dir.path(), Stream::Out, caps).push(text.as_bytes(), &mut 4);
        dir
    }

    #[test]
    fn ends_are_read_and_gaps_are_told() {
        let small = kept("abcdefg");
        assert_eq!(output(small.path(), Stream::Out, 5).unwrap(), "cdefg");
        assert_eq!(both_ends(small.path(), Stream::Out, 7).unwrap(), "abcdefg");
        assert_eq!(both_ends(small.path(), Stream::Out, 4).unwrap(), "ab\n… 3 bytes not kept …\nfg");
        let big = kept("abcdefghijklmnopqrstuvwxyz");
        assert_eq!(KeptOutput::find(big.path(), Stream::Out).unwrap().total(), 26);
        assert_eq!(output(big.path(), Stream::Out, 100).unwrap(), "uvwxyz");
        assert_eq!(both_ends(big.path(), Stream::Out, 100).unwrap(), "abcd\n… 16 bytes not kept …\nuvwxyz");
        assert_eq!(output(big.path(), Stream::Err, 100).unwrap(), "");
    }
}
