//! As much HTTP/1.1 as the agent programs need: one request per connection, responses whole or in
//! chunks. Knows nothing of models and scripts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// No supported client sends longer headers.
const MAX_HEAD_BYTES: u64 = 256 * 1024;
/// A whole session travels with each request; a test that reaches this is broken.
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

/// A received request.
#[derive(Debug)]
pub struct HttpRequest {
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// The first header with this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Reads one; `None` when the client disconnected without sending anything.
    pub fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let mut head = (&mut reader).take(MAX_HEAD_BYTES);
        let Some(first) = line(&mut head)? else { return Ok(None) };
        let mut words = first.split(' ');
        let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or("/").to_owned());
        let mut headers = Vec::new();
        loop {
            let text = line(&mut head)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { method, target, headers, body: Vec::new() };
        if request.header("expect").is_some_and(|v| v.eq_ignore_ascii_case("100-continue")) {
            (&mut &*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = request.read_body(&mut reader)?;
        Ok(Some(request))
    }

    fn read_body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            loop {
                let size = line(&mut (&mut *reader).take(MAX_HEAD_BYTES))?.ok_or(io::ErrorKind::UnexpectedEof)?;
                let digits = size.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
                read_exactly(reader, size, &mut body)?;
                // After a chunk, and after the last one when there are no trailers, comes an empty
                // line.
                line(&mut (&mut *reader).take(MAX_HEAD_BYTES))?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let size = self.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
        read_exactly(reader, size, &mut body)?;
        Ok(body)
    }
}

fn read_exactly(reader: &mut impl BufRead, size: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if body.len() as u64 + size > MAX_BODY_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the body is too long"));
    }
    let got = reader.take(size).read_to_end(body)?;
    if (got as u64) < size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// A line without its end; `None` at the end of the input.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    while bytes.last().is_some_and(|b| matches!(b, b'\r' | b'\n')) {
        bytes.pop();
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The first part of a response: status and headers.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseHead {
    pub status: u16,
    /// Besides those that frame the body.
    pub headers: Vec<(String, String)>,
}

impl ResponseHead {
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new() }
    }

    /// Adds one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Each connection ends after its response: so a reset never meets a client that silently
    /// retries because it had kept the connection.
    fn bytes(&self, framing: &str) -> Vec<u8> {
        let mut text =
            format!("HTTP/1.1 {} {}\r\n{framing}\r\nconnection: close\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Sends a response with a whole body.
pub fn answer(mut stream: &TcpStream, head: &ResponseHead, body: &[u8]) -> io::Result<()> {
    let mut bytes = head.bytes(&format!("content-length: {}", body.len()));
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Begins a response in chunks.
pub fn begin(mut stream: &TcpStream, head: &ResponseHead) -> io::Result<()> {
    stream.write_all(&head.bytes("transfer-encoding: chunked"))
}

/// Continues a response in chunks.
pub fn chunk(mut stream: &TcpStream, piece: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
}

/// Ends a response in chunks; without it the client sees that the connection was cut.
pub fn end(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Overloaded",
    }
}
