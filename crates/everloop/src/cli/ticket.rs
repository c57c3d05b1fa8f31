//! `everloop ticket`: tickets on the command line. `tickets` answers them.

use std::path::PathBuf;

use everloop_core::notify::{Alert, plan, sentence, severity};
use everloop_core::op::Ticket;
use everloop_engine::error::{Code, Failure};
use everloop_engine::mailbox;
use everloop_engine::membership::Membership;
use everloop_engine::notifiers;
use everloop_engine::projects::Projects as _;
use everloop_engine::record::read_state;
use everloop_engine::services::tickets::{self as services, MESH, TicketAnswer, TicketNumber, a_person};
use everloop_engine::supervisor::mesh::copy_of;
use everloop_engine::tickets::{self, Doer, TicketRecord};
use everloop_store::{Ledger, Sqlite, Tickets};
use serde_json::{Value, json};

use super::VerbSession;
use super::message::send::{Taker, away};
use crate::config::FileProjects;
use crate::ui::quantities::{moment, relative};
use crate::ui::text::{clean, fit};

const HELP: &str = "Examples:
  everloop ticket list
  everloop ticket answer 17 \"yes, drop Python 3.8\"
  everloop ticket answer mesh:3 \"try it again\"   # one of the mesh, from any node
  everloop ticket ack 17                    # acknowledged: it is not repeated, and stays open";

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
    /// Acknowledge it: it is not repeated and stays open
    Ack {
        /// Number of the ticket, or its key or the beginning of it
        ticket: String,
    },
}

pub fn ticket(args: TicketArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::List { all } => list(all, session),
        What::Show { ticket } => show(&ticket, session),
        What::Answer { ticket, text } => answer(&ticket, mailbox::checked(&text)?, session),
        What::Ack { ticket } => ack(&ticket, session),
    }
}

fn list(all: bool, session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let which = if all { Tickets::Newest(LISTED) } else { Tickets::Open };
    let found: Vec<(Ticket, TicketRecord)> = match session.reader(&home)? {
        Some(ledger) => {
            let with_seen = |t: Ticket| tickets::seen(&ledger, t.id).map(|(_, seen)| (t, seen));
            ledger.tickets(which)?.into_iter().map(with_seen).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let copies: Vec<&str> = found.iter().map(|(t, _)| t.key.as_str()).collect();
    let mesh: Vec<Ticket> = of_the_mesh(session)?.into_iter().filter(|t| !is_copied(t, &copies)).collect();
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

/// Open tickets of this node's mesh; without the hub, those that are not copied here cannot be
/// known.
fn of_the_mesh(session: &VerbSession) -> Result<Vec<Ticket>, Failure> {
    let Some(membership) = Membership::read(&session.home()?)? else { return Ok(Vec::new()) };
    match membership.open().and_then(|hub| Ok(hub.tickets(Tickets::Open)?)) {
        Ok(open) => Ok(open),
        Err(failure) => {
            session.ui.warn(&format!("tickets of the mesh are not listed: {}", failure.message));
            Ok(Vec::new())
        }
    }
}

/// Whether this node, as the leader, has a copy of it.
fn is_copied(ticket: &Ticket, keys: &[&str]) -> bool {
    let copy = copy_of(ticket);
    keys.contains(&copy.as_str())
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
    let home = session.home()?;
    let ledger = session.reader(&home)?.ok_or_else(|| no_ticket(word))?;
    let ticket = tickets::find(&ledger, word)?;
    let seen = tickets::seen(&ledger, ticket.id)?.1;
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
    let told = if ticket.closed.is_none() { told(&ledger, &ticket, session)? } else { Vec::new() };
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

/// For each notifier why this ticket is delivered now, later or not at all: repeats the
/// supervisor's own decision.
fn told(ledger: &Sqlite, ticket: &Ticket, session: &VerbSession) -> Result<Vec<(String, String)>, Failure> {
    let owner = ticket.owner.as_ref().map(|id| ledger.get_loop(id)).transpose()?.flatten();
    let home = owner.and_then(|row| read_state(&row).ok()).map(|state| PathBuf::from(state.spec.workspace.dir));
    let alerts = tickets::alerts(ledger)?;
    let look = session.ui.look(session.now());
    let mut found = Vec::new();
    for sender in FileProjects.notifiers(home.as_deref().unwrap_or(&session.dir), look.now)? {
        let (_, outbox) = notifiers::outbox(ledger, &sender.key())?;
        let mine: Vec<Alert> =
            alerts.iter().filter(|a| a.id == ticket.id && sender.hears(a, home.as_deref())).cloned().collect();
        let plan = plan(&mine, &sender.of.route, &outbox, notifiers::moment(look.now));
        let says = plan.reasons.get(&ticket.id);
        let says = says.map(|reason| sentence(reason, look.now, &|at| moment(at, look.now, &look.zone)));
        found.extend(says.map(|says| (sender.of.notifier.name.clone(), says)));
    }
    Ok(found)
}

fn no_ticket(word: &str) -> Failure {
    Failure::usage(format!("there is no ticket `{word}`")).hint("`everloop ticket list --all` shows them")
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
    let by = a_person(session)?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let doer = Doer { by: &by, now: session.now(), with: &[] };
    let (ticket, first) = tickets::ack(&mut ledger, word, doer)?;
    home.wake();
    let said = match &first {
        Some(other) => format!("#{} was seen already by {}", ticket.id, clean(other)),
        None => format!("#{} is not repeated any more; it stays open", ticket.id),
    };
    session.ui.said(&said, &json!({ "ticket": ticket.id, "key": ticket.key, "first": first.is_none() }))?;
    Ok(Code::Ok)
}
