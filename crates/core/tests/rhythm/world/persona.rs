//! A persona of the world with its rows, and what has to hold for it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use everloop_core::planted::{self, Bug};
use everloop_core::rhythm::bucket::WakeAllowance;
use everloop_core::rhythm::cadence::{Cadence, Profile};
use everloop_core::rhythm::calendar::{DayRange, TableCalendar};
use everloop_core::rhythm::factor::{Factor, Hold};
use everloop_core::rhythm::inward::InwardSpec;
use everloop_core::rhythm::metabolism::TurnOutcome;
use everloop_core::rhythm::next::{Hints, Next, WakeCause, next};
use everloop_core::rhythm::reflex::{ReflexSpec, SignalPattern};
use everloop_core::rhythm::row::TAKEN_AT_ONCE;
use everloop_core::rhythm::signal::{PersonaName, Signal, SignalClass};
use everloop_core::rhythm::state::{Effect, PersonaState, RhythmStep};
use everloop_core::rhythm::wish::WakeWish;
use everloop_core::time::Time;

use super::{Dice, Sums};

const DAY: Duration = Duration::from_secs(86_400);

pub fn name(n: u64) -> PersonaName {
    format!("p{n}").parse().expect("a name")
}

pub struct Persona {
    pub name: PersonaName,
    pub hold: Option<Hold>,
    cadence: Cadence,
    reflexes: ReflexSpec,
    state: PersonaState,
    inward: InwardSpec,
    /// Keys of all rows of the ledger, and those that wait, with what their signals did.
    rows: BTreeSet<String>,
    waiting: VecDeque<Effect>,
    next: Option<Next>,
    /// The end of the work of the present look.
    work: Option<Time>,
    /// The wake budget, counted in another way than in the product.
    tokens: f64,
    tokens_at: Time,
    last_low: Option<Time>,
}

impl Persona {
    pub fn new(n: u64, of: u64, dice: &mut Dice) -> Self {
        let mut cadence = dice.pick(&Profile::ALL).cadence();
        let zone = dice.pick(&["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]);
        zone.clone_into(&mut cadence.zone);
        cadence.metabolic = dice.one_in(3);
        let per = Duration::from_secs(3600);
        cadence.wakes =
            dice.pick(&[None, Some(WakeAllowance { wakes: 4, per }), Some(WakeAllowance { wakes: 1, per })]);
        cadence.quiet = if dice.one_in(3) { Some(DayRange { from: 22 * 60, to: 7 * 60 }) } else { None };
        let crons = [None, None, None, Some("*/15 9-18 * * 1-5"), Some("30 2 * * *"), Some("0 */3 * * *")];
        cadence.cron = dice.pick(&crons).map(str::to_owned);
        // The first three are related to each other.
        let related = if n < 3 { (0..3.min(of)).map(name).collect() } else { Vec::new() };
        let ignore = if dice.one_in(2) { vec![SignalPattern::new("tag:noise")] } else { Vec::new() };
        let wake_on =
            if dice.one_in(4) { vec![SignalPattern::new("infra"), SignalPattern::new("mail")] } else { Vec::new() };
        Self {
            name: name(n),
            hold: None,
            tokens: cadence.wakes.map_or(0.0, |wakes| f64::from(wakes.wakes)),
            cadence,
            reflexes: ReflexSpec { related, ignore, wake_on, ..ReflexSpec::default() },
            state: PersonaState::default(),
            inward: InwardSpec::default(),
            rows: BTreeSet::new(),
            waiting: VecDeque::new(),
            next: None,
            work: None,
            tokens_at: Time(0),
            last_low: None,
        }
    }

    /// When it acts by itself.
    pub fn due(&self) -> Time {
        match (&self.work, &self.next) {
            (Some(end), _) => *end,
            (None, Some(next)) => next.at,
            (None, None) => Time(i64::MAX),
        }
    }

    fn broken<T>(&self, what: &str, found: &dyn std::fmt::Debug) -> Result<T, String> {
        Err(format!("{}: {what}: {found:?}", self.name))
    }

    fn apply(&mut self, step: &RhythmStep) {
        self.state.apply(step, &self.cadence, &self.inward);
    }

    // ------------------------------------------------------------------------- signals

    pub fn receive(&mut self, signal: &Signal, now: Time, sums: &mut Sums) -> Result<Vec<Signal>, String> {
        let known = self.rows.contains(&signal.key());
        // The product asks the ledger for the row, see `decide/rhythm.rs`.
        if known && !planted::is(Bug::RhythmTakesTwice) {
            sums.repeated += 1;
            return Ok(Vec::new());
        }
        if known {
            return self.broken("a signal is taken twice", &signal.key());
        }
        let (effect, pass_on) = self.state.receive(&self.reflexes, signal, now);
        self.check_effect(signal, effect, now)?;
        self.rows.insert(signal.key());
        self.waiting.push_back(effect);
        sums.signals += 1;
        self.apply(&RhythmStep::Received { at: now, key: signal.key(), effect });
        self.check_rows()?;
        Ok(pass_on)
    }

    /// The classes, counted in another way than in the product.
    fn check_effect(&mut self, signal: &Signal, effect: Effect, now: Time) -> Result<(), String> {
        let has = |pattern: &SignalPattern| pattern.matches(signal);
        let wanted = self.reflexes.wake_on.is_empty() || self.reflexes.wake_on.iter().any(has);
        if self.reflexes.ignore.iter().any(has) || !wanted {
            return if effect == Effect::Ignored { Ok(()) } else { self.broken("an ignored signal wakes", signal) };
        }
        let waits = matches!(&self.state.history.wish, Some(WakeWish::On { .. } | WakeWish::When { .. }));
        let second = self.last_low.is_some_and(|last| now.0 - last.0 <= 600_000);
        match (signal.class, effect) {
            (SignalClass::Low, Effect::Wakes { .. }) if !second && !waits => {
                self.broken("the first low one wakes", signal)
            }
            (SignalClass::Low, Effect::Faint) if second => self.broken("the second low one does not wake", signal),
            (SignalClass::Medium | SignalClass::High, Effect::Faint | Effect::Ignored) => {
                self.broken("it does not wake", signal)
            }
            _ => {
                if effect == Effect::Faint {
                    self.last_low = Some(now);
                }
                Ok(())
            }
        }
    }

    fn check_rows(&self) -> Result<(), String> {
        let (waiting, taken) = (self.waiting.len() as u64, self.rows.len() as u64 - self.waiting.len() as u64);
        if (self.state.waiting, self.state.yields.taken) != (waiting, taken) {
            return self.broken(
                "rows that wait and were taken",
                &(self.state.waiting, waiting, self.state.yields.taken, taken),
            );
        }
        let wakes = |effect: &Effect| matches!(effect, Effect::Wakes { .. });
        if self.work.is_none() && self.waiting.iter().any(wakes) && self.state.history.pending.is_none() {
            return self.broken("a signal that wakes waits without a wake", &waiting);
        }
        Ok(())
    }

    pub fn summon(&mut self, at: Time) {
        self.apply(&RhythmStep::Summoned { at });
    }

    // --------------------------------------------------------------------- the next look

    pub fn replan(&mut self, calendar: &TableCalendar, now: Time) -> Result<(), String> {
        if self.hold.as_ref().and_then(Hold::until).is_some_and(|until| until <= now) {
            self.hold = None;
        }
        let hints = Hints { calendar, hold: self.hold.as_ref() };
        let found = next(&self.cadence, &self.state.history, &hints, now);
        if found != next(&self.cadence, &self.state.history, &hints, now) {
            return self.broken("the same question has another answer", &found);
        }
        if found.at < now {
            return self.broken("the next look is over", &(now, &found));
        }
        let held = self.hold.as_ref().map(|hold| hold.until().unwrap_or(now + self.cadence.longest));
        if held.is_some_and(|until| found.at < until) {
            return self.broken("a hold is passed over", &(&self.hold, &found));
        }
        self.check_bound(&found, now)?;
        let sentences = found.describe(&|at| format!("{}", at.0));
        if sentences.is_empty() || sentences.iter().any(String::is_empty) {
            return self.broken("the next look is not explained", &found);
        }
        self.next = Some(found);
        Ok(())
    }

    /// A look is never further away than the longest nap and what is named as a delay.
    fn check_bound(&self, found: &Next, now: Time) -> Result<(), String> {
        let mut most = now + self.cadence.longest;
        for factor in &found.because {
            match factor {
                Factor::Cron { at, .. } => most = most.max(*at),
                Factor::Budget { until, .. } => most = most.max(*until).min(most + Duration::from_secs(4 * 3600)),
                Factor::Held { hold } => most = most.max(hold.until().unwrap_or(most)),
                Factor::Quiet { until, .. } => most = most.max(*until).min(most + DAY),
                _ => {}
            }
        }
        if found.at > most { self.broken("the next look is too far away", &(now, found)) } else { Ok(()) }
    }

    // ------------------------------------------------------------------------------ looks

    pub fn act(&mut self, now: Time, calendar: &TableCalendar, dice: &mut Dice, sums: &mut Sums) -> Result<(), String> {
        match self.work.take() {
            Some(_) => self.rest(now, calendar, dice),
            // The guard permits nothing: nothing is taken and nothing starts.
            None if self.hold.as_ref().is_some_and(|hold| hold.until().is_none_or(|until| until > now)) => Ok(()),
            None => {
                // A hold or a clock may have changed since the timer was set.
                self.replan(calendar, now)?;
                if self.next.as_ref().is_some_and(|next| next.at > now) {
                    return Ok(());
                }
                self.look(now, dice, sums)
            }
        }
    }

    fn look(&mut self, now: Time, dice: &mut Dice, sums: &mut Sums) -> Result<(), String> {
        let cause = self.state.history.pending.clone();
        self.charge(cause.as_ref(), now)?;
        self.last_low = None;
        sums.looks += 1;
        let work = self.state.has_signals() || dice.one_in(20);
        if !work {
            self.apply(&RhythmStep::Looked { at: now });
            return self.check_rows();
        }
        let taken = self.waiting.len().min(TAKEN_AT_ONCE);
        // Ignored ones are behind the others, as their rows are in the ledger.
        self.waiting.make_contiguous().sort_by_key(|effect| *effect == Effect::Ignored);
        let ignored = self.waiting.drain(..taken).filter(|effect| *effect == Effect::Ignored).count() as u64;
        let replies = Vec::new();
        self.apply(&RhythmStep::Began { at: now, cause, taken: taken as u64, ignored, plan: None, replies });
        let long = if dice.one_in(4) { dice.minutes(10) } else { Duration::ZERO };
        self.work = Some(now + long);
        self.check_rows()
    }

    fn charge(&mut self, cause: Option<&WakeCause>, now: Time) -> Result<(), String> {
        let Some(wakes) = self.cadence.wakes.filter(|_| cause != Some(&WakeCause::Person)) else { return Ok(()) };
        let full = f64::from(wakes.wakes);
        let refill = now.since(self.tokens_at).as_secs_f64() * full / wakes.per.as_secs_f64();
        self.tokens = (self.tokens + refill).min(full) - 1.0;
        self.tokens_at = self.tokens_at.max(now);
        let least = if cause.is_some_and(WakeCause::is_urgent) { -1.0 } else { 0.0 };
        if self.tokens < least - 0.001 {
            self.broken("the wake budget is exceeded", &(self.tokens, cause))
        } else {
            Ok(())
        }
    }

    fn rest(&mut self, now: Time, calendar: &TableCalendar, dice: &mut Dice) -> Result<(), String> {
        let outcome = if dice.one_in(5) { TurnOutcome::Failed } else { TurnOutcome::Good };
        let wish = if dice.one_in(10) { Some(wish(dice)) } else { None };
        let wished = wish.is_some();
        self.apply(&RhythmStep::Rested { at: now, outcome, wish });
        self.check_rows()?;
        self.replan(calendar, now)?;
        let Some(next) = &self.next else { return self.broken("it rests without a next look", &now) };
        let plain = self.state.history.pending.is_none() && !wished && self.cadence.cron.is_none();
        let delayed = next
            .because
            .iter()
            .any(|f| matches!(f, Factor::Budget { .. } | Factor::Held { .. } | Factor::Quiet { .. }));
        let windowed = next.because.iter().any(|f| matches!(f, Factor::Window { .. }));
        if plain && !delayed && !windowed && !self.cadence.fixed && next.at.since(now) > self.cadence.pace.few * 4 {
            return self.broken("work does not snap back", next);
        }
        if self.state.history.pending.is_none() && next.at <= now {
            return self.broken("it looks again at once, without a reason", next);
        }
        Ok(())
    }
}

/// Any wish, also beyond all bounds.
fn wish(dice: &mut Dice) -> WakeWish {
    match dice.below(6) {
        0 => WakeWish::In { wait: Duration::from_secs(dice.below(20)) },
        1 => WakeWish::In { wait: dice.minutes(60 * 24 * 60) },
        2 => WakeWish::At { minute: dice.below(1440) as u16 },
        3 => WakeWish::Tomorrow,
        4 => WakeWish::On { topic: "deploy.*".to_owned(), or_in: None },
        _ => WakeWish::When { flag: "mail".to_owned() },
    }
}
