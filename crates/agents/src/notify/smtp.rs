//! Hands a mail to a server: as much SMTP as that takes (RFC 5321, STARTTLS, AUTH PLAIN and LOGIN). A password never travels
//! unencrypted beyond this machine.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everloop_core::notify::{Notification, Undelivered};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::base64::encode;
use super::mail::Mail;
use super::secret::{SecretSource, without};
use crate::web::{is_loopback, trusted};

/// All of it; a server that is slower is tried again later.
const WITHIN: Duration = Duration::from_secs(60);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Any answer is shorter.
const ANSWER_CAP: usize = 16 << 10;
/// What is told of an answer that says no.
const SHOWN_CHARS: usize = 200;

/// A server that takes mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is encrypted.
    pub encryption: Encryption,
    /// Who we are there, and our password.
    pub login: Option<(String, SecretSource)>,
}

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// From the beginning.
    Whole,
    /// After STARTTLS, which has to be offered; a server on this machine need not.
    Start,
}

enum Line {
    Open(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Line {
    fn socket(&self) -> &TcpStream {
        match self {
            Line::Open(stream) => stream,
            Line::Sealed(stream) => &stream.sock,
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Open(stream) => stream.read(buffer),
            Line::Sealed(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Line::Open(stream) => stream.write(bytes),
            Line::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Line::Open(stream) => stream.flush(),
            Line::Sealed(stream) => stream.flush(),
        }
    }
}

/// A conversation with a server.
struct Talk {
    line: Line,
    /// What came and was not read yet.
    rest: Vec<u8>,
    end: Instant,
}

/// An answer: its code and its lines.
struct Answer {
    code: u16,
    lines: Vec<String>,
}

pub(super) fn hand_over(
    server: &Server,
    ca: Option<&Path>,
    mail: &Mail,
    message: &Notification,
) -> Result<(), Undelivered> {
    let password = server.login.as_ref().map(|(_, secret)| secret.value()).transpose()?;
    let done = try_once(server, ca, password.as_deref(), (mail, message));
    // A server may repeat what it was told, in the form in which it was told.
    let forms = |(user, _): &(String, SecretSource)| {
        let password = password.clone().unwrap_or_default();
        [encode(password.as_bytes()), plain_login(user, &password), password]
    };
    let hidden: Vec<String> = server.login.iter().flat_map(forms).collect();
    let hidden: Vec<&str> = hidden.iter().map(String::as_str).collect();
    done.map_err(|e| without(&hidden, e))
}

fn try_once(
    server: &Server,
    ca: Option<&Path>,
    password: Option<&str>,
    (mail, message): (&Mail, &Notification),
) -> Result<(), Undelivered> {
    let mut talk = Talk::open(server, ca)?;
    talk.expect(220, "greeting")?;
    let mut offers = talk.hello()?;
    let sealed = matches!(talk.line, Line::Sealed(_));
    if !sealed && offers.iter().any(|o| o == "STARTTLS") {
        talk.ask("STARTTLS", 220)?;
        talk = talk.seal(server, ca)?;
        offers = talk.hello()?;
    } else if !sealed && !is_loopback(&server.host) {
        return Err(refused("it offers no encryption (STARTTLS)".to_owned()));
    }
    if let (Some((user, _)), Some(password)) = (&server.login, password) {
        talk.log_in(&offers, user, password)?;
    }
    talk.ask(&format!("MAIL FROM:<{}>", mail.from), 250)?;
    for to in &mail.to {
        talk.ask(&format!("RCPT TO:<{to}>"), 250)?;
    }
    talk.ask("DATA", 354)?;
    talk.say(&stuffed(&mail.render(message)))?;
    talk.expect(250, "the mail")?;
    // It has the mail; how it says goodbye does not matter.
    talk.say("QUIT\r\n").ok();
    Ok(())
}

fn plain_login(user: &str, password: &str) -> String {
    encode(format!("\0{user}\0{password}").as_bytes())
}

/// A line that begins with a dot gets another one, and a single dot is the end.
fn stuffed(mail: &str) -> String {
    let mut text = String::with_capacity(mail.len() + 16);
    for line in mail.lines() {
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str(".\r\n");
    text
}

impl Talk {
    fn open(server: &Server, ca: Option<&Path>) -> Result<Self, Undelivered> {
        let named = (server.host.as_str(), server.port).to_socket_addrs();
        let addresses = named.map_err(|e| lost("its name cannot be resolved", &e))?;
        let mut last = io::Error::other("its name has no address");
        for address in addresses.take(4) {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(stream) => {
                    let talk = Self { line: Line::Open(stream), rest: Vec::new(), end: Instant::now() + WITHIN };
                    return match server.encryption {
                        Encryption::Whole => talk.seal(server, ca),
                        Encryption::Start => Ok(talk),
                    };
                }
                Err(e) => last = e,
            }
        }
        Err(lost("it cannot be reached", &last))
    }

    /// From here on nobody else reads it. What was said before in the open is forgotten: somebody may have put it there.
    fn seal(self, server: &Server, ca: Option<&Path>) -> Result<Self, Undelivered> {
        let Line::Open(stream) = self.line else { return Err(refused("it is encrypted already".to_owned())) };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted(ca).map_err(refused)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| refused(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(server.host.clone()).map_err(|e| refused(e.to_string()))?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|e| refused(e.to_string()))?;
        let line = Line::Sealed(Box::new(StreamOwned::new(connection, stream)));
        Ok(Self { line, rest: Vec::new(), end: self.end })
    }

    fn hello(&mut self) -> Result<Vec<String>, Undelivered> {
        let answer = self.ask("EHLO everloop.invalid", 250)?;
        Ok(answer.lines.iter().skip(1).map(|line| line.to_ascii_uppercase()).collect())
    }

    fn log_in(&mut self, offers: &[String], user: &str, password: &str) -> Result<(), Undelivered> {
        let ways = offers.iter().find_map(|o| o.strip_prefix("AUTH")).unwrap_or_default();
        let has = |way: &str| ways.split([' ', '=']).any(|w| w == way);
        if has("PLAIN") {
            self.ask_secretly(&format!("AUTH PLAIN {}", plain_login(user, password)), 235)?;
        } else if has("LOGIN") {
            self.ask("AUTH LOGIN", 334)?;
            self.ask_secretly(&encode(user.as_bytes()), 334)?;
            self.ask_secretly(&encode(password.as_bytes()), 235)?;
        } else {
            return Err(refused("it offers neither AUTH PLAIN nor AUTH LOGIN".to_owned()));
        }
        Ok(())
    }

    fn ask(&mut self, command: &str, wanted: u16) -> Result<Answer, Undelivered> {
        self.say(&format!("{command}\r\n"))?;
        self.expect(wanted, command)
    }

    fn ask_secretly(&mut self, command: &str, wanted: u16) -> Result<Answer, Undelivered> {
        self.say(&format!("{command}\r\n"))?;
        self.expect(wanted, "the login")
    }

    fn say(&mut self, text: &str) -> Result<(), Undelivered> {
        self.hurry()?;
        let said = self.line.write_all(text.as_bytes()).and_then(|()| self.line.flush());
        said.map_err(|e| lost("the connection broke", &e))
    }

    fn expect(&mut self, wanted: u16, what: &str) -> Result<Answer, Undelivered> {
        let answer = self.answer()?;
        if answer.code == wanted || (wanted == 250 && answer.code == 251) {
            return Ok(answer);
        }
        let said: String = answer.lines.join(" ").chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
        let why = format!("it answered {} to {what}: {said}", answer.code);
        Err(Undelivered { why, retry_after: None, refused: answer.code >= 500 })
    }

    fn answer(&mut self) -> Result<Answer, Undelivered> {
        let mut lines = Vec::new();
        let mut size = 0;
        loop {
            let line = self.one_line()?;
            size += line.len();
            let code = line.get(..3).and_then(|c| c.parse::<u16>().ok());
            let (Some(code), true) = (code, size < ANSWER_CAP) else {
                return Err(broken("it does not speak SMTP".to_owned()));
            };
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Answer { code, lines });
            }
        }
    }

    fn one_line(&mut self) -> Result<String, Undelivered> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.rest.len() > ANSWER_CAP {
                return Err(broken("it does not speak SMTP".to_owned()));
            }
            self.hurry()?;
            let mut buffer = [0; 4096];
            match self.line.read(&mut buffer) {
                Ok(0) => return Err(broken("it hung up".to_owned())),
                Ok(n) => self.rest.extend_from_slice(&buffer[..n]),
                Err(e) => return Err(lost("the connection broke", &e)),
            }
        }
    }

    /// What is left of the time; a server that sends a letter a minute does not get more of it.
    fn hurry(&mut self) -> Result<(), Undelivered> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(broken(format!("it took longer than {}s", WITHIN.as_secs())));
        }
        let socket = self.line.socket();
        let set = socket.set_read_timeout(Some(left)).and_then(|()| socket.set_write_timeout(Some(left)));
        set.map_err(|e| lost("the connection broke", &e))
    }
}

fn lost(what: &str, error: &io::Error) -> Undelivered {
    broken(format!("{what}: {error}"))
}

fn broken(why: String) -> Undelivered {
    Undelivered { why, retry_after: None, refused: false }
}

fn refused(why: String) -> Undelivered {
    Undelivered { why, retry_after: None, refused: true }
}

#[cfg(test)]
mod tests {
    use super::stuffed;

    #[test]
    fn a_dot_ends_nothing_but_the_mail() {
        assert_eq!(stuffed("a\r\n.\r\n..b\r\n"), "a\r\n..\r\n...b\r\n.\r\n");
    }
}
