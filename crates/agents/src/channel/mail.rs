//! What a mail looks like: headers that cannot be broken out of, and a text that every server
//! takes.

use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Delivery, Refusal, Undelivered};
use lettre::Address;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MessageBuilder};

use super::smtp::Server;

/// Longer lines are not allowed; a text that has some is encoded.
const MAX_LINE_BYTES: usize = 900;
/// The rest of a title is left out.
const MAX_TITLE_CHARS: usize = 200;

/// Recipients, sender and transport of mails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub to: Vec<String>,
    pub from: String,
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
    text.len() <= 254 && text.chars().all(plain) && text.parse::<Address>().is_ok()
}

impl Mail {
    /// The whole mail, with line breaks as mail wants them.
    pub(super) fn render(&self, message: &Delivery) -> Result<lettre::Message, Undelivered> {
        let from = address(&self.from)?;
        // The same for every attempt, so that a mailbox can see that it has it.
        let id = format!("<{}@{}>", message.key.replace('+', "."), from.domain());
        let urgent = if message.severity == Severity::Critical { "1" } else { "3" };
        let mut builder = lettre::Message::builder()
            .date_now()
            .from(Mailbox::new(Some("everloop".to_owned()), from))
            .subject(title(&message.title))
            .message_id(Some(id))
            .header(ContentType::TEXT_PLAIN);
        for to in &self.to {
            builder = builder.to(Mailbox::new(None, address(to)?));
        }
        builder = raw(builder, HeaderName::new_from_ascii_str("X-Priority"), urgent);
        builder = raw(builder, HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated");
        let text = body(message);
        let plain = text.is_ascii() && text.lines().all(|line| line.len() < MAX_LINE_BYTES);
        let encoding = if plain { ContentTransferEncoding::SevenBit } else { ContentTransferEncoding::Base64 };
        let body = Body::new_with_encoding(text, encoding).map_err(|_| refused("its text cannot be encoded"))?;
        builder.body(body).map_err(|e| refused(&e.to_string()))
    }
}

fn raw(builder: MessageBuilder, name: HeaderName, value: &str) -> MessageBuilder {
    builder.raw_header(HeaderValue::new(name, value.to_owned()))
}

pub(super) fn address(text: &str) -> Result<Address, Undelivered> {
    // An address with anything odd in it is not shown: it would be in a log.
    if !is_address(text) {
        return Err(refused("an address of the mail is none"));
    }
    text.parse().map_err(|_| refused("an address of the mail is none"))
}

fn refused(why: &str) -> Undelivered {
    Undelivered::refused(why, Refusal::Content)
}

fn body(message: &Delivery) -> String {
    let how = match message.tickets.as_slice() {
        [one] => format!("Answer it: everloop ticket answer {one} \"TEXT\"\nSeen: everloop ticket ack {one}\n"),
        _ => "All of them: everloop ticket list\n".to_owned(),
    };
    // Control characters are not readable text.
    let text: String = message.text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
    format!("{text}\n\n{how}")
}

/// A title as one header: without line breaks.
fn title(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TITLE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(title: &str, text: &str) -> Delivery {
        Delivery {
            key: "1f-17-1".to_owned(),
            severity: Severity::Critical,
            title: title.to_owned(),
            text: text.to_owned(),
            tickets: vec![17],
            ..Delivery::default()
        }
    }

    fn rendered(message: &Delivery) -> String {
        let via = Via::Command(vec!["sendmail".to_owned()]);
        let mail = Mail { to: vec!["ops@example.com".to_owned()], from: "loop@example.com".to_owned(), via };
        String::from_utf8(mail.render(message).expect("it is a mail").formatted()).expect("a mail is text")
    }

    #[test]
    fn no_text_becomes_a_header() {
        let evil = "hello\r\nBcc: everybody@example.com\r\n\r\nbody";
        let text = rendered(&message(evil, "x\r\nBcc: y\n.\n"));
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
        let text = rendered(&message(&"Prüfung ".repeat(12), "schläft – und wie"));
        let lower = text.to_ascii_lowercase();
        assert!(text.is_ascii() && lower.contains("=?utf-8?b?") && text.contains("base64"), "{text}");
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
