//! Who may ask. A page in a browser of this machine can send requests here too: Host and Origin tell it from a program, on
//! every path. What is not for everybody on this machine needs the token of the state folder besides.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;

use everloop_core::ids::TurnId;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use sha2::{Digest, Sha256};

use super::answer::Answer;
use crate::state_folder::StateFolder;

/// 256 bits.
const SECRET_BYTES: usize = 32;

/// Whether a request was meant for us and comes from no foreign page.
pub fn from_here(headers: &HeaderMap, address: SocketAddr) -> Result<(), Answer> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // A name that a foreign page let point here (DNS rebinding) is not ours.
    if !text(HOST).is_some_and(|host| is_ours(host, address)) {
        return Err(Answer::error(421, "the Host header names another machine; ask for 127.0.0.1 and the port"));
    }
    let foreign = |origin: &str| !origin.strip_prefix("http://").is_some_and(|host| is_ours(host, address));
    if text(ORIGIN).is_some_and(foreign) {
        return Err(Answer::error(403, "another origin may not ask here"));
    }
    Ok(())
}

fn is_ours(host: &str, address: SocketAddr) -> bool {
    let port = address.port();
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| *host == format!("{name}:{port}"))
        || host == address.to_string()
}

/// The token of a state folder. Whoever can read the folder may ask everything.
pub struct Token(String);

impl Token {
    /// The one of this folder; drawn if there is none.
    pub fn of(home: &StateFolder) -> Result<Self, String> {
        let path = home.token();
        let said = |e: &std::io::Error| format!("`{}`: {e}", path.display());
        match std::fs::read_to_string(&path) {
            Ok(text) if is_token(text.trim()) => return Ok(Self(text.trim().to_owned())),
            // Torn or meddled with: nobody can have it by heart.
            Ok(_) => std::fs::remove_file(&path).map_err(|e| said(&e))?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(said(&e)),
        }
        let token = draw().map_err(|e| format!("no randomness: {e}"))?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| writeln!(file, "{token}")).map_err(|e| said(&e))?;
        Ok(Self(token))
    }

    /// Whether a request shows it.
    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        shown.and_then(|text| text.strip_prefix("Bearer ")).is_some_and(|text| same(text, &self.0))
    }

    /// What only the agent of this turn knows; the same again after a restart of the supervisor.
    pub fn sign(&self, turn: &TurnId) -> String {
        // Twice, so that what was signed cannot be made longer without the token.
        let inner = Sha256::digest(format!("{}{turn}", self.0));
        hex(&Sha256::digest(format!("{}{}", self.0, hex(&inner))))
    }
}

fn is_token(text: &str) -> bool {
    text.len() == 2 * SECRET_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn draw() -> std::io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Compares in a time that says nothing about where two secrets differ.
pub fn same(shown: &str, secret: &str) -> bool {
    let differ = shown.bytes().zip(secret.bytes()).fold(0, |differ, (a, b)| std::hint::black_box(differ | (a ^ b)));
    shown.len() == secret.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn asked(pairs: &[(HeaderName, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name, value.parse().expect("the test writes good headers"));
        }
        from_here(&headers, "127.0.0.1:9300".parse().expect("an address")).is_ok()
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for good in ["127.0.0.1:9300", "localhost:9300", "[::1]:9300"] {
            assert!(asked(&[(HOST, good)]), "{good}");
            assert!(asked(&[(HOST, good), (ORIGIN, &format!("http://{good}"))]), "{good}");
        }
        assert!(!asked(&[]));
        for bad in
            ["127.0.0.1", "localhost:80", "evil.example:9300", "localhost.evil.example:9300", "127.0.0.1:9300.x", ""]
        {
            assert!(!asked(&[(HOST, bad)]), "{bad}");
        }
        for bad in ["null", "https://127.0.0.1:9300", "http://evil.example", "http://127.0.0.1:9301", "127.0.0.1:9300"]
        {
            assert!(!asked(&[(HOST, "127.0.0.1:9300"), (ORIGIN, bad)]), "{bad}");
        }
    }

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(same("abc", "abc"));
        for other in ["", "ab", "abd", "abcd", "Abc"] {
            assert!(!same(other, "abc"), "{other}");
        }
        let token = Token("t".repeat(64));
        let [turn, next] = ["k3f9-1.1", "k3f9-1.2"].map(|id| id.parse::<TurnId>().expect("the id of a turn"));
        assert_eq!(token.sign(&turn), token.sign(&turn));
        assert_ne!(token.sign(&turn), token.sign(&next));
        assert_ne!(token.sign(&turn), Token("u".repeat(64)).sign(&turn));
    }
}
