//! A signal: what arrives for a persona. This file owns its form and its limits; what a signal does
//! is decided in [`reflex`](super::reflex).
//!
//! The text of a signal is data. It may come from any program that reaches a source.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Most bytes of a body: a signal is a notice, and what is larger belongs into a file or a stream.
pub const BODY_MAX_BYTES: usize = 32 * 1024;
/// Most tags of a signal; each is compared with every pattern of a persona.
pub const TAGS_MAX: usize = 20;
/// Most characters of an id, a tag, a topic or a sender: they stand in one line of a terminal.
pub const WORD_MAX_CHARS: usize = 200;
/// Most characters of a persona's name: it is part of file names and addresses.
pub const NAME_MAX_CHARS: usize = 64;

/// The name of a persona.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PersonaName(String);

impl PersonaName {
    /// The name as it is written in commands and files.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PersonaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PersonaName {
    type Err = SignalError;

    fn from_str(text: &str) -> Result<Self, SignalError> {
        let fits = (1..=NAME_MAX_CHARS).contains(&text.chars().count());
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if fits && plain && begins { Ok(Self(text.to_owned())) } else { Err(SignalError::Name(shown(text))) }
    }
}

impl TryFrom<String> for PersonaName {
    type Error = SignalError;

    fn try_from(text: String) -> Result<Self, SignalError> {
        text.parse()
    }
}

impl From<PersonaName> for String {
    fn from(name: PersonaName) -> String {
        name.0
    }
}

/// How urgent a signal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalClass {
    /// Wakes when a second one follows soon.
    Low,
    /// Wakes at once.
    #[default]
    Medium,
    /// Wakes at once, and related personas too.
    High,
}

impl SignalClass {
    /// The class in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            SignalClass::Low => "low",
            SignalClass::Medium => "medium",
            SignalClass::High => "high",
        }
    }
}

impl FromStr for SignalClass {
    type Err = SignalError;

    fn from_str(text: &str) -> Result<Self, SignalError> {
        match text {
            "low" => Ok(SignalClass::Low),
            "medium" => Ok(SignalClass::Medium),
            "high" => Ok(SignalClass::High),
            other => Err(SignalError::Class(shown(other))),
        }
    }
}

/// What arrives for a persona.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Unique at its source; without a slash.
    pub id: String,
    pub to: PersonaName,
    #[serde(default)]
    pub class: SignalClass,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topic: String,
    #[serde(default)]
    pub body: String,
    /// The sender as the source names it; data.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// When the source took it. The same in every delivery of the same signal.
    pub at: Time,
    /// Where it came in: `cli`, `turn`, `file`.
    pub source: String,
    /// The persona that passed it on. Such a signal is not passed on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_by: Option<PersonaName>,
    /// Where the turn that takes it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
}

/// Where an answer goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    /// The name of a stream of the ledger. The address of a stream elsewhere (`redis:answers`) is
    /// such a name, too; whatever writes to that place reads it from there.
    pub stream: String,
    /// Part of the answer, so that it finds its question.
    pub correlation: String,
}

impl Signal {
    /// The identity of a signal at its source, `SOURCE/ID`. An id has no slash, so two pairs never
    /// give the same key; a copy for a related persona keeps it.
    pub fn key(&self) -> String {
        format!("{}/{}", self.source, self.id)
    }

    /// Whether all limits hold; the first one that does not is the error.
    pub fn validate(&self) -> Result<(), SignalError> {
        word("id", &self.id)?;
        if self.id.contains('/') {
            return Err(SignalError::Slash(shown(&self.id)));
        }
        word("source", &self.source)?;
        optional("topic", Some(&self.topic))?;
        optional("from", Some(&self.from))?;
        if let Some(ReplyTo { stream, correlation }) = &self.reply_to {
            word("reply_to", stream)?;
            word("correlation", correlation)?;
        }
        if self.tags.len() > TAGS_MAX {
            return Err(SignalError::Tags(self.tags.len()));
        }
        for tag in &self.tags {
            word("tag", tag)?;
        }
        if self.body.len() > BODY_MAX_BYTES {
            return Err(SignalError::Body(self.body.len()));
        }
        Ok(())
    }
}

fn optional(field: &'static str, text: Option<&String>) -> Result<(), SignalError> {
    text.filter(|text| !text.is_empty()).map_or(Ok(()), |text| word(field, text))
}

fn word(field: &'static str, text: &str) -> Result<(), SignalError> {
    if text.is_empty() {
        return Err(SignalError::Empty(field));
    }
    let chars = text.chars().count();
    if chars > WORD_MAX_CHARS {
        return Err(SignalError::Long { field, chars });
    }
    if text.chars().any(char::is_control) {
        return Err(SignalError::Control { field, text: shown(text) });
    }
    Ok(())
}

/// The beginning of a text for an error, without control characters.
fn shown(text: &str) -> String {
    const SHOWN: usize = 40;
    let cut: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN { format!("{cut}…") } else { cut }
}

/// Why a signal is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum SignalError {
    #[error(
        "`{0}` is no name of a persona; hint: 1 to 64 letters, digits, `_`, `-` or `.`, beginning with a letter or digit"
    )]
    Name(String),
    #[error("`{0}` is no class of a signal; hint: `low`, `medium` or `high`")]
    Class(String),
    #[error("the {0} of a signal is empty")]
    Empty(&'static str),
    #[error("the {field} of a signal has {chars} characters; hint: at most {WORD_MAX_CHARS}")]
    Long { field: &'static str, chars: usize },
    #[error("the {field} `{text}` of a signal has control characters; hint: put longer text into the body")]
    Control { field: &'static str, text: String },
    #[error("the id `{0}` of a signal has a slash, which separates source and id")]
    Slash(String),
    #[error("a signal has {0} tags; hint: at most {TAGS_MAX}")]
    Tags(usize),
    #[error(
        "the body of a signal has {0} bytes; hint: at most {BODY_MAX_BYTES}, put more into a file and send its path"
    )]
    Body(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::signal;

    #[test]
    fn limits_are_refused_with_their_numbers() {
        let good = signal("1", SignalClass::Low);
        assert_eq!(good.validate(), Ok(()));
        let refused = |change: fn(&mut Signal)| {
            let mut bad = signal("1", SignalClass::Low);
            change(&mut bad);
            bad.validate().expect_err("it is refused").to_string()
        };
        for (change, has) in [
            ((|s| s.id = String::new()) as fn(&mut Signal), "the id of a signal is empty"),
            (|s| s.id = "a/b".to_owned(), "slash"),
            (|s| s.source = String::new(), "the source of a signal is empty"),
            (|s| s.topic = "x".repeat(201), "the topic of a signal has 201 characters"),
            (|s| s.from = "a\nb".to_owned(), "control characters"),
            (|s| s.topic = "\u{7}".to_owned(), "the topic"),
            (|s| s.tags = (0..21).map(|n| format!("t{n}")).collect(), "21 tags"),
            (|s| s.tags = [String::new()].into(), "the tag of a signal is empty"),
            (|s| s.body = "ä".repeat(16 * 1024 + 1), "has 32770 bytes"),
        ] {
            let text = refused(change);
            assert!(text.contains(has), "{text}");
        }
        let full = Signal { body: "x".repeat(BODY_MAX_BYTES), ..good };
        assert_eq!(full.validate(), Ok(()));
    }

    #[test]
    fn names_and_classes() {
        for good in ["echo", "a.b-c_1", "9"] {
            assert!(good.parse::<PersonaName>().is_ok(), "{good}");
        }
        for bad in ["", "a/b", "ä", ".hidden", "-x", "a b", &"x".repeat(65), "a\n"] {
            assert!(bad.parse::<PersonaName>().is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<PersonaName>("\"a/b\"").is_err(), "what is read is checked too");
        for class in [SignalClass::Low, SignalClass::Medium, SignalClass::High] {
            assert_eq!(class.as_str().parse(), Ok(class));
        }
        assert!("urgent".parse::<SignalClass>().is_err());
    }

    #[test]
    fn two_signals_never_share_a_key() {
        let at = |source: &str, id: &str| Signal { source: source.to_owned(), ..signal(id, SignalClass::Low) };
        assert_ne!(at("a/b", "c").key(), at("a", "b").key());
    }

    #[test]
    fn a_line_of_the_first_version_is_read() {
        let line = r#"{"id":"1-0","to":"echo","at":5,"source":"cli"}"#;
        let read: Signal = serde_json::from_str(line).expect("only id, recipient, time and source are needed");
        assert_eq!((read.class, read.passed_by.as_ref()), (SignalClass::Medium, None));
        assert_eq!(serde_json::from_str::<Signal>(&serde_json::to_string(&read).unwrap()).unwrap(), read);
    }
}
