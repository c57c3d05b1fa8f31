//! `everloop quarantine`: lists quarantines with their reasons, and edits a person's own rules.

use std::time::Duration;

use everloop_agents::clock;
use everloop_core::immune::rules::{RuleRequest, add as wish_for, lift as lift_it};
use everloop_core::immune::{Dimension, Immune, ImmuneRule, RuleEffect, Subject};
use everloop_core::reason::RuleId;
use everloop_core::time::{Time, parse_duration};
use everloop_core::why::spared;
use everloop_engine::error::{Code, Failure};
use everloop_engine::immune::{read, write};
use everloop_engine::membership::Membership;
use everloop_store::Ledger;
use serde_json::json;

use super::VerbSession;
use crate::ui::quantities::moment;
use crate::ui::quarantine as view;
use crate::ui::status::StatusStyle;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop quarantine list
  everloop quarantine add account:team --for 2h --why \"its key is being renewed\"
  everloop quarantine add kind:docs --only agent:small --for 1d --why \"cheap enough\"
  everloop quarantine lift account:team --why \"the key is there\"
  everloop quarantine add node:attic --mesh --why \"its disk is full\"

Subjects: `node:NAME`, `pane:NAME`, `account:NAME`, `agent:NAME`, `kind:NAME`.";

/// A node, account, agent, pane or task kind that fails more often than the others gets less work,
/// then only a trial now and then. Lists these quarantines, adds and lifts them.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct QuarantineArgs {
    /// What to do with quarantines
    #[command(subcommand)]
    what: Verb,
}

/// Subcommands of `quarantine`.
#[derive(Debug, clap::Subcommand)]
enum Verb {
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

pub fn quarantine(args: QuarantineArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        Verb::List => list(session),
        Verb::Add { who, only, time, why, mesh } => {
            let what = what(who, only)?;
            if mesh {
                let (membership, mut hub) = session.hub()?;
                let now = membership.hub_now()?;
                return add(&mut hub, now, (&what, time), &why, session);
            }
            let code = add(&mut session.writer(&session.home()?)?, session.now(), (&what, time), &why, session)?;
            session.home()?.wake();
            Ok(code)
        }
        Verb::Lift { who, why, mesh } => {
            if mesh {
                let (membership, mut hub) = session.hub()?;
                let now = membership.hub_now()?;
                return lift(&mut hub, now, &who, &why, session);
            }
            let code = lift(&mut session.writer(&session.home()?)?, session.now(), &who, &why, session)?;
            session.home()?.wake();
            Ok(code)
        }
    }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let immune = match session.reader(&home)? {
        Some(ledger) => read(&ledger)?.1,
        None => Immune::default(),
    };
    let look = session.ui.look(session.now());
    let mut somebody = is_anybody_held(&immune, &look);
    let (mut lines, mut content) = (view::table(&immune, &look), view::as_json(&immune, look.now));
    if let Some(mesh) = of_the_mesh(session) {
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

/// The record of this node's mesh, if it belongs to one.
fn of_the_mesh(session: &VerbSession) -> Option<Result<Immune, Failure>> {
    let membership = session.home().and_then(|home| Membership::read(&home)).transpose()?;
    Some(membership.and_then(|membership| Ok(read(&membership.open()?)?.1)))
}

fn what(who: Subject, only: Option<Subject>) -> Result<RuleEffect, Failure> {
    match only {
        None => Ok(RuleEffect::Avoid { subject: who }),
        Some(subject) if who.dimension == Dimension::Kind && subject.dimension != Dimension::Kind => {
            Ok(RuleEffect::Only { kind: who.name, subject })
        }
        Some(_) => Err(Failure::usage("`--only` binds a kind of task to a node, account, agent or pane")
            .hint("everloop quarantine add kind:docs --only agent:small --why TEXT")),
    }
}

fn add(
    ledger: &mut impl Ledger,
    now: Time,
    (what, time): (&RuleEffect, Duration),
    why: &str,
    session: &VerbSession,
) -> Result<Code, Failure> {
    let (by, why) = (who_asks(session)?, reason_given(why)?);
    if time.is_zero() {
        return Err(Failure::usage("a quarantine needs an end in the future").hint("--for 2h"));
    }
    let wish = RuleRequest { what: what.clone(), by: &by, why, time };
    let refused = |cap: &RuleId| {
        Failure::failed(format!("cannot quarantine {what}: {}", spared(cap)))
            .hint("to stop everything: everloop guard hold --reason TEXT")
    };
    let immune = write(ledger, now, |immune| wish_for(immune, &wish, now).map_err(|cap| refused(&cap.rule)))?;
    let rule = immune.rules.iter().find(|r| r.what == *what);
    let until = rule.map_or(now, |r| r.until);
    let look = session.ui.look(now);
    let said = match what {
        RuleEffect::Avoid { subject } => format!("{subject} is not used until {}", moment(until, now, &look.zone)),
        only @ RuleEffect::Only { .. } => format!("{only} until {}", moment(until, now, &look.zone)),
    };
    session.ui.answer(&[said], &json!({ "rule": rule }))?;
    Ok(Code::Ok)
}

fn lift(ledger: &mut impl Ledger, now: Time, word: &str, why: &str, session: &VerbSession) -> Result<Code, Failure> {
    let (by, why) = (who_asks(session)?, reason_given(why)?);
    let found = named(&read(ledger)?.1, word)?;
    write(ledger, now, |immune| {
        lift_it(immune, &found, &by, why).map(|did| vec![did]).ok_or_else(|| nobody(immune, word))
    })?;
    session.ui.answer(&[format!("lifted {found}")], &json!({ "lifted": found }))?;
    Ok(Code::Ok)
}

/// Parses the number of a rule, or a subject.
fn named(immune: &Immune, word: &str) -> Result<RuleEffect, Failure> {
    if let Ok(id) = word.parse::<u32>() {
        let rule: Option<&ImmuneRule> = immune.rules.iter().find(|r| r.id == id);
        return rule.map(|r| r.what.clone()).ok_or_else(|| nobody(immune, word));
    }
    let subject = parse_subject(word).map_err(Failure::usage)?;
    let bound = immune.rules.iter().find(
        |r| matches!(&r.what, RuleEffect::Only { kind, .. } if subject.dimension == Dimension::Kind && *kind == subject.name),
    );
    let plain = RuleEffect::Avoid { subject };
    let known = immune.rules.iter().any(|r| r.what == plain);
    Ok(bound.filter(|_| !known).map_or(plain, |r| r.what.clone()))
}

fn nobody(immune: &Immune, word: &str) -> Failure {
    let rules = immune.rules.iter().map(|r| r.what.to_string());
    let all: Vec<String> = immune.standings.keys().map(ToString::to_string).chain(rules).collect();
    let failure = Failure::usage(format!("`{word}` is not quarantined"));
    if all.is_empty() {
        failure.hint("nothing is quarantined")
    } else {
        failure.hint(format!("there are: {}", all.join(", ")))
    }
}

/// Quarantines are changed by people only: an agent does not choose its peers.
fn who_asks(session: &VerbSession) -> Result<String, Failure> {
    if session.caller.is_person() {
        return Ok(session.caller.name());
    }
    Err(Failure::usage("only a person can change quarantines").hint("request it: everloop message send person TEXT"))
}

fn reason_given(why: &str) -> Result<&str, Failure> {
    match why.trim() {
        "" => Err(Failure::usage("the reason is empty").hint("--why \"its key is being renewed\"")),
        why => Ok(why),
    }
}
