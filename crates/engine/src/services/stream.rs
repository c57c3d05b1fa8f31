//! Streams: entries that the ledger keeps, and what their routes make of them. An entry and all that
//! it leads to are one transaction.
//!
//! An entry that was read at another place comes in by [`accept`]: that place keeps it, the ledger
//! keeps what it leads to. An answer to such a place (`reply_to` with a colon, `redis:answers`) is an
//! entry of a stream of the ledger with that name. Whatever writes to the place takes it from there:
//! [`outgoing`] names these streams, `StreamOp::Deliver` with a group of its own gives their entries
//! one after the other, again after `idle` if they were not acknowledged, and `StreamOp::Ack` ends
//! each once it is written.

mod ask;
mod read;

use std::collections::{BTreeMap, BTreeSet};

use everloop_agents::redact::without_secrets;
use everloop_core::action::LoopCommand;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::streams::{Field, KEEP, NewStreamEntry, StreamOp};
use everloop_core::op::{NewTask, Op, Refusal, Reply, Trust};
use everloop_core::rhythm::persona::RouteSpec;
use everloop_core::rhythm::signal::{BODY_MAX_BYTES, PersonaName, ReplyTo, SignalClass, SignalError, WORD_MAX_CHARS};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use super::signal::{Draft, TURN, compose, drawn, refused, source};
use super::tasks::AddTask;
use crate::error::Failure;
use crate::record::read_state;

pub use ask::{AskRequest, Asked, ask};
pub use read::{
    AckRequest, Begin, GroupView, Page, ReadRequest, StreamView, TrimRequest, Trimmed, ack, list, outgoing, read, trim,
};

/// Most fields of an entry: they go into one prompt.
const FIELDS_MAX: usize = 100;
/// Most streams: whatever reaches the port can name one.
const STREAMS_MAX: usize = 1_000;
/// Longest name of a stream, in bytes: it stands in one line.
const NAME_MAX_BYTES: usize = 180;
/// The field with the stream of the answer, and the one that the answer repeats.
const REPLY_TO: &str = "reply_to";
const CORRELATION: &str = "correlation";

/// An entry to be added.
#[derive(Clone, Debug, Default)]
pub struct EntryRequest {
    pub stream: String,
    /// In the order in which they came.
    pub fields: Vec<Field>,
    /// Unique in the stream; without one it is drawn.
    pub id: Option<String>,
}

/// An entry that was read at another place.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The address of its stream, as routes name it.
    pub stream: String,
    /// What its id is unique in.
    pub source: String,
    pub id: String,
    pub fields: Vec<Field>,
}

/// What became of an entry.
#[derive(Clone, Debug, Serialize)]
pub struct EntryAnswer {
    pub stream: String,
    pub id: String,
    /// Its number in the stream; `None` for one that another place keeps.
    pub number: Option<u64>,
    /// The personas that got it as a signal.
    pub personas: Vec<PersonaName>,
    /// The tasks that it became.
    pub tasks: Vec<TaskId>,
    /// The stream has it already, so nothing was done.
    pub repeated: bool,
}

/// What the routes of an entry make of it.
#[derive(Debug, Default)]
struct Consequences {
    ops: Vec<Op>,
    personas: Vec<PersonaName>,
    tasks: Vec<TaskId>,
}

/// Adds an entry, and does what its routes say. The same id again has no effect, as long as the entry
/// is kept; a persona and a board know it for good.
pub fn add(context: &ServiceContext, request: EntryRequest) -> Result<EntryAnswer, Failure> {
    let EntryRequest { stream, fields, id } = request;
    let by = source(&context.caller);
    named(&stream)?;
    let (home, id) = (context.home()?, checked(drawn(id))?);
    let mut ledger = context.writer(&home)?;
    if ledger.entries(&stream, 0, 1)?.is_empty() {
        admit_new(&ledger, &stream)?;
    }
    let arrival = Arrival { source: format!("stream:{stream}/{by}"), stream, id, fields: clean(fields)? };
    if by == TURN {
        within_rights(context, &ledger, &arrival)?;
    }
    let found = consequences(context, &ledger, &arrival)?;
    let Arrival { stream, id, fields, .. } = arrival;
    let key = Some(id.clone());
    let entry = NewStreamEntry { stream: stream.clone(), source: by.to_owned(), key, fields, keep: KEEP };
    let mut ops = vec![Op::Stream(StreamOp::Add(entry))];
    ops.extend(found.ops);
    let replies = match ledger.transact(context.now(), &ops) {
        Ok(replies) => replies,
        Err(Error::Refused(Refusal::Repeated { id: number, .. })) => {
            let (personas, tasks) = (Vec::new(), Vec::new());
            return Ok(EntryAnswer { stream, id, number: Some(number), personas, tasks, repeated: true });
        }
        Err(error) => return Err(error.into()),
    };
    home.wake();
    let number = replies.iter().find_map(|reply| if let Reply::Added(number) = reply { Some(*number) } else { None });
    Ok(EntryAnswer { stream, id, number, personas: found.personas, tasks: found.tasks, repeated: false })
}

/// Does what the routes of an entry say that another place keeps. It may be delivered again: a
/// persona takes a signal once, and a board has a task once. Acknowledge it there afterwards.
pub fn accept(context: &ServiceContext, arrival: Arrival) -> Result<EntryAnswer, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let arrival = Arrival { fields: clean(arrival.fields)?, ..arrival };
    let found = consequences(context, &ledger, &arrival)?;
    if !found.ops.is_empty() {
        ledger.transact(context.now(), &found.ops)?;
        home.wake();
    }
    let Arrival { stream, id, .. } = arrival;
    let Consequences { personas, tasks, .. } = found;
    Ok(EntryAnswer { stream, id, number: None, personas, tasks, repeated: false })
}

/// The loops with a route that takes an entry, each with its first one.
fn takers(ledger: &Sqlite, arrival: &Arrival) -> Result<Vec<(LoopState, RouteSpec)>, Failure> {
    let known: BTreeMap<String, String> = arrival.fields.iter().cloned().collect();
    let all: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    let open = all.into_iter().filter(|state| !state.is_over());
    let route = |state: &LoopState| state.spec.routes().find(|route| route.takes(&arrival.stream, &known)).cloned();
    Ok(open.filter_map(|state| route(&state).map(|route| (state, route))).collect())
}

fn consequences(context: &ServiceContext, ledger: &Sqlite, arrival: &Arrival) -> Result<Consequences, Failure> {
    let lines: Vec<String> = arrival.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let body = without_secrets(&lines.join("\n"));
    let mut found = Consequences::default();
    for (state, route) in takers(ledger, arrival)? {
        if !state.is_persona() {
            let task = task(&state.id, arrival, (&route, &body, context.now()));
            found.tasks.push(task.id.clone());
            found.ops.push(Op::Enqueue(task));
            continue;
        }
        let to: PersonaName = state.name.parse().map_err(|e| refused(&e))?;
        let signal = compose(
            context,
            Draft {
                to: to.clone(),
                class: route.class,
                tags: BTreeSet::new(),
                topic: arrival.stream.clone(),
                text: body.clone(),
                from: format!("stream {}", arrival.stream),
                source: arrival.source.clone(),
                id: arrival.id.clone(),
                reply_to: answer_to(arrival, &route),
            },
        )?;
        let command = LoopCommand::Signal { signal: Box::new(signal) };
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        found.ops.push(Op::Signal { to: state.id.to_string(), by: context.caller.name(), body });
        found.personas.push(to);
    }
    Ok(found)
}

/// A task on the board of a loop. Its id follows from source and id, so the board has it once.
fn task(owner: &LoopId, arrival: &Arrival, (route, body, now): (&RouteSpec, &str, Time)) -> NewTask {
    let key = format!("{}/{}", arrival.source, arrival.id);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    // Different keys may look the same as words; their sums differ.
    let sum = everloop_core::journal::sum(key.as_bytes());
    let word: String = key.chars().map(plain).collect();
    NewTask {
        id: TaskId::new(format!("{owner}-entry-{word}-{sum:08x}")),
        owner: Some(owner.clone()),
        kind: AddTask::KIND.to_owned(),
        title: format!("entry {} of {}", arrival.id, arrival.stream),
        prompt: body.to_owned(),
        priority: route.priority,
        deps: Vec::new(),
        author: format!("stream {}", arrival.stream),
        trust: Trust::Agent,
        ready_at: now,
    }
}

/// Where the answer goes: where the entry says, else where the route says.
fn answer_to(arrival: &Arrival, route: &RouteSpec) -> Option<ReplyTo> {
    let field = |wanted: &str| {
        let value = arrival.fields.iter().find(|(name, value)| name == wanted && !value.is_empty());
        value.map(|(_, value)| value.clone())
    };
    let stream = field(REPLY_TO).or_else(|| route.reply.clone())?;
    Some(ReplyTo { stream, correlation: field(CORRELATION).unwrap_or_else(|| arrival.id.clone()) })
}

/// What a turn's agent adds wakes no more than its signals may, and stays in the ledger.
fn within_rights(context: &ServiceContext, ledger: &Sqlite, arrival: &Arrival) -> Result<(), Failure> {
    let answers = arrival.fields.iter().any(|(name, value)| name == REPLY_TO && value.contains(':'));
    if arrival.stream.contains(':') || answers {
        context.for_a_person("write to a stream outside of the ledger")?;
    }
    let own = context.own_loop(ledger)?.map(|state| state.id);
    for (state, route) in takers(ledger, arrival)? {
        if Some(&state.id) == own.as_ref() {
            return Err(Failure::usage(format!(
                "a turn may not add to `{}`, which leads to its own loop",
                arrival.stream
            ))
            .hint("end your last message with a line that holds nothing but <WAKE in 15m>, with the time to wait"));
        }
        if state.is_persona() && route.class == SignalClass::High {
            context.for_a_person("add to a stream whose route has class high")?;
        }
        if !state.is_persona() {
            context.for_a_person("add to a stream that leads to tasks of a loop")?;
        }
    }
    Ok(())
}

/// Refuses what is no name of a stream.
fn named(stream: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if !stream.is_empty() && stream.len() <= NAME_MAX_BYTES && stream.chars().all(plain) {
        return Ok(());
    }
    let shown: String = stream.chars().take(NAME_MAX_BYTES).flat_map(char::escape_debug).collect();
    Err(Failure::usage(format!("invalid name of a stream `{shown}`"))
        .hint(format!("up to {NAME_MAX_BYTES} letters, digits, `-`, `_`, `.`, `:` or `/`, like torch.continuous.ops")))
}

/// Refuses what no signal could have as its id.
fn checked(id: String) -> Result<String, Failure> {
    let chars = id.chars().count();
    if (1..=WORD_MAX_CHARS).contains(&chars) && !id.chars().any(|c| c == '/' || c.is_control()) {
        return Ok(id);
    }
    let shown: String = id.chars().take(NAME_MAX_BYTES).flat_map(char::escape_debug).collect();
    Err(Failure::usage(format!("`{shown}` cannot be the id of an entry"))
        .hint(format!("1 to {WORD_MAX_CHARS} characters without `/`")))
}

fn admit_new(ledger: &Sqlite, stream: &str) -> Result<(), Failure> {
    let streams = ledger.streams()?;
    if streams.len() < STREAMS_MAX || streams.iter().any(|row| row.name == stream) {
        return Ok(());
    }
    Err(Failure::usage(format!("there are {STREAMS_MAX} streams, so `{stream}` is not added"))
        .hint("`everloop stream list` shows them"))
}

/// The fields without secrets. A name stands for one value, which filters compare.
fn clean(fields: Vec<Field>) -> Result<Vec<Field>, Failure> {
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(Failure::usage(format!("an entry has {} fields", fields.len()))
            .hint(format!("1 to {FIELDS_MAX}, like status:RESTARTING")));
    }
    let (mut known, mut bytes) = (BTreeSet::new(), 0);
    for (name, value) in &fields {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Failure::usage(format!("`{}` is no name of a field", name.escape_debug())));
        }
        if !known.insert(name.clone()) {
            return Err(Failure::usage(format!("the field `{name}` stands twice in an entry")));
        }
        // As long as the line of a signal.
        bytes += name.len() + value.len() + ": \n".len();
    }
    if bytes > BODY_MAX_BYTES {
        return Err(refused(&SignalError::Body(bytes)));
    }
    Ok(fields.into_iter().map(|(name, value)| (name, without_secrets(&value))).collect())
}

/// A field as it is typed: `field:value` or `field=value`.
pub fn field(text: &str) -> Result<Field, String> {
    let (name, value) = text.split_once([':', '=']).ok_or("it is no field: field:value or field=value")?;
    Ok((name.to_owned(), value.to_owned()))
}
