//! `everloop stream`: adds entries to streams, reads and trims them, and waits for answers.

use std::time::Duration;

use everloop_core::op::streams::Field;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::stream::{
    self as service, AckRequest, AskRequest, Begin, EntryAnswer, EntryRequest, ReadRequest, TrimRequest,
};
use serde_json::json;

use super::VerbSession;
use crate::ui::stream::{entries_of, entry_lines, list_lines};
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop stream add torch.continuous.ops status:RESTARTING window:3
  everloop stream ask deploys question:\"may eu go out?\" --wait 60s
  everloop stream read deploys --group audit -n 10
  everloop stream tail deploys";

/// A stream is a list of entries in the ledger, each with fields. A `[[route]]` of everloop.toml leads
/// them to a persona or a loop.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct StreamArgs {
    /// What to do with streams
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `stream`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Add an entry, and lead it to where its routes say
    Add {
        /// Name of the stream
        stream: String,
        /// Fields, as field:value or field=value
        #[arg(required = true, value_name = "FIELD:VALUE", value_parser = service::field)]
        fields: Vec<Field>,
        /// Id of the entry at its source, so that it counts once however often it is added
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Add an entry and wait for the answer of the turn that takes it; exits with 3 if none came
    Ask {
        /// Name of the stream
        stream: String,
        /// Fields, as field:value or field=value; `reply_to` names another stream for the answer
        #[arg(required = true, value_name = "FIELD:VALUE", value_parser = service::field)]
        fields: Vec<Field>,
        /// How long to wait
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
        wait: Duration,
    },
    /// Print entries, oldest first
    Read {
        /// Name of the stream
        stream: String,
        /// Only entries after the one with this number
        #[arg(long, value_name = "NUMBER", conflicts_with = "group")]
        after: Option<u64>,
        /// Only what this group has not had; it holds them until `ack`
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Member of the group that takes them
        #[arg(long, value_name = "NAME", default_value = "cli", requires = "group")]
        consumer: String,
        /// Take entries again that were not acknowledged for this time
        #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration, requires = "group")]
        idle: Duration,
        /// How many entries at most
        #[arg(short, long, default_value_t = 100)]
        n: usize,
    },
    /// Print the newest entries
    Tail {
        /// Name of the stream
        stream: String,
        /// How many entries at most
        #[arg(short, long, default_value_t = 10)]
        n: usize,
    },
    /// Acknowledge entries that a group holds
    Ack {
        /// Name of the stream
        stream: String,
        /// Name of the group
        #[arg(long, value_name = "GROUP")]
        group: String,
        /// Numbers of the entries
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    /// List streams with their groups
    List,
    /// Drop the oldest entries of a stream
    Trim {
        /// Name of the stream
        stream: String,
        /// Keep so many of the newest
        #[arg(long, value_name = "N", required_unless_present = "older")]
        keep: Option<u64>,
        /// Drop entries that are older
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        older: Option<Duration>,
    },
}

impl StreamArgs {
    /// Whether a turn may do this: what neither drops entries nor moves a group.
    pub(super) fn is_for_turns(&self) -> bool {
        match &self.what {
            What::Add { .. } | What::Ask { .. } | What::Tail { .. } | What::List => true,
            What::Read { group, .. } => group.is_none(),
            What::Ack { .. } | What::Trim { .. } => false,
        }
    }
}

pub fn stream(args: StreamArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Add { stream, fields, id } => {
            let answer = service::add(session, EntryRequest { stream, fields, id })?;
            session.ui.said(&added(&answer), &answer)?;
        }
        What::Ask { stream, fields, wait } => return ask(session, AskRequest { stream, fields, within: wait }),
        What::Read { stream, after, group, consumer, idle, n } => {
            let from = match (group, after) {
                (Some(group), _) => Begin::Group { group, consumer, idle },
                (None, Some(number)) => Begin::After(number),
                (None, None) => Begin::Oldest,
            };
            page(session, ReadRequest { stream, count: n, from })?;
        }
        What::Tail { stream, n } => page(session, ReadRequest { stream, count: n, from: Begin::Newest })?,
        What::Ack { stream, group, numbers } => {
            let done = service::ack(session, AckRequest { stream, group, numbers })?;
            let said = format!("acknowledged {}", entries_of(done.numbers.len() as u64));
            session.ui.said(&said, &json!({ "stream": done.stream, "group": done.group, "numbers": done.numbers }))?;
        }
        What::List => {
            let found = service::list(session)?;
            session.ui.answer(&list_lines(&found, session.ui.width()), &json!({ "streams": found }))?;
        }
        What::Trim { stream, keep, older } => {
            let done = service::trim(session, &TrimRequest { stream, keep, older })?;
            session.ui.said(&format!("dropped {} of {}", entries_of(done.trimmed), clean(&done.stream)), &done)?;
        }
    }
    Ok(Code::Ok)
}

fn added(answer: &EntryAnswer) -> String {
    let (stream, number) = (clean(&answer.stream), answer.number.unwrap_or_default());
    if answer.repeated {
        return format!("the stream {stream} has entry {} already, as {number}", clean(&answer.id));
    }
    let led: Vec<String> = answer.personas.iter().map(ToString::to_string).collect();
    let led: Vec<String> = led.into_iter().chain(answer.tasks.iter().map(ToString::to_string)).collect();
    let to = if led.is_empty() { "no route takes it".to_owned() } else { format!("to {}", led.join(", ")) };
    format!("entry {number} of {stream}: {to}")
}

fn ask(session: &VerbSession, request: AskRequest) -> Result<Code, Failure> {
    let asked = service::ask(session, request)?;
    let lines = match &asked.answer {
        Some(answer) => entry_lines(std::slice::from_ref(answer), 0, &session.ui.look(session.now())),
        None => vec![format!("no answer in time; it will be in the stream {}", clean(&asked.reply_to))],
    };
    session.ui.answer(&lines, &asked)?;
    Ok(if asked.answer.is_some() { Code::Ok } else { Code::NotReached })
}

fn page(session: &VerbSession, request: ReadRequest) -> Result<(), Failure> {
    let page = service::read(session, request)?;
    session.ui.answer(&entry_lines(&page.entries, page.missed, &session.ui.look(session.now())), &page)
}
