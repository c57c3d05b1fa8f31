//! Quarantines of this machine and of its mesh; a person's own rules about them.

use std::time::Duration;

use everloop_core::immune::rules::{RuleRequest, add as wish_for, lift as lift_it};
use everloop_core::immune::{Dimension, Immune, ImmuneRule, RuleEffect, Subject};
use everloop_core::reason::RuleId;
use everloop_core::time::Time;
use everloop_core::why::spared;
use everloop_store::Ledger;

use super::ServiceContext;
use crate::error::Failure;
use crate::immune::{read, write};
use crate::membership::Membership;

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineReach {
    /// On this machine.
    Here,
    /// On all nodes of the mesh.
    Mesh,
}

/// Avoid a subject for a while, or bind a kind of task to one.
#[derive(Clone, Debug)]
pub struct QuarantineRequest {
    pub what: RuleEffect,
    pub time: Duration,
    pub why: String,
    pub reach: QuarantineReach,
}

/// End a quarantine or a rule.
#[derive(Clone, Debug)]
pub struct LiftRequest {
    /// A subject, or the number of a rule.
    pub word: String,
    pub why: String,
    pub reach: QuarantineReach,
}

/// Quarantines of this machine and of its mesh.
#[derive(Debug)]
pub struct QuarantineAnswer {
    pub here: Immune,
    /// Of the mesh, if this machine is a node of one; an error when its hub is away.
    pub mesh: Option<Result<Immune, Failure>>,
}

/// A rule as it was written.
#[derive(Clone, Debug)]
pub struct QuarantineAdded {
    pub rule: Option<ImmuneRule>,
    /// By the clock of the ledger that holds the rule.
    pub now: Time,
}

/// Reads the quarantines of this machine and of its mesh.
pub fn list(context: &ServiceContext) -> Result<QuarantineAnswer, Failure> {
    let home = context.home()?;
    let here = match context.reader(&home)? {
        Some(ledger) => read(&ledger)?.1,
        None => Immune::default(),
    };
    Ok(QuarantineAnswer { here, mesh: of_the_mesh(context) })
}

/// Adds a rule of a person.
pub fn add(context: &ServiceContext, request: &QuarantineRequest) -> Result<QuarantineAdded, Failure> {
    match request.reach {
        QuarantineReach::Mesh => {
            let (membership, mut hub) = context.hub()?;
            add_to(&mut hub, membership.hub_now()?, request, context)
        }
        QuarantineReach::Here => {
            let home = context.home()?;
            let added = add_to(&mut context.writer(&home)?, context.now(), request, context)?;
            home.wake();
            Ok(added)
        }
    }
}

/// Ends a quarantine or a rule; what was charged before is forgotten.
pub fn lift(context: &ServiceContext, request: &LiftRequest) -> Result<RuleEffect, Failure> {
    match request.reach {
        QuarantineReach::Mesh => {
            let (membership, mut hub) = context.hub()?;
            lift_from(&mut hub, membership.hub_now()?, request, context)
        }
        QuarantineReach::Here => {
            let home = context.home()?;
            let lifted = lift_from(&mut context.writer(&home)?, context.now(), request, context)?;
            home.wake();
            Ok(lifted)
        }
    }
}

/// The record of this node's mesh, if it belongs to one.
fn of_the_mesh(context: &ServiceContext) -> Option<Result<Immune, Failure>> {
    let membership = context.home().and_then(|home| Membership::read(&home)).transpose()?;
    Some(membership.and_then(|membership| Ok(read(&membership.open()?)?.1)))
}

fn add_to(
    ledger: &mut impl Ledger,
    now: Time,
    request: &QuarantineRequest,
    context: &ServiceContext,
) -> Result<QuarantineAdded, Failure> {
    let (by, why) = (who_asks(context)?, reason_given(&request.why)?);
    if request.time.is_zero() {
        return Err(Failure::usage("a quarantine needs an end in the future").hint("--for 2h"));
    }
    let what = &request.what;
    let wish = RuleRequest { what: what.clone(), by: &by, why, time: request.time };
    let refused = |cap: &RuleId| {
        Failure::failed(format!("cannot quarantine {what}: {}", spared(cap)))
            .hint("to stop everything: everloop guard hold --reason TEXT")
    };
    let immune = write(ledger, now, |immune| wish_for(immune, &wish, now).map_err(|cap| refused(&cap.rule)))?;
    Ok(QuarantineAdded { rule: immune.rules.iter().find(|r| r.what == *what).cloned(), now })
}

fn lift_from(
    ledger: &mut impl Ledger,
    now: Time,
    request: &LiftRequest,
    context: &ServiceContext,
) -> Result<RuleEffect, Failure> {
    let (by, why, word) = (who_asks(context)?, reason_given(&request.why)?, &request.word);
    let found = named(&read(ledger)?.1, word)?;
    write(ledger, now, |immune| {
        lift_it(immune, &found, &by, why).map(|did| vec![did]).ok_or_else(|| nobody(immune, word))
    })?;
    Ok(found)
}

/// Parses the number of a rule, or a subject.
fn named(immune: &Immune, word: &str) -> Result<RuleEffect, Failure> {
    if let Ok(id) = word.parse::<u32>() {
        let rule: Option<&ImmuneRule> = immune.rules.iter().find(|r| r.id == id);
        return rule.map(|r| r.what.clone()).ok_or_else(|| nobody(immune, word));
    }
    let subject = Subject::try_from(word.to_owned()).map_err(Failure::usage)?;
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
fn who_asks(context: &ServiceContext) -> Result<String, Failure> {
    if context.caller.is_person() {
        return Ok(context.caller.name());
    }
    Err(Failure::usage("only a person can change quarantines").hint("request it: everloop message send person TEXT"))
}

fn reason_given(why: &str) -> Result<&str, Failure> {
    match why.trim() {
        "" => Err(Failure::usage("the reason is empty").hint("--why \"its key is being renewed\"")),
        why => Ok(why),
    }
}
