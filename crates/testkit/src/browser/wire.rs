//! As much of WebDriver's protocol as [`super::Browser`] needs: a request per connection, JSON both
//! ways, and the number of the session in every path.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::Value;

use crate::wait::DEADLINE;

/// The driver of a browser.
#[derive(Debug, Default)]
pub struct Wire {
    port: u16,
    session: Option<String>,
}

impl Wire {
    pub fn to(port: u16) -> Self {
        Self { port, session: None }
    }

    /// Starts the browser.
    pub fn begin_session(&mut self, wanted: &Value) {
        let answer =
            self.request("POST", "/session", &wanted.to_string()).unwrap_or_else(|e| panic!("no session: {e}"));
        let id = answer["sessionId"].as_str().unwrap_or_else(|| panic!("a session without a number: {answer}"));
        self.session = Some(id.to_owned());
    }

    /// Ends the browser.
    pub fn end_session(&mut self) -> io::Result<()> {
        match self.session.take() {
            Some(id) => self.request("DELETE", &format!("/session/{id}"), "").map(drop),
            None => Ok(()),
        }
    }

    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", path, &body.to_string())
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let id = self.session.as_deref().expect("a browser begins with its session");
        let answer = self.request(method, &format!("/session/{id}{path}"), body);
        answer.unwrap_or_else(|e| panic!("{method} {path} {}: {e}", body.chars().take(300).collect::<String>()))
    }

    /// The `value` of the answer; an answer that is an error is one here.
    fn request(&self, method: &str, path: &str, body: &str) -> io::Result<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let port = self.port;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let answer = read_answer(&mut stream)?;
        let value = serde_json::from_str::<Value>(&answer)?["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(io::Error::other(format!("{error}: {}", value["message"].as_str().unwrap_or_default()))),
            None => Ok(value),
        }
    }
}

/// The body of an answer with `Content-Length`, which the driver always sends.
fn read_answer(stream: &mut impl Read) -> io::Result<String> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let length: usize = length.ok_or_else(|| broken("an answer without its length"))?;
            let mut body = bytes.split_off(at + 4);
            let left = u64::try_from(length.saturating_sub(body.len())).expect("a length fits");
            body.truncate(length);
            stream.take(left).read_to_end(&mut body)?;
            return String::from_utf8(body).map_err(|_| broken("an answer that is no text"));
        }
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
    }
}

/// Bytes that the driver sends as base64.
pub fn bytes(value: &Value) -> Vec<u8> {
    let (mut out, mut group, mut bits) = (Vec::new(), 0u32, 0);
    for letter in value.as_str().expect("base64 is a text").bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        (group, bits) = ((group << 6) | u32::from(six), bits + 6);
        if bits >= 8 {
            bits -= 8;
            out.push((group >> bits) as u8);
            group &= (1 << bits) - 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_length_and_base64_to_its_end() {
        let mut answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more";
        assert_eq!(read_answer(&mut answer).expect("it is whole"), "{}");
        let mut cut: &[u8] = b"HTTP/1.1 200 OK\r\n";
        assert!(read_answer(&mut cut).is_err());
        for (text, wanted) in [("", ""), ("YQ==", "a"), ("YWI=", "ab"), ("YWJj", "abc"), ("YWJjZA==", "abcd")] {
            assert_eq!(bytes(&Value::from(text)), wanted.as_bytes());
        }
    }
}
