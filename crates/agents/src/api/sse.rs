//! Parses server-sent events: bytes into lines, lines into events. Every size is bounded.

use std::io::{BufRead, BufReader, Read};

use everloop_core::stream::LimitClass;

use super::http;
use super::reply::ApiRefusal;

/// The last event of an answer repeats all of it.
const LONGEST_LINE: usize = 8 << 20;
/// All events of an answer together; the longest answer of any model is a fraction of it.
const LONGEST_STREAM: u64 = 32 << 20;

/// Iterates over the events of a stream.
pub(super) struct Events<R> {
    lines: BufReader<R>,
    left: u64,
}

impl<R: Read> Events<R> {
    pub(super) fn new(source: R) -> Self {
        Self { lines: BufReader::with_capacity(16 << 10, source), left: LONGEST_STREAM }
    }

    /// The data of the next event; `None` at the end. An event that is cut off by the end is
    /// dropped.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ApiRefusal> {
        let mut data: Option<Vec<u8>> = None;
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            match line.as_slice() {
                [] => {
                    if data.is_some() {
                        return Ok(data);
                    }
                }
                // Both vendors repeat an event's name in its data; comments only keep the
                // connection alive.
                line => {
                    let Some(rest) = line.strip_prefix(b"data:") else { continue };
                    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
                    let data = data.get_or_insert_default();
                    if !data.is_empty() {
                        data.push(b'\n');
                    }
                    if data.len() + rest.len() > LONGEST_LINE {
                        return Err(too_big());
                    }
                    data.extend_from_slice(rest);
                }
            }
        }
    }

    /// A whole line without its newline.
    fn line(&mut self) -> Result<Option<Vec<u8>>, ApiRefusal> {
        let mut line = Vec::new();
        loop {
            let piece = self.lines.fill_buf().map_err(http::broken)?;
            if piece.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', piece);
            let taken = end.unwrap_or(piece.len());
            if line.len() + taken > LONGEST_LINE {
                return Err(too_big());
            }
            line.extend_from_slice(&piece[..taken]);
            let used = taken + usize::from(end.is_some());
            self.lines.consume(used);
            self.left = self.left.checked_sub(used as u64).ok_or_else(too_big)?;
            if end.is_some() {
                line.pop_if(|last| *last == b'\r');
                return Ok(Some(line));
            }
        }
    }
}

fn too_big() -> ApiRefusal {
    ApiRefusal::seen("api.too-big", LimitClass::Overload, "the answer exceeds the size limit; the rest was not read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8]) -> Vec<String> {
        let mut events = Events::new(bytes);
        let mut all = Vec::new();
        while let Some(data) = events.next().unwrap() {
            all.push(String::from_utf8(data).unwrap());
        }
        all
    }

    #[test]
    fn events_are_cut_where_they_end() {
        assert_eq!(
            events(b"event: a\r\ndata: 1\r\n\r\n: ping\n\n\ndata:2\ndata: 3\nid: 9\n\ndata: cut"),
            ["1", "2\n3"]
        );
        assert_eq!(events(b""), [""; 0]);
        assert_eq!(events(b"\xff\xfe\n\n<html>\n\n"), [""; 0]);
    }

    #[test]
    fn nothing_is_read_without_end() {
        let line = std::io::repeat(b'x').take(1 << 30);
        assert_eq!(Events::new(line).next().unwrap_err().limit.unwrap().rule, "api.too-big");
        let rows = b": 123456789\n".repeat(3 << 20);
        assert_eq!(Events::new(rows.as_slice()).next().unwrap_err().limit.unwrap().rule, "api.too-big");
    }
}
