//! Follows a stream of a job from its beginning, while it is written, with gaps for what is not
//! kept.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::capture::Stream;
use super::error::JobError;
use super::files;
use super::output::KeptOutput;

/// Bytes per read; bounds the memory, not the stream.
const CHUNK: usize = 64 << 10;

/// A position in a stream.
#[derive(Clone, Debug)]
pub struct Tail {
    stream: Stream,
    at: u64,
}

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailChunk<'a> {
    Bytes(&'a [u8]),
    /// Bytes that were not kept.
    Gap,
}

impl Tail {
    pub fn new(stream: Stream) -> Self {
        Self { stream, at: 0 }
    }

    /// Whether nothing was read yet.
    pub fn is_at_start(&self) -> bool {
        self.at == 0
    }

    /// Passes on everything that was written since the last call.
    pub fn read(&mut self, dir: &Path, take: &mut dyn FnMut(TailChunk<'_>)) -> Result<(), JobError> {
        let kept = KeptOutput::find(dir, self.stream)?;
        for (path, from, len) in kept.parts() {
            if self.at >= from + len {
                continue;
            }
            if self.at < from {
                self.at = from;
                take(TailChunk::Gap);
            }
            let read = pass_on(path, self.at - from, from + len - self.at, take);
            self.at += read.map_err(JobError::io("read", path))?;
        }
        Ok(())
    }
}

/// Reads a part of a file; a removed one reads as empty and is a gap the next time.
fn pass_on(path: &Path, from: u64, len: u64, take: &mut dyn FnMut(TailChunk<'_>)) -> io::Result<u64> {
    let mut file = match files::read(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound || files::is_strange(&e) => return Ok(0),
        Err(e) => return Err(e),
    };
    file.seek(SeekFrom::Start(from))?;
    let mut file = file.take(len);
    let mut buffer = vec![0; CHUNK];
    let mut all = 0;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(all);
        }
        take(TailChunk::Bytes(&buffer[..n]));
        all += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::StreamCapture;
    use super::super::spec::{OutputCaps, Spec, prepare};
    use super::*;

    #[test]
    fn a_stream_is_followed_over_its_gap() {
        let dir = tempfile::tempdir().unwrap();
        let caps = OutputCaps { head_bytes: 4, tail_bytes: 8 };
        prepare(dir.path(), &Spec { caps, ..Spec::new(vec!["true".to_owned()], "/") }).unwrap();
        let (mut capture, mut left) = (StreamCapture::new(dir.path(), Stream::Out, caps), 4);
        let mut tail = Tail::new(Stream::Out);
        let mut seen = String::new();
        for text in ["ab", "cdef", "", "ghijklmnopqrstuvwxyz"] {
            capture.push(text.as_bytes(), &mut left);
            tail.read(dir.path(), &mut |piece| match piece {
                TailChunk::Bytes(bytes) => seen.push_str(std::str::from_utf8(bytes).unwrap()),
                TailChunk::Gap => seen.push('…'),
            })
            .unwrap();
        }
        assert_eq!(seen, "abcdef…uvwxyz");
    }
}
