//! Entries of streams: each becomes a signal of every persona with a route that takes it. An entry
//! of a stream without a route is kept in the mailbox `@STREAM`.

use std::collections::{BTreeMap, BTreeSet};

use everloop_agents::redact::without_secrets;
use everloop_core::action::LoopCommand;
use everloop_core::op::Op;
use everloop_core::rhythm::persona::RouteSpec;
use everloop_core::rhythm::signal::{PersonaName, Signal};
use everloop_core::state::LoopState;
use everloop_store::Ledger;
use serde::Serialize;

use super::ServiceContext;
use super::create::draw;
use super::messages::named_box;
use super::persona::personas;
use super::signal::refused;
use crate::error::Failure;
use crate::mailbox;

/// Most fields of an entry: they go into one prompt.
const FIELDS_MAX: usize = 100;

/// An entry to be added.
#[derive(Clone, Debug, Default)]
pub struct StreamEntry {
    pub stream: String,
    /// In the order in which they came.
    pub fields: Vec<(String, String)>,
    /// Unique in the stream; without one it is drawn.
    pub id: Option<String>,
}

/// What became of an entry.
#[derive(Clone, Debug, Serialize)]
pub struct StreamAnswer {
    pub stream: String,
    pub id: String,
    /// The personas that got it as a signal; none if every filter refuses it.
    pub personas: Vec<PersonaName>,
    /// Whether it is kept in the mailbox of the stream, because there is no route.
    pub kept: bool,
}

/// Adds an entry. All that it leads to is one transaction; the same id again has no effect, because a
/// persona takes a signal once.
pub fn add(context: &ServiceContext, entry: StreamEntry) -> Result<StreamAnswer, Failure> {
    let StreamEntry { stream, fields, id } = entry;
    let kept_in = named_box(&format!("@{stream}"))?;
    let known = by_name(&fields)?;
    let id = id.unwrap_or_else(|| format!("{}{}{}", draw(), draw(), draw()));
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let lines: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let body = without_secrets(&lines.join("\n"));
    let (mut ops, mut sent, mut routed) = (Vec::new(), Vec::new(), false);
    for state in personas(&ledger)?.into_iter().filter(|state| !state.is_over()) {
        routed |= routes(&state).any(|route| route.stream == stream);
        let Some(route) = routes(&state).find(|route| route.takes(&stream, &known)) else { continue };
        let to: PersonaName = state.name.parse().map_err(|e| refused(&e))?;
        let signal = Signal {
            id: id.clone(),
            to: to.clone(),
            class: route.class,
            tags: BTreeSet::new(),
            topic: stream.clone(),
            body: body.clone(),
            from: format!("stream {stream}"),
            at: context.now(),
            source: format!("stream:{stream}"),
            passed_by: None,
        };
        signal.validate().map_err(|e| refused(&e))?;
        let command = LoopCommand::Signal { signal: Box::new(signal) };
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        ops.push(Op::Signal { to: state.id.to_string(), by: context.caller.name(), body });
        sent.push(to);
    }
    if !routed {
        ops.push(mailbox::letter(&ledger, kept_in, &mailbox::checked(&body)?, &context.caller)?);
    }
    ledger.transact(context.now(), &ops)?;
    home.wake();
    Ok(StreamAnswer { stream, id, personas: sent, kept: !routed })
}

fn routes(state: &LoopState) -> impl Iterator<Item = &RouteSpec> {
    state.spec.persona.iter().flat_map(|persona| &persona.routes)
}

/// The fields for filters. A name stands for one value.
fn by_name(fields: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(Failure::usage(format!("an entry has {} fields", fields.len()))
            .hint(format!("1 to {FIELDS_MAX}, like status:RESTARTING")));
    }
    let mut known = BTreeMap::new();
    for (name, value) in fields {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Failure::usage(format!("`{}` is no name of a field", name.escape_debug())));
        }
        if known.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("the field `{name}` stands twice in an entry")));
        }
    }
    Ok(known)
}
