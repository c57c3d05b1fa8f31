//! `everloop ticket notifiers`: lists and tests notifiers.

use everloop_agents::channel::{Receiver, ReceiverAccess};
use everloop_agents::isolation::Means;
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Button, Delivery};
use everloop_engine::error::{Code, Failure};
use everloop_engine::isolation;
use everloop_engine::outboxes;
use everloop_engine::projects::NotifierSender;
use everloop_engine::projects::Projects as _;
use serde_json::{Value, json};

use crate::cli::VerbSession;
use crate::config::FileProjects;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop ticket notifiers
  everloop ticket notifiers --test          # one message through each; shows the result
  everloop ticket notifiers --test phone

Notifiers are declared in `[[notify]]` of everloop.toml, or of config.toml for all projects. Exits with 1 when a message did not arrive.";

/// Lists notifiers: for what, when not, and whether they can be reached. They bring tickets to
/// people; their failures never disturb a loop.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct NotifiersArgs {
    /// Send one message through each and show the result
    #[arg(long)]
    test: bool,
    /// Test only this notifier
    #[arg(requires = "test")]
    name: Option<String>,
}

pub fn notifiers(args: &NotifiersArgs, session: &VerbSession) -> Result<Code, Failure> {
    let senders = FileProjects.notifiers(FileProjects::on_disk(&session.dir).as_ref(), session.now())?;
    if args.test { test(senders, args.name.as_deref(), session) } else { list(&senders, session) }
}

fn list(senders: &[NotifierSender], session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let ledger = session.reader(&home)?;
    let now = session.now();
    let mut lines = Vec::new();
    let mut data = Vec::new();
    for sender in senders {
        let outbox = ledger.as_ref().map(|ledger| outboxes::outbox(ledger, &sender.key())).transpose()?;
        let queue = outbox.unwrap_or_default().queue;
        let trouble = queue.trouble(now);
        lines.push(line(sender, trouble.as_deref()));
        data.push(as_json(sender, trouble.as_deref(), queue.pending.len()));
    }
    if lines.is_empty() {
        lines.push("no notifiers; add `[[notify]]` with a `kind` to everloop.toml".to_owned());
    }
    session.ui.answer(&lines, &json!({ "notifiers": data }))?;
    Ok(Code::Ok)
}

fn line(sender: &NotifierSender, trouble: Option<&str>) -> String {
    let (receiver, route) = (&sender.of.receiver, &sender.of.route);
    let mut parts = vec![format!("{} ({})", receiver.name, receiver.channel.kind())];
    let only: Vec<&str> = route.only.iter().map(|weight| weight.label()).collect();
    parts.push(if only.is_empty() { format!("{} and above", route.min_severity.label()) } else { only.join(", ") });
    parts.extend(route.quiet_hours.map(|quiet| format!("quiet {quiet}")));
    parts.push(if sender.dir.is_some() { "this project".to_owned() } else { "all projects".to_owned() });
    parts.extend((!is_confined(receiver)).then(|| "its command is not isolated".to_owned()));
    parts.extend(trouble.map(str::to_owned));
    clean(&parts.join("; "))
}

/// Whether nothing of it runs outside of an isolation.
fn is_confined(receiver: &Receiver) -> bool {
    let ReceiverAccess { own, around } = &receiver.access;
    !receiver.is_command() || Means::of(own.mode.unwrap_or(around.mode)).holds()
}

fn as_json(sender: &NotifierSender, trouble: Option<&str>, pending: usize) -> Value {
    let (receiver, route) = (&sender.of.receiver, &sender.of.route);
    json!({
        "name": receiver.name,
        "kind": receiver.channel.kind(),
        "min_severity": route.min_severity,
        "only": route.only,
        "quiet_hours": route.quiet_hours.map(|quiet| quiet.to_string()),
        "repeats": route.repeats,
        "project": sender.dir,
        "isolated": is_confined(receiver),
        "trouble": trouble,
        "pending": pending,
    })
}

fn test(mut senders: Vec<NotifierSender>, name: Option<&str>, session: &VerbSession) -> Result<Code, Failure> {
    let names: Vec<String> = senders.iter().map(|sender| sender.of.receiver.name.clone()).collect();
    senders.retain(|sender| name.is_none_or(|name| sender.of.receiver.name == name));
    if senders.is_empty() {
        let (what, hint) = match name {
            Some(name) if !names.is_empty() => {
                (format!("there is no notifier `{name}`"), format!("there are: {}", names.join(", ")))
            }
            _ => ("there are no notifiers".to_owned(), "add `[[notify]]` with a `kind` to everloop.toml".to_owned()),
        };
        return Err(Failure::usage(what).hint(hint));
    }
    let home = session.home()?;
    let mut lines = Vec::new();
    let mut data = Vec::new();
    let mut code = Code::Ok;
    for sender in senders {
        let (name, kind) = (sender.of.receiver.name.clone(), sender.of.receiver.channel.kind());
        let isolation = isolation::of_receiver(&sender.of.receiver, home.root());
        let result = crate::cli::up::block_on(sender.of.receiver.deliver(&message(session), &isolation))?;
        let why = result.err().map(|failure| clean(&failure.why));
        lines.push(match &why {
            None => format!("{name} ({kind}): sent"),
            Some(why) => format!("{name} ({kind}): not sent: {why}"),
        });
        if why.is_some() {
            code = Code::Failed;
        }
        data.push(json!({ "name": name, "kind": kind, "sent": why.is_none(), "error": why }));
    }
    session.ui.answer(&lines, &json!({ "notifiers": data }))?;
    Ok(code)
}

fn message(session: &VerbSession) -> Delivery {
    Delivery {
        key: format!("test-{:x}", session.now().0),
        severity: Severity::Info,
        title: "everloop: a test".to_owned(),
        text: "Tickets of your loops will arrive here.".to_owned(),
        // It belongs to no ticket: the press is received and ignored.
        buttons: vec![Button { label: "Seen".to_owned(), data: "test".to_owned() }],
        ..Delivery::default()
    }
}
