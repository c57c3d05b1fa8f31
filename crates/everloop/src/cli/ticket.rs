//! `everloop ticket`: tickets on the command line. `tickets` answers them; `notifiers` lists and
//! tests what delivers them.

use std::time::Duration;

use everloop_core::op::Ticket;
use everloop_core::outbound::tickets::{sentence, severity};
use everloop_core::permission::PermissionCall;
use everloop_core::reason::Reason;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::mailbox;
use everloop_engine::services::permissions;
use everloop_engine::services::tickets::{self as services, MESH, TicketAnswer, TicketList, TicketNumber, TicketShown};
use everloop_engine::tickets::TicketRecord;
use everloop_store::Tickets;
use serde_json::{Value, json};

use super::VerbSession;
use super::message::send::{Taker, away};
use crate::ui::quantities::{moment, relative};
use crate::ui::text::{clean, fit};

mod notifiers;

const HELP: &str = "Examples:
  everloop ticket list
  everloop ticket answer 17 \"yes, drop Python 3.8\"
  everloop ticket answer mesh:3 \"try it again\"   # one of the mesh, from any node
  everloop ticket ack 17                    # acknowledged: it is not repeated, and stays open
  everloop ticket notifiers --test          # one message through each; shows the result";

/// The hidden subcommand for CLIs that request permissions.
pub const PERMISSION_ARG: &str = "__permission";

/// Most closed tickets that are listed.
const LISTED: usize = 200;

/// A ticket is a question or an alert for a person. The loops go on as far as they can; tickets
/// queue up.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TicketArgs {
    /// What to do with tickets
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `ticket`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List open tickets; exits with 4 when there are any
    List {
        /// Also list closed ones, the newest
        #[arg(long)]
        all: bool,
    },
    /// Show one ticket: its text, its deliveries and its acknowledgement
    Show {
        /// Number of the ticket, or its key or the beginning of it
        ticket: String,
    },
    /// Answer it: a question's loop reads it in its next turn, a freeze is released, any other is
    /// closed
    Answer {
        /// Number of the ticket, or its key or the beginning of it; `mesh:NUMBER` is one of the
        /// mesh
        ticket: String,
        /// Text of the answer
        text: String,
    },
    /// Request a permission for the CLI of a turn, and wait for the answer
    #[command(name = PERMISSION_ARG, hide = true)]
    Permission {
        /// The tool that is to be used
        #[arg(long)]
        tool: String,
        /// Its arguments, word for word
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        input: String,
        /// How long a person may take
        #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
        within: Duration,
    },
    /// Acknowledge it: it is not repeated and stays open
    Ack {
        /// Number of the ticket, or its key or the beginning of it
        ticket: String,
    },
    /// List notifiers, which deliver tickets to people, or test them
    Notifiers(notifiers::NotifiersArgs),
}

impl TicketArgs {
    /// Whether it concerns notifiers, which belong to people.
    pub(super) fn is_notifiers(&self) -> bool {
        matches!(self.what, What::Notifiers(_))
    }
}

pub fn ticket(args: TicketArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::List { all } => list(all, session),
        What::Show { ticket } => show(&ticket, session),
        What::Answer { ticket, text } => answer(&ticket, &mailbox::checked(&text)?, session),
        What::Permission { tool, input, within } => {
            let reply = permissions::ask(session, &PermissionCall { tool, input }, within)?;
            session.ui.json(&reply)?;
            Ok(Code::Ok)
        }
        What::Ack { ticket } => ack(&ticket, session),
        What::Notifiers(args) => notifiers::notifiers(&args, session),
    }
}

fn list(all: bool, session: &VerbSession) -> Result<Code, Failure> {
    let TicketList { here: found, mesh } =
        services::list(session, if all { Tickets::Newest(LISTED) } else { Tickets::Open })?;
    let mesh = mesh.unwrap_or_else(|failure| {
        session.ui.warn(&format!("tickets of the mesh are not listed: {}", failure.message));
        Vec::new()
    });
    let look = session.ui.look(session.now());
    let mut lines: Vec<String> = found.iter().map(|(t, seen)| fit(&line(t, seen, session), look.width)).collect();
    lines.extend(mesh.iter().map(|t| fit(&of_mesh(&line(t, &TicketRecord::default(), session)), look.width)));
    if lines.is_empty() {
        lines.push("no tickets".to_owned());
    }
    let mut data: Vec<Value> = found.iter().map(|(t, seen)| as_json(t, seen)).collect();
    data.extend(mesh.iter().map(|t| {
        let mut ticket = as_json(t, &TicketRecord::default());
        ticket["id"] = format!("{MESH}{}", t.id).into();
        ticket
    }));
    session.ui.answer(&lines, &json!({ "tickets": data }))?;
    let open = !mesh.is_empty() || found.iter().any(|(t, _)| t.closed.is_none());
    Ok(if open { Code::NeedsPerson } else { Code::Ok })
}

fn of_mesh(line: &str) -> String {
    line.replacen('#', MESH, 1)
}

fn line(ticket: &Ticket, seen: &TicketRecord, session: &VerbSession) -> String {
    let owner = ticket.owner.as_ref().map_or(String::new(), |id| format!(" {id}"));
    let state = match (&ticket.closed, &seen.acked) {
        (Some((at, _)), _) => format!("closed {}", relative(*at, session.now())),
        (None, Some((by, _))) => format!("{}, seen by {by}", severity(&ticket.key).label()),
        (None, None) => severity(&ticket.key).label().to_owned(),
    };
    let when = relative(ticket.opened_at, session.now());
    clean(&format!("#{}{owner} {when} ({state}): {}", ticket.id, ticket.text))
}

fn as_json(ticket: &Ticket, seen: &TicketRecord) -> Value {
    json!({
        "id": ticket.id,
        "key": ticket.key,
        "loop": ticket.owner,
        "severity": severity(&ticket.key),
        "text": ticket.text,
        "opened_at": ticket.opened_at,
        "closed_at": ticket.closed.as_ref().map(|(at, _)| at),
        "answer": ticket.closed.as_ref().map(|(_, answer)| answer),
        "acked_by": seen.acked.as_ref().map(|(by, _)| by),
        "acked_at": seen.acked.as_ref().map(|(_, at)| at),
    })
}

fn show(word: &str, session: &VerbSession) -> Result<Code, Failure> {
    let TicketShown { ticket, record: seen, deliveries } = services::show(session, word)?;
    let now = session.now();
    let owner = ticket.owner.as_ref().map_or(String::new(), |id| format!(", loop {id}"));
    let mut lines = vec![
        format!("#{} {} ({}{owner})", ticket.id, clean(&ticket.key), severity(&ticket.key).label()),
        clean(&ticket.text),
        format!("opened {}", relative(ticket.opened_at, now)),
    ];
    if let Some((by, at)) = &seen.acked {
        lines.push(format!("seen by {} {}", clean(by), relative(*at, now)));
    }
    let look = session.ui.look(now);
    let says = |reason: &Reason| sentence(reason, now, &|at| moment(at, now, &look.zone));
    let told: Vec<(&String, String)> = deliveries.iter().map(|(name, reason)| (name, says(reason))).collect();
    lines.extend(told.iter().map(|(name, said)| format!("{name}: {}", clean(said))));
    match &ticket.closed {
        Some((at, answer)) => lines.push(format!("closed {}: {}", relative(*at, now), clean(answer))),
        None => lines.push(format!("answer it: everloop ticket answer {} \"TEXT\"", ticket.id)),
    }
    let code = if ticket.closed.is_none() { Code::NeedsPerson } else { Code::Ok };
    let told: Vec<Value> = told.iter().map(|(name, said)| json!({ "name": name, "says": said })).collect();
    session.ui.answer(&lines, &json!({ "ticket": as_json(&ticket, &seen), "notifiers": told }))?;
    Ok(code)
}

fn answer(word: &str, text: &str, session: &VerbSession) -> Result<Code, Failure> {
    show_answer(session, &services::answer(session, word, text)?)?;
    Ok(Code::Ok)
}

/// Prints what an answer did.
pub(super) fn show_answer(session: &VerbSession, answer: &TicketAnswer) -> Result<(), Failure> {
    let number = match &answer.ticket {
        TicketNumber::Here(number) => format!("#{number}"),
        TicketNumber::Mesh(number) => number.clone(),
    };
    let done = match (&answer.owner, &answer.released) {
        (Some(id), _) => format!("loop {id} will read the answer in its next turn"),
        (None, Some(scope)) => format!("{scope} is released"),
        (None, None) => "it is closed".to_owned(),
    };
    let away = away(answer.taker.is_none_or(|taker| taker == Taker::Supervisor));
    session.ui.said(&format!("answered {number}: {done}{away}"), answer)
}

fn ack(word: &str, session: &VerbSession) -> Result<Code, Failure> {
    let (ticket, first) = services::ack(session, word)?;
    let said = match &first {
        Some(other) => format!("#{} was seen already by {}", ticket.id, clean(other)),
        None => format!("#{} is not repeated any more; it stays open", ticket.id),
    };
    session.ui.said(&said, &json!({ "ticket": ticket.id, "key": ticket.key, "first": first.is_none() }))?;
    Ok(Code::Ok)
}
