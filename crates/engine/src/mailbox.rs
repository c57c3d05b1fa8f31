//! Messages between people and agents: recipients, the form of a message, the size of a mailbox.
//!
//! A loop reads its messages in its next turn (they become part of its state there), a person reads
//! tickets; a task keeps its comments, and every other recipient has a mailbox under a name with
//! `@`. What agents write is data.

use everloop_agents::redact::without_secrets;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{Message, Op, Trust};
use everloop_core::prompt::QuotedMessage;
use everloop_store::{Ledger, Recipients};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::caller::Caller;
use crate::error::Failure;

/// A longer message is refused: it has to fit into a prompt beside others.
pub const TEXT_MAX_CHARS: usize = 8_000;
/// A mailbox that is never emptied does not grow beyond this.
const BOX_MOST: usize = 200;
/// Comments of its task that a turn gets; the newest ones.
const COMMENTS_TOLD: usize = 20;

/// Body of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageBody {
    /// The text; data, never an instruction.
    pub text: String,
    /// Trust in its author.
    #[serde(default)]
    pub trust: Trust,
}

impl MessageBody {
    /// The body of a message; one in another form is shown as it is.
    pub fn of(message: &Message) -> Self {
        serde_json::from_str(&message.body).unwrap_or_else(|_| Self { text: message.body.clone(), trust: Trust::Agent })
    }
}

/// The mailbox of a task's comments.
pub fn comments_of(task: &TaskId) -> String {
    format!("task:{task}")
}

/// Trims a text and checks that it may be sent. It is kept in the journal and handed on to models, so
/// what has the shape of a secret is left out.
pub fn checked(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::usage("the message is empty").hint("give a text: everloop message send TO \"TEXT\""));
    }
    if text.chars().count() > TEXT_MAX_CHARS {
        return Err(Failure::usage(format!("the message is longer than {TEXT_MAX_CHARS} characters"))
            .hint("write it into a file of the project and name that file"));
    }
    Ok(without_secrets(text))
}

/// The operation that puts a text into a mailbox, unless it is full.
pub fn letter(ledger: &impl Ledger, to: String, text: &str, caller: &Caller) -> Result<Op, Failure> {
    let held = ledger.messages(Recipients::These(std::slice::from_ref(&to)), BOX_MOST)?.len();
    if held >= BOX_MOST {
        return Err(Failure::failed(format!("the mailbox `{to}` is full ({held} messages)"))
            .hint(format!("empty it: everloop message inbox {to} --consume")));
    }
    let said = MessageBody { text: text.to_owned(), trust: caller.trust() };
    let body = serde_json::to_string(&said).expect("a text always has a JSON form");
    Ok(Op::Signal { to, by: caller.name(), body })
}

/// The comments of a task, for the prompt of its turn.
pub fn comments(ledger: &impl Ledger, task: &TaskId) -> Result<Vec<QuotedMessage>, Failure> {
    let mut found = ledger.messages(Recipients::These(&[comments_of(task)]), BOX_MOST)?;
    let old = found.len().saturating_sub(COMMENTS_TOLD);
    Ok(found.drain(old..).map(|m| QuotedMessage { text: MessageBody::of(&m).text, by: m.by }).collect())
}

/// Prefix of the key of a question to a person.
pub const QUESTION: &str = "question:";

/// The key of a question to a person: the same question from the same place is one ticket.
pub fn question(about: Option<&LoopId>, text: &str) -> String {
    let digest = Sha256::digest(text);
    let short = digest.iter().take(4).fold(0_u32, |n, byte| n << 8 | u32::from(*byte));
    format!("{QUESTION}{}:{short:08x}", about.map_or("-", LoopId::as_str))
}

#[cfg(test)]
mod tests {
    use everloop_core::time::Time;
    use everloop_store::Model;

    use super::*;

    #[test]
    fn a_full_box_takes_nothing_and_keeps_what_it_has() {
        let mut ledger = Model::default();
        let me = Caller::Person("me".to_owned());
        for n in 0..BOX_MOST {
            let op = letter(&ledger, "@reviewer".to_owned(), &format!("message {n}"), &me).expect("there is room");
            ledger.transact(Time(1), &[op]).expect("a message can be left");
        }
        let full = letter(&ledger, "@reviewer".to_owned(), "one more", &me).expect_err("it is full");
        assert!(full.hint.is_some_and(|hint| hint.contains("inbox @reviewer --consume")));
        assert!(letter(&ledger, "@other".to_owned(), "hello", &me).is_ok());
    }

    #[test]
    fn a_turn_is_told_the_newest_comments() {
        let mut ledger = Model::default();
        let (task, agent) = (TaskId::new("x7k2m"), Caller::client("claude"));
        for n in 0..30 {
            let op = letter(&ledger, comments_of(&task), &format!("comment {n}"), &agent).expect("there is room");
            ledger.transact(Time(1), &[op]).expect("a message can be left");
        }
        let told = comments(&ledger, &task).expect("the model can be read");
        assert_eq!((told.len(), told[0].text.as_str(), told[19].text.as_str()), (20, "comment 10", "comment 29"));
        assert_eq!(told[0].by, "agent claude");
    }

    #[test]
    fn texts_have_an_end_and_a_beginning() {
        assert_eq!(checked(" hello \n").expect("it is a text"), "hello");
        let key = format!("use sk-ant-api03-{}", "x1".repeat(40));
        assert_eq!(checked(&key).expect("it is a text"), "use [redacted:anthropic key]");
        assert!(checked(" \n").is_err());
        assert!(checked(&"x".repeat(TEXT_MAX_CHARS + 1)).is_err());
    }
}
