//! Rebuilds every state from the journal and compares it with the stored one. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::decide::scopes_of;
use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Guards, Scope};
use everloop_core::ids::LoopId;
use everloop_core::immune::Immune;
use everloop_core::journal::JournalRecord;
use everloop_core::research::shared::{self, SharedRun};
use everloop_core::state::LoopState;
use everloop_store::{Error, Ledger, LoopRow, Sqlite, replay as store_replay};
use serde_json::Value;

use crate::error::Failure;
use crate::immune;
use crate::record::read_state;

/// Records read at once after the first walk.
const CHUNK: usize = 512;
/// Rounds after which a journal that keeps growing is given up.
const ROUNDS: u32 = 100;

/// What a walk over the journal found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    pub events: u64,
    /// The first signed record; those before it were written by an everloop that did not sign.
    pub signed_from: Option<u64>,
    pub loops: usize,
    pub guards: usize,
    /// Places where a stored state is not what the journal says.
    pub differences: Vec<String>,
}

/// Verifies the journal of this ledger, record by record, and the states that follow from it.
pub fn audit(ledger: &Sqlite, only: Option<&LoopId>) -> Result<ReplayReport, Failure> {
    let (fold, stored) = walk(ledger)?;
    let signed_from = ledger.verify_chain().map_err(damaged)?;
    let differences = compare(&fold, &stored, only);
    let (loops, guards) = if only.is_some() { (1, 0) } else { (fold.loops.len(), fold.guards.len()) };
    Ok(ReplayReport { events: fold.events, signed_from, loops, guards, differences })
}

/// States rebuilt from the journal.
#[derive(Debug, Default)]
struct Fold {
    loops: BTreeMap<LoopId, LoopState>,
    guards: Guards,
    immune: Immune,
    /// Findings of research runs with several workers.
    shared: BTreeMap<LoopId, SharedRun>,
    events: u64,
    /// Loops that have events but were never created.
    unborn: Vec<String>,
    forgotten: BTreeSet<LoopId>,
}

impl Fold {
    fn take(&mut self, record: &JournalRecord) {
        self.events = record.seq;
        for scope in scopes_of(&record.event, &self.guards) {
            self.guards.entry(scope.clone()).or_default().state.apply(&scope, &record.event, record.at);
        }
        if let Event::Immune { step } = &record.event {
            self.immune.apply(step, record.at);
        }
        let Some(id) = &record.owner else { return };
        if record.event == Event::Forgotten {
            self.loops.remove(id);
            self.guards.remove(&Scope::Loop(id.clone()));
            self.forgotten.insert(id.clone());
            return;
        }
        // A ticket of it may be closed later.
        if self.forgotten.contains(id) {
            return;
        }
        match (self.loops.get_mut(id), &record.event) {
            (Some(state), event) => {
                state.apply(event, record.at);
                if let (Some(research), Some(run)) = (state.spec.research.as_deref(), state.shared_run()) {
                    self.shared.entry(run.clone()).or_default().apply(research, id, event);
                }
            }
            (None, Event::LoopCreated { name, spec }) => {
                let state = LoopState::new(id.clone(), name.clone(), (**spec).clone(), record.at);
                self.loops.insert(id.clone(), state);
            }
            (None, _) => self.unborn.push(format!("record {}: loop {id} was never created", record.seq)),
        }
    }
}

/// The states in the ledger.
#[derive(Debug, Default)]
struct Stored {
    loops: Vec<LoopRow>,
    guards: Guards,
    immune: Immune,
    shared: BTreeMap<LoopId, SharedRun>,
}

/// States are only ever written together with events. So when no record came while the states were
/// read, both belong together; otherwise the new records are folded in and the states are read
/// again.
fn walk(ledger: &Sqlite) -> Result<(Fold, Stored), Failure> {
    let mut fold = Fold::default();
    store_replay::replay(ledger, |record| fold.take(&record)).map_err(damaged)?;
    for _ in 0..ROUNDS {
        let (loops, guards) = (ledger.loops()?, ledger.guards()?);
        let stored = Stored { loops, guards, immune: immune::read(ledger)?.1, shared: read_shared(ledger)? };
        let new = ledger.journal(fold.events, None, CHUNK).map_err(damaged)?;
        if new.is_empty() {
            return Ok((fold, stored));
        }
        for record in &new {
            fold.take(record);
        }
    }
    Err(Failure::failed("gave up: the journal grows faster than it is read").hint("everloop down, then try again"))
}

fn read_shared(ledger: &Sqlite) -> Result<BTreeMap<LoopId, SharedRun>, Failure> {
    let unreadable = |why| Failure::failed(format!("cannot read the findings of a research run: {why}"));
    let rows = ledger.docs(shared::DOC)?.into_iter();
    rows.map(|row| Ok((LoopId::new(row.key), SharedRun::read(&row.body).map_err(unreadable)?))).collect()
}

fn damaged(error: Error) -> Failure {
    match error {
        Error::Damaged(damage) => Failure::failed(damage.to_string())
            .hint("nothing before this record is lost; `everloop doctor` checks the whole state folder"),
        other => other.into(),
    }
}

fn compare(fold: &Fold, stored: &Stored, only: Option<&LoopId>) -> Vec<String> {
    let wanted = |id: &LoopId| only.is_none_or(|o| o == id);
    let mut differences = if only.is_none() { fold.unborn.clone() } else { Vec::new() };
    for row in stored.loops.iter().filter(|r| wanted(&r.id)) {
        compare_loop(row, fold.loops.get(&row.id), &mut differences);
    }
    for id in fold.loops.keys().filter(|id| wanted(id)) {
        if !stored.loops.iter().any(|row| row.id == *id) {
            differences.push(format!("loop {id}: in the journal, but not stored"));
        }
    }
    let runs: BTreeSet<&LoopId> = fold.shared.keys().chain(stored.shared.keys()).collect();
    for run in runs.into_iter().filter(|run| wanted(run)) {
        let of = |all: &BTreeMap<LoopId, SharedRun>| value(&all.get(run).cloned().unwrap_or_default());
        paths(&format!("findings {run}"), &of(&fold.shared), &of(&stored.shared), &mut differences);
    }
    if only.is_none() {
        compare_guards(&fold.guards, &stored.guards, &mut differences);
        paths("quarantine", &value(&fold.immune), &value(&stored.immune), &mut differences);
    }
    differences
}

fn compare_loop(row: &LoopRow, told: Option<&LoopState>, differences: &mut Vec<String>) {
    let Some(told) = told else {
        return differences.push(format!("loop {}: stored, but not in the journal", row.id));
    };
    let state = match read_state(row) {
        Ok(state) => state,
        Err(failure) => return differences.push(failure.message),
    };
    if state != *told {
        paths(&format!("loop {}", row.id), &value(told), &value(&state), differences);
    }
    if row.phase != told.label() {
        differences.push(format!("loop {} listed as: journal `{}`, stored `{}`", row.id, told.label(), row.phase));
    }
}

fn compare_guards(told: &Guards, stored: &Guards, differences: &mut Vec<String>) {
    let empty = GuardState::default();
    let mut scopes: Vec<_> = told.keys().chain(stored.keys()).collect();
    scopes.sort();
    scopes.dedup();
    for scope in scopes {
        let of = |guards: &Guards| guards.get(scope).map_or(empty.clone(), |v| v.state.clone());
        let (told, stored) = (of(told), of(stored));
        if told != stored {
            paths(&format!("guard {scope}"), &value(&told), &value(&stored), differences);
        }
    }
}

fn value(state: &impl serde::Serialize) -> Value {
    serde_json::to_value(state).expect("states are plain data and always have a JSON form")
}

/// The places where two values differ, as paths.
fn paths(path: &str, told: &Value, stored: &Value, out: &mut Vec<String>) {
    match (told, stored) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                paths(&format!("{path}.{key}"), &of(a), &of(b), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                paths(&format!("{path}[{i}]"), a, b, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{path}: journal {}, stored {}", short(a), short(b))),
    }
}

fn short(value: &Value) -> String {
    const SHOWN_CHARS: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::op::{Op, Trust};
    use everloop_core::time::Time;

    use super::*;
    use everloop_testkit::sample::spec;

    fn ledger() -> Sqlite {
        let mut ledger = Sqlite::in_memory().unwrap();
        let id = LoopId::new("k3f9");
        let created = Event::LoopCreated { name: "tests".into(), spec: Box::new(spec()) };
        let steered = Event::Steered { by: "me".into(), message: "look at the parser".into(), trust: Trust::Operator };
        let mut state = LoopState::new(id.clone(), "tests".into(), spec(), Time(5));
        state.apply(&steered, Time(5));
        let save = Op::SaveLoop {
            id: id.clone(),
            version: 0,
            phase: "baseline".into(),
            state: serde_json::to_string(&state).unwrap(),
        };
        let append = Op::Append { owner: Some(id), events: vec![created, steered] };
        ledger.transact(Time(5), &[append, save]).unwrap();
        ledger
    }

    fn differences(ledger: &Sqlite) -> Vec<String> {
        audit(ledger, None).unwrap().differences
    }

    #[test]
    fn an_untouched_ledger_is_equal() {
        assert_eq!(differences(&ledger()), Vec::<String>::new());
    }

    #[test]
    fn a_state_that_was_changed_behind_the_journal_is_named_by_its_field() {
        let mut ledger = ledger();
        let row = ledger.loops().unwrap().remove(0);
        let changed = row.state.replace("look at the parser", "do nothing");
        let save = Op::SaveLoop { id: row.id, version: row.version, phase: row.phase, state: changed };
        ledger.transact(Time(6), &[save]).unwrap();
        assert_eq!(differences(&ledger), [r#"loop k3f9.notes[0]: journal "look at the parser", stored "do nothing""#]);
    }

    #[test]
    fn events_of_a_loop_that_was_never_made_are_told() {
        let mut ledger = ledger();
        let note = Event::Note { text: "x".into() };
        ledger.transact(Time(6), &[Op::Append { owner: Some(LoopId::new("zzzz")), events: vec![note] }]).unwrap();
        assert_eq!(differences(&ledger), ["record 3: loop zzzz was never created"]);
    }
}
