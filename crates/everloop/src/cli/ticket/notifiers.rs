//! `everloop ticket notifiers`: lists and tests notifiers.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::notifiers::{self as service, NotifierState, NotifierTrial};
use serde_json::{Value, json};

use crate::cli::VerbSession;
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
    if args.test { test(args.name.as_deref(), session) } else { list(session) }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let all = service::list(session)?;
    let mut lines: Vec<String> = all.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no notifiers; add `[[notify]]` with a `kind` to everloop.toml".to_owned());
    }
    session.ui.answer(&lines, &json!({ "notifiers": all.iter().map(as_json).collect::<Vec<_>>() }))?;
    Ok(Code::Ok)
}

fn line(one: &NotifierState) -> String {
    let (receiver, route) = (&one.sender.of.receiver, &one.sender.of.route);
    let mut parts = vec![format!("{} ({})", receiver.name, receiver.channel.kind())];
    let only: Vec<&str> = route.only.iter().map(|weight| weight.label()).collect();
    parts.push(if only.is_empty() { format!("{} and above", route.min_severity.label()) } else { only.join(", ") });
    parts.extend(route.quiet_hours.map(|quiet| format!("quiet {quiet}")));
    parts.push(if one.sender.dir.is_some() { "this project".to_owned() } else { "all projects".to_owned() });
    parts.extend((!one.is_isolated).then(|| "its command is not isolated".to_owned()));
    parts.extend(one.trouble.clone());
    clean(&parts.join("; "))
}

fn as_json(one: &NotifierState) -> Value {
    let (receiver, route) = (&one.sender.of.receiver, &one.sender.of.route);
    json!({
        "name": receiver.name,
        "kind": receiver.channel.kind(),
        "min_severity": route.min_severity,
        "only": route.only,
        "quiet_hours": route.quiet_hours.map(|quiet| quiet.to_string()),
        "repeats": route.repeats,
        "project": one.sender.dir,
        "isolated": one.is_isolated,
        "trouble": one.trouble,
        "pending": one.pending,
    })
}

fn test(name: Option<&str>, session: &VerbSession) -> Result<Code, Failure> {
    let mut lines = Vec::new();
    let mut data = Vec::new();
    let mut code = Code::Ok;
    for NotifierTrial { name, kind, error } in service::test(session, name)? {
        let why = error.as_deref().map(clean);
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
