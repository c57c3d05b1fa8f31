//! Signals to sleeping personas, and when the journal says that a permit was requested for each.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::jitter::mix;
use everloop_core::op::Op;
use everloop_core::reason::RuleId;
use everloop_core::rhythm::row::{WaitingSignal, row_id};
use everloop_core::rhythm::signal::{Signal, SignalClass};
use everloop_core::rhythm::state::RhythmStep;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode, Sqlite};

use super::population::{name, now};
use crate::Result;
use crate::measure::Times;
use crate::scene::{Scene, wait_long, wait_until};

/// Journal records read at once.
const CHUNK: usize = 2_000;

/// Signals at a steady rate, each to another persona as far as there are so many.
pub struct Storm<'a> {
    pub scene: &'a Scene,
    pub ids: &'a [LoopId],
    pub per_second: u32,
    pub length: Duration,
}

impl Storm<'_> {
    /// How long each took from before its commit to the request for a permit.
    pub fn run(&self) -> Result<Times> {
        let mut ledger = self.scene.ledger(OpenMode::ReadWrite)?;
        let from = ledger.last_seq()?;
        let (begun, step) = (Instant::now(), Duration::from_secs(1) / self.per_second);
        let many = self.per_second * u32::try_from(self.length.as_secs())?;
        let mut sent = BTreeMap::new();
        for number in 0..many {
            std::thread::sleep((step * number).saturating_sub(begun.elapsed()));
            // A step without a common divisor with the numbers of personas.
            let which = number as usize * 7_919 % self.ids.len();
            let id = format!("storm-{number}");
            sent.insert(id.clone(), (which, now()));
            send(self.scene, &mut ledger, (&self.ids[which], &name(which)), &id)?;
        }
        let mut times = BTreeMap::new();
        wait_long("all signals to wake their personas", || {
            times = wakes(&ledger, from)?;
            Ok(times.len() >= sent.len().min(self.ids.len()))
        })?;
        let took = sent.iter().filter_map(|(id, (_, at))| Some(times.get(id)?.since(*at)));
        Times::new(took.collect())
    }
}

/// Writes a signal as every source does, and wakes the supervisor.
fn send(scene: &Scene, ledger: &mut Sqlite, (to, persona): (&LoopId, &str), id: &str) -> Result<()> {
    let signal = signal(persona, id)?;
    let body = serde_json::to_string(&LoopCommand::Signal { signal: Box::new(signal) })?;
    ledger.transact(now(), &[Op::Signal { to: to.to_string(), by: "bench".to_owned(), body }])?;
    OpenOptions::new().write(true).open(scene.state().join("bell"))?.write_all(b".")?;
    Ok(())
}

fn signal(persona: &str, id: &str) -> Result<Signal> {
    Ok(Signal {
        id: id.to_owned(),
        to: persona.parse().map_err(|e| format!("{e}"))?,
        class: SignalClass::Medium,
        tags: [].into(),
        topic: "deploy.eu".to_owned(),
        body: "the deploy to eu failed".to_owned(),
        from: "bench".to_owned(),
        at: now(),
        source: "bench".to_owned(),
        passed_by: None,
        reply_to: None,
    })
}

/// By signal: when its persona, awake for it, requested a permit. One that works already takes it in
/// its next turn and is not counted.
fn wakes(ledger: &Sqlite, from: u64) -> Result<BTreeMap<String, Time>> {
    let mut open: BTreeMap<LoopId, String> = BTreeMap::new();
    let mut found = BTreeMap::new();
    each(ledger, from, |owner, at, event| match event {
        Event::Rhythm { step } => {
            if let RhythmStep::Received { key, .. } = &**step {
                let id = key.rsplit('/').next().unwrap_or_default();
                open.entry(owner.clone()).or_insert_with(|| id.to_owned());
            }
        }
        Event::TurnStarted { .. } => found.extend(open.remove(owner).map(|id| (id, at))),
        Event::Waiting { reason } if reason.rule != RuleId::Resting => {
            found.extend(open.remove(owner).map(|id| (id, at)));
        }
        _ => {}
    })?;
    Ok(found)
}

/// Looks that found nothing since this record.
pub fn looks(ledger: &Sqlite, from: u64) -> Result<u64> {
    let mut looks = 0;
    each(ledger, from, |_, _, event| {
        looks += u64::from(matches!(event, Event::Rhythm { step } if matches!(**step, RhythmStep::Looked { .. })));
    })?;
    Ok(looks)
}

fn each(ledger: &Sqlite, mut from: u64, mut see: impl FnMut(&LoopId, Time, &Event)) -> Result<()> {
    loop {
        let records = ledger.journal(from, None, CHUNK)?;
        let Some(last) = records.last() else { return Ok(()) };
        from = last.seq;
        for record in &records {
            if let Some(owner) = &record.owner {
                see(owner, record.at, &record.event);
            }
        }
    }
}

/// One signal after the other, each when the persona sleeps again; by `everloop signal`, if its
/// name is given.
pub fn one_by_one(scene: &Scene, ids: &[LoopId], samples: usize, by_name: Option<&str>) -> Result<Times> {
    let mut ledger = scene.ledger(OpenMode::ReadWrite)?;
    let (owner, how) = (&ids[0], if by_name.is_some() { "cli" } else { "bench" });
    let mut all = Vec::with_capacity(samples);
    for number in 0..samples {
        wait_until("the persona to sleep", || Ok(ledger.get_loop(owner)?.is_some_and(|row| row.phase == "asleep")))?;
        // So that the next one does not always meet the same moment of a timer.
        std::thread::sleep(Duration::from_millis(20 + mix(number as u64, 7) % 50));
        let (id, from) = (format!("{how}-{number}"), ledger.last_seq()?);
        match by_name {
            None => send(scene, &mut ledger, (owner, &name(0)), &id)?,
            Some(name) => drop(scene.finish(&["signal", name, "the deploy to eu failed", "--id", &id], 0)?),
        }
        let mut woken = None;
        wait_until("the persona to wake", || {
            woken = wakes(&ledger, from)?.remove(&id);
            Ok(woken.is_some())
        })?;
        let source = if by_name.is_some() { "cli" } else { "bench" };
        let known = Signal { source: source.to_owned(), ..signal(&name(0), &id)? };
        let row = ledger.task(&row_id(owner, &known))?.ok_or("the signal has no row")?;
        let sent = WaitingSignal::read(&row).ok_or("the row holds no signal")?.signal.at;
        all.extend(woken.map(|at| at.since(sent)));
    }
    Times::new(all)
}
