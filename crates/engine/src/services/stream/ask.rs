//! A question as an entry: adds it, and waits for the answer of the turn that takes it.

use std::time::{Duration, Instant};

use everloop_agents::clock;
use everloop_core::op::streams::{Field, StreamEntry};
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::super::ServiceContext;
use super::super::signal::drawn;
use super::{Arrival, CORRELATION, EntryRequest, REPLY_TO, add, takers};
use crate::error::Failure;

/// How often the stream of the answers is read while a turn works.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Entries of that stream that are read at once.
const PAGE: usize = 100;
/// Streams of answers end with this, unless the question names one.
const ANSWERS: &str = ".answers";

/// An entry that is answered.
#[derive(Clone, Debug)]
pub struct AskRequest {
    pub stream: String,
    pub fields: Vec<Field>,
    /// How long the answer may take.
    pub within: Duration,
}

/// What became of a question.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    pub stream: String,
    pub correlation: String,
    /// The stream of the answer.
    pub reply_to: String,
    /// `None` if it did not come in time; it is added to the stream later.
    pub answer: Option<StreamEntry>,
}

/// Adds an entry with a stream for its answer, and waits for that.
pub fn ask(context: &ServiceContext, request: AskRequest) -> Result<Asked, Failure> {
    let AskRequest { stream, mut fields, within } = request;
    let mut field = |name: &str, without: &dyn Fn() -> String| {
        let found = fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        found.unwrap_or_else(|| {
            let value = without();
            fields.push((name.to_owned(), value.clone()));
            value
        })
    };
    let correlation = field(CORRELATION, &|| drawn(None));
    let reply_to = field(REPLY_TO, &|| format!("{stream}{ANSWERS}"));
    let home = context.home()?;
    let ledger = context.writer(&home)?;
    let (source, id) = (String::new(), correlation.clone());
    let question = Arrival { stream: stream.clone(), source, id, fields: fields.clone() };
    if !takers(&ledger, &question)?.iter().any(|(state, _)| state.is_persona()) {
        return Err(Failure::usage(format!("no persona takes this entry of `{stream}`, so nothing answers"))
            .hint("add a `[[route]]` from this stream to a persona, start it, and look at the route's `filter`"));
    }
    let mut after = ledger.streams()?.iter().find(|row| row.name == reply_to).map_or(0, |row| row.ends.last);
    drop(ledger);
    add(context, EntryRequest { stream: stream.clone(), fields, id: Some(correlation.clone()) })?;
    let ledger = context.writer(&home)?;
    let deadline = Instant::now() + clock::machine_period(within);
    loop {
        let answer = answered(&ledger, (&reply_to, &correlation), &mut after)?;
        if answer.is_some() || Instant::now() >= deadline {
            return Ok(Asked { stream, correlation, reply_to, answer });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Reads what is new of the answers, up to the wanted one.
fn answered(
    ledger: &Sqlite,
    (stream, correlation): (&str, &str),
    after: &mut u64,
) -> Result<Option<StreamEntry>, Failure> {
    loop {
        let page = ledger.entries(stream, *after, PAGE)?;
        let Some(last) = page.last() else { return Ok(None) };
        *after = last.id;
        let is_it = |(name, value): &Field| name == CORRELATION && value == correlation;
        if let Some(answer) = page.into_iter().find(|entry| entry.fields.iter().any(is_it)) {
            return Ok(Some(answer));
        }
    }
}
