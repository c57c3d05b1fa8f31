//! A small world of personas: sources with storms, flurries and silence, deliveries that repeat, a
//! guard that holds, a machine that is off for days, and the rows of a ledger. Every promise of
//! rhythm is checked after every step; the first that is broken ends the year.

mod persona;

use std::time::Duration;

use everloop_core::jitter::mix;
use everloop_core::rhythm::calendar::TableCalendar;
use everloop_core::rhythm::factor::Hold;
use everloop_core::rhythm::signal::{Signal, SignalClass};
use everloop_core::time::Time;

use crate::{at, zones};
use persona::Persona;

/// Personas of a world: three of them are related to each other.
const PERSONAS: u64 = 6;
/// Signals that may be delivered again.
const SENT_KEPT: usize = 800;

/// What happened in a year.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub looks: u64,
    pub signals: u64,
    pub repeated: u64,
    pub passed_on: u64,
    pub holds: u64,
}

impl Sums {
    pub fn add(&mut self, other: Sums) {
        self.looks += other.looks;
        self.signals += other.signals;
        self.repeated += other.repeated;
        self.passed_on += other.passed_on;
        self.holds += other.holds;
    }

    /// Whether enough of everything happened.
    pub fn is_lively(self, years: u64) -> bool {
        let each = [self.repeated, self.passed_on, self.holds];
        self.looks > 1_000 * years && self.signals > 1_000 * years && each.into_iter().all(|n| n > years)
    }
}

/// Numbers that depend on a seed only.
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn) % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        let at = self.below(list.len() as u64) as usize;
        list[at].clone()
    }

    pub fn minutes(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most * 60_000))
    }
}

struct World {
    dice: Dice,
    calendar: TableCalendar,
    personas: Vec<Persona>,
    now: Time,
    serial: u64,
    sums: Sums,
    next_signal: Time,
    next_fault: Time,
    /// Signals that soon follow for one persona.
    flurry: (u64, u64),
    /// Signals that may be delivered again.
    sent: Vec<Signal>,
}

/// A year of a world; the first promise that is broken, if any.
pub fn year(seed: u64) -> Result<Sums, String> {
    let mut dice = Dice { seed, drawn: 0 };
    let (start, end) = (at(1, 2, 0, 0), at(12, 30, 0, 0));
    let personas = (0..PERSONAS).map(|n| Persona::new(n, PERSONAS, &mut dice)).collect();
    let mut world = World {
        dice,
        calendar: zones(),
        personas,
        now: start,
        serial: 0,
        sums: Sums::default(),
        next_signal: start,
        next_fault: start + Duration::from_secs(86_400),
        flurry: (0, 0),
        sent: Vec::new(),
    };
    for n in 0..world.personas.len() {
        world.replan(n)?;
    }
    while world.now < end {
        world.step()?;
    }
    Ok(world.sums)
}

impl World {
    fn step(&mut self) -> Result<(), String> {
        let own = self.personas.iter().map(Persona::due).min().unwrap_or(self.next_signal);
        let next = own.min(self.next_signal).min(self.next_fault);
        // What was missed while the machine was off is due at once.
        self.now = self.now.max(next);
        if next == self.next_fault {
            return self.fault();
        }
        if next == self.next_signal {
            return self.source();
        }
        let n = self.personas.iter().position(|persona| persona.due() == next).expect("one of them is due");
        self.personas[n].act(self.now, &self.calendar, &mut self.dice, &mut self.sums)?;
        self.replan(n)
    }

    fn replan(&mut self, n: usize) -> Result<(), String> {
        self.personas[n].replan(&self.calendar, self.now)
    }

    /// Something from a source: one signal, one again, a storm, or a long silence.
    fn source(&mut self) -> Result<(), String> {
        let burst = if self.dice.one_in(400) { 50 + self.dice.below(600) } else { 1 };
        if self.flurry.1 == 0 && self.dice.one_in(25) {
            self.flurry = (self.dice.below(PERSONAS), 12);
        }
        let to = if self.flurry.1 > 0 { self.flurry.0 } else { self.dice.below(PERSONAS) };
        self.flurry.1 = self.flurry.1.saturating_sub(1);
        for _ in 0..burst {
            let again = !self.sent.is_empty() && self.dice.one_in(8);
            let signal = if again {
                let at = self.dice.below(self.sent.len() as u64) as usize;
                self.sent[at].clone()
            } else {
                self.signal(to)
            };
            self.deliver(signal)?;
        }
        let pause = match self.flurry.1 {
            0 if self.dice.one_in(150) => self.dice.minutes(60 * 24 * 9),
            0 => self.dice.minutes(200),
            _ => self.dice.minutes(4),
        };
        self.next_signal = self.now + pause;
        Ok(())
    }

    fn signal(&mut self, to: u64) -> Signal {
        self.serial += 1;
        let classes = [SignalClass::Low, SignalClass::Low, SignalClass::Medium, SignalClass::High];
        let signal = Signal {
            id: self.serial.to_string(),
            to: persona::name(to),
            class: self.dice.pick(&classes),
            tags: [self.dice.pick(&["infra", "noise", "billing"]).to_owned()].into(),
            topic: self.dice.pick(&["deploy.eu", "deploy.us", "mail", ""]).to_owned(),
            body: String::new(),
            from: String::new(),
            // A sender's clock may be wrong.
            at: self.now - self.dice.minutes(5),
            source: self.dice.pick(&["cli", "redis:ops/a"]).to_owned(),
            passed_by: None,
            reply_to: None,
        };
        if self.sent.len() < SENT_KEPT {
            self.sent.push(signal.clone());
        } else {
            let at = self.dice.below(SENT_KEPT as u64) as usize;
            self.sent[at] = signal.clone();
        }
        signal
    }

    /// Delivers a signal and its copies.
    fn deliver(&mut self, signal: Signal) -> Result<(), String> {
        let mut open = vec![signal];
        let mut delivered = 0;
        while let Some(signal) = open.pop() {
            delivered += 1;
            if delivered > PERSONAS {
                return Err(format!("a signal goes in a circle: {}", signal.key()));
            }
            let n = self.personas.iter().position(|persona| persona.name == signal.to).expect("a persona of the world");
            let copies = self.personas[n].receive(&signal, self.now, &mut self.sums)?;
            if signal.passed_by.is_some() && !copies.is_empty() {
                return Err(format!("a copy is passed on: {}", signal.key()));
            }
            self.sums.passed_on += copies.len() as u64;
            open.extend(copies);
            self.replan(n)?;
        }
        Ok(())
    }

    /// Something goes wrong, or a person does something.
    fn fault(&mut self) -> Result<(), String> {
        let n = self.dice.below(PERSONAS) as usize;
        match self.dice.below(8) {
            0..=2 => {
                let until = self.now + self.dice.minutes(60 * 24);
                let frozen = Hold::Frozen { until: None };
                let holds =
                    [Hold::Cooling { until }, Hold::Limited { until }, Hold::Frozen { until: Some(until) }, frozen];
                self.personas[n].hold = Some(self.dice.pick(&holds));
                self.sums.holds += 1;
            }
            3 => self.personas[n].hold = None,
            4 | 5 => self.personas[n].summon(self.now),
            // The machine is off.
            6 => self.now = self.now + self.dice.minutes(60 * 24 * 4),
            // The clock is put back.
            _ => {
                self.now = self.now - self.dice.minutes(90);
                for n in 0..self.personas.len() {
                    self.replan(n)?;
                }
            }
        }
        self.next_fault = self.now + Duration::from_secs(1) + self.dice.minutes(60 * 24);
        self.replan(n)
    }
}
