//! `everloop guard quarantine`: lists quarantines with their reasons, and edits a person's own rules.

use std::time::Duration;

use everloop_agents::clock;
use everloop_core::immune::{Dimension, Immune, RuleEffect, Subject};
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::quarantine::{
    self as service, LiftRequest, QuarantineAnswer, QuarantineReach, QuarantineRequest,
};
use serde_json::json;

use crate::cli::VerbSession;
use crate::ui::quantities::moment;
use crate::ui::quarantine as view;
use crate::ui::status::StatusStyle;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop guard quarantine
  everloop guard quarantine add account:team --for 2h --why \"its key is being renewed\"
  everloop guard quarantine add kind:docs --only agent:small --for 1d --why \"cheap enough\"
  everloop guard quarantine lift account:team --why \"the key is there\"
  everloop guard quarantine add node:attic --mesh --why \"its disk is full\"

Subjects: `node:NAME`, `pane:NAME`, `account:NAME`, `agent:NAME`, `kind:NAME`.";

/// A node, account, agent, pane or task kind that fails more often than the others gets less work,
/// then only a trial now and then. Lists these quarantines, adds and lifts them.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct QuarantineArgs {
    /// What to do with quarantines [default: list them]
    #[command(subcommand)]
    what: Option<What>,
}

/// Subcommands of `guard quarantine`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show quarantines, their ends and reasons; exits with 5 when there are any
    List,
    /// Stop using a subject for a while, or bind a kind of task to one subject
    Add {
        /// Subject: `node:NAME`, `pane:NAME`, `account:NAME`, `agent:NAME` or `kind:NAME`
        #[arg(value_name = "SUBJECT", value_parser = parse_subject)]
        who: Subject,
        /// Give tasks of that kind only to this subject
        #[arg(long, value_name = "SUBJECT", value_parser = parse_subject)]
        only: Option<Subject>,
        /// How long it lasts
        #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = parse_duration)]
        time: Duration,
        /// The reason, for the journal and `why`
        #[arg(long, value_name = "TEXT")]
        why: String,
        /// For all nodes of the mesh; nodes have the names under which they joined
        #[arg(long)]
        mesh: bool,
    },
    /// End a quarantine or a rule; what was charged before is forgotten
    Lift {
        /// Subject, or the number of a rule
        #[arg(value_name = "SUBJECT")]
        who: String,
        /// What was done about the cause, for the journal
        #[arg(long, value_name = "TEXT")]
        why: String,
        /// In the record of the mesh
        #[arg(long)]
        mesh: bool,
    },
}

fn parse_subject(text: &str) -> Result<Subject, String> {
    Subject::try_from(text.to_owned())
}

pub fn quarantine(args: QuarantineArgs, session: &VerbSession) -> Result<Code, Failure> {
    let reach = |mesh| if mesh { QuarantineReach::Mesh } else { QuarantineReach::Here };
    match args.what {
        None | Some(What::List) => list(session),
        Some(What::Add { who, only, time, why, mesh }) => {
            add(&QuarantineRequest { what: what(who, only)?, time, why, reach: reach(mesh) }, session)
        }
        Some(What::Lift { who, why, mesh }) => {
            let lifted = service::lift(session, &LiftRequest { word: who, why, reach: reach(mesh) })?;
            session.ui.answer(&[format!("lifted {lifted}")], &json!({ "lifted": lifted }))?;
            Ok(Code::Ok)
        }
    }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let QuarantineAnswer { here: immune, mesh } = service::list(session)?;
    let look = session.ui.look(session.now());
    let mut somebody = is_anybody_held(&immune, &look);
    let (mut lines, mut content) = (view::table(&immune, &look), view::as_json(&immune, look.now));
    if let Some(mesh) = mesh {
        lines.push("In the mesh:".to_owned());
        match mesh {
            Ok(record) => {
                // The hub counts in machine time.
                let look = session.ui.look(clock::machine_now());
                somebody |= is_anybody_held(&record, &look);
                lines.extend(view::table(&record, &look));
                content["mesh"] = view::as_json(&record, look.now);
                content["mesh"]["seen"] = view::seen(&record);
            }
            Err(failure) => {
                lines.push(look.paint.warn(&format!("unknown, the hub is away: {}", clean(&failure.message))));
                content["mesh"] = json!({ "away": failure.message });
            }
        }
    }
    session.ui.answer(&lines, &content)?;
    Ok(if somebody { Code::Held } else { Code::Ok })
}

fn is_anybody_held(immune: &Immune, look: &StatusStyle) -> bool {
    let (standings, rules) = view::held(immune, look.now);
    !standings.is_empty() || !rules.is_empty()
}

fn what(who: Subject, only: Option<Subject>) -> Result<RuleEffect, Failure> {
    match only {
        None => Ok(RuleEffect::Avoid { subject: who }),
        Some(subject) if who.dimension == Dimension::Kind && subject.dimension != Dimension::Kind => {
            Ok(RuleEffect::Only { kind: who.name, subject })
        }
        Some(_) => Err(Failure::usage("`--only` binds a kind of task to a node, account, agent or pane")
            .hint("everloop guard quarantine add kind:docs --only agent:small --why TEXT")),
    }
}

fn add(request: &QuarantineRequest, session: &VerbSession) -> Result<Code, Failure> {
    let added = service::add(session, request)?;
    let (rule, look) = (added.rule, session.ui.look(added.now));
    let until = moment(rule.as_ref().map_or(look.now, |r| r.until), look.now, &look.zone);
    let said = match &request.what {
        RuleEffect::Avoid { subject } => format!("{subject} is not used until {until}"),
        only @ RuleEffect::Only { .. } => format!("{only} until {until}"),
    };
    session.ui.answer(&[said], &json!({ "rule": rule }))?;
    Ok(Code::Ok)
}
