//! What a mail looks like: headers that cannot be broken out of, and a text that every server takes.

use everloop_core::notify::Notification;
use jiff::Zoned;
use jiff::fmt::rfc2822;

use super::base64::encode;
use super::smtp::Server;

/// Bytes of a title in one encoded word; longer ones are split.
const WORD_BYTES: usize = 42;
/// A line of a mail, with room for what servers add.
const LINE_BYTES: usize = 76;
/// Longer lines are not allowed; a text that has some is encoded.
const LINE_MOST: usize = 900;

/// Who gets a mail, from whom, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Addresses.
    pub to: Vec<String>,
    /// An address.
    pub from: String,
    /// How.
    pub via: Via,
}

/// How a mail leaves this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// It is handed to a server.
    Server(Server),
    /// It is handed to a command like `sendmail -i -t`, on standard input.
    Command(Vec<String>),
}

/// Whether a text is a plain address: nothing in it can become another header or another command.
pub fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[]\\,;:\"".contains(c);
    let Some((name, host)) = text.split_once('@') else { return false };
    !name.is_empty() && !host.is_empty() && !host.contains('@') && text.len() <= 254 && text.chars().all(plain)
}

impl Mail {
    /// The whole mail, with line breaks as mail wants them.
    pub(super) fn render(&self, message: &Notification) -> String {
        let date = rfc2822::to_string(&Zoned::now()).unwrap_or_default();
        let domain = self.from.split_once('@').map_or("localhost", |(_, host)| host);
        let urgent = if message.severity == everloop_core::notify::Severity::Critical { "1" } else { "3" };
        let mut headers = vec![
            format!("Date: {date}"),
            format!("From: everloop <{}>", self.from),
            format!("To: {}", self.to.join(", ")),
            format!("Subject: {}", subject(&message.title)),
            // The same for every attempt, so that a mailbox can see that it has it.
            format!("Message-ID: <{}@{domain}>", message.key.replace('+', ".")),
            format!("X-Priority: {urgent}"),
            "Auto-Submitted: auto-generated".to_owned(),
            "MIME-Version: 1.0".to_owned(),
            "Content-Type: text/plain; charset=utf-8".to_owned(),
        ];
        let text = body(message);
        let plain = text.is_ascii() && text.lines().all(|line| line.len() < LINE_MOST);
        let coding = if plain { "7bit" } else { "base64" };
        headers.push(format!("Content-Transfer-Encoding: {coding}"));
        let text = if plain { lines(&text) } else { wrapped(&encode(lines(&text).as_bytes())) };
        format!("{}\r\n\r\n{text}", headers.join("\r\n"))
    }
}

fn body(message: &Notification) -> String {
    let how = match message.tickets.as_slice() {
        [one] => format!("Answer it: everloop ticket answer {one} \"TEXT\"\nSeen: everloop ticket ack {one}\n"),
        _ => "All of them: everloop ticket list\n".to_owned(),
    };
    // A control character is nothing that a person reads.
    let text: String = message.text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
    format!("{text}\n\n{how}")
}

fn lines(text: &str) -> String {
    text.lines().flat_map(|line| [line, "\r\n"]).collect()
}

fn wrapped(coded: &str) -> String {
    let pieces: Vec<String> = coded.as_bytes().chunks(LINE_BYTES).map(|p| String::from_utf8_lossy(p).into()).collect();
    lines(&pieces.join("\n"))
}

/// A title as one header: never a line break, and words of its own for what is not ASCII.
fn subject(title: &str) -> String {
    let title: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if title.is_ascii() {
        return title;
    }
    let mut words = Vec::new();
    let mut word = String::new();
    for c in title.chars() {
        if word.len() + c.len_utf8() > WORD_BYTES {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    words.iter().map(|w| format!("=?UTF-8?B?{}?=", encode(w.as_bytes()))).collect::<Vec<_>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use everloop_core::notify::Severity;

    use super::*;

    fn message(title: &str, text: &str) -> Notification {
        Notification {
            key: "1f-17-1".to_owned(),
            severity: Severity::Critical,
            title: title.to_owned(),
            text: text.to_owned(),
            tickets: vec![17],
            buttons: Vec::new(),
            refused: 0,
        }
    }

    fn mail() -> Mail {
        let via = Via::Command(vec!["sendmail".to_owned()]);
        Mail { to: vec!["ops@example.com".to_owned()], from: "loop@example.com".to_owned(), via }
    }

    #[test]
    fn no_text_becomes_a_header() {
        let evil = "hello\r\nBcc: everybody@example.com\r\n\r\nbody";
        let text = mail().render(&message(evil, "x\r\nBcc: y\n.\n"));
        let (head, body) = text.split_once("\r\n\r\n").expect("a mail has a head");
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(head.contains("Subject: hello  Bcc: everybody@example.com    body"), "{head}");
        assert!(head.contains("Message-ID: <1f-17-1@example.com>"));
        assert!(body.starts_with("x\r\nBcc: y\r\n.\r\n"), "{body}");
        assert!(
            text.split('\n').all(|line| line.is_empty() || line.ends_with('\r')),
            "every line ends as mail wants it"
        );
    }

    #[test]
    fn other_letters_are_encoded() {
        let text = mail().render(&message(&"Prüfung ".repeat(12), "schläft – und wie"));
        assert!(text.is_ascii() && text.contains("=?UTF-8?B?") && text.contains("base64"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn an_address_is_one_address() {
        for good in ["a@b", "first.last+tag@example.co.uk"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\r\nRCPT TO:<x@y>", "a@b,c@d", "<a@b>", "ä@b"] {
            assert!(!is_address(bad), "{bad:?}");
        }
    }
}
