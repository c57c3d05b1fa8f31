//! What a persona did in a period, from its journal: stretches of time, and the same as a strip of
//! cells for a terminal.

use std::time::Duration;

use serde::Serialize;

use super::factor::Hold;
use super::inward::Inward;
use super::persona::hold;
use super::state::RhythmStep;
use crate::event::Event;
use crate::reason::{Reason, RuleId};
use crate::time::Time;

/// What a persona is doing, according to its journal. In a cell of the strip the first of those
/// that fall into it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    Working,
    Dreaming,
    Reflecting,
    Frozen,
    Cooling,
    Looking,
    Blocked,
    Waiting,
    Paused,
    Asleep,
    Over,
}

impl Doing {
    /// All of them, in the order in which they count.
    pub const ALL: [Doing; 11] = [
        Doing::Working,
        Doing::Dreaming,
        Doing::Reflecting,
        Doing::Frozen,
        Doing::Cooling,
        Doing::Looking,
        Doing::Blocked,
        Doing::Waiting,
        Doing::Paused,
        Doing::Asleep,
        Doing::Over,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Doing::Working => "working",
            Doing::Dreaming => "dreaming",
            Doing::Reflecting => "reflecting",
            Doing::Frozen => "frozen",
            Doing::Cooling => "cooling",
            Doing::Looking => "looking",
            Doing::Blocked => "blocked",
            Doing::Waiting => "waiting",
            Doing::Paused => "paused",
            Doing::Asleep => "asleep",
            Doing::Over => "over",
        }
    }

    /// Its mark in a strip.
    pub fn mark(self) -> char {
        match self {
            Doing::Working => '#',
            Doing::Dreaming => 'd',
            Doing::Reflecting => 'r',
            Doing::Frozen => 'F',
            Doing::Cooling => 'c',
            Doing::Looking => 'o',
            Doing::Blocked => 'b',
            Doing::Waiting => 'w',
            Doing::Paused => 'p',
            Doing::Asleep => '.',
            Doing::Over => ' ',
        }
    }
}

/// A stretch of time; a look that found nothing has no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    pub from: Time,
    pub to: Time,
    pub doing: Doing,
}

/// The fold of a journal into stretches.
#[derive(Clone, Debug)]
pub struct StripFold {
    since: Time,
    doing: Doing,
    at: Time,
    /// The kind of the next turn.
    inward: Option<Inward>,
    stretches: Vec<Stretch>,
}

impl StripFold {
    /// A persona that is not there yet.
    pub fn new(since: Time) -> Self {
        Self { since, doing: Doing::Over, at: since, inward: None, stretches: Vec::new() }
    }

    /// Takes the next event; also those before the period, which decide how it begins.
    pub fn take(&mut self, event: &Event, at: Time) {
        match event {
            Event::Rhythm { step } => match step.as_ref() {
                RhythmStep::TurnedInward { inward, .. } => self.inward = Some(*inward),
                RhythmStep::Looked { .. } if at >= self.since => {
                    self.close(at);
                    self.stretches.push(Stretch { from: at, to: at, doing: Doing::Looking });
                }
                _ => {}
            },
            Event::TurnStarted { .. } => {
                let doing = match self.inward.take() {
                    None => Doing::Working,
                    Some(Inward::Reflection { .. }) => Doing::Reflecting,
                    Some(Inward::Dream) => Doing::Dreaming,
                };
                self.go_over(doing, at);
            }
            Event::LoopCreated { .. } | Event::TurnEnded { .. } => self.go_over(Doing::Looking, at),
            // A person's word may come while a turn is under way.
            Event::Woken { .. } | Event::Resumed { .. } if !self.is_in_turn() => self.go_over(Doing::Looking, at),
            Event::Paused { .. } if !self.is_in_turn() => self.go_over(Doing::Paused, at),
            Event::Waiting { reason } => self.go_over(waits(reason), at),
            Event::Ended { .. } => self.go_over(Doing::Over, at),
            _ => {}
        }
    }

    /// The stretches until now.
    pub fn finish(mut self, now: Time) -> Vec<Stretch> {
        self.close(now);
        self.stretches
    }

    fn go_over(&mut self, doing: Doing, at: Time) {
        if doing != self.doing {
            self.close(at);
            self.doing = doing;
        }
    }

    fn is_in_turn(&self) -> bool {
        [Doing::Working, Doing::Reflecting, Doing::Dreaming].contains(&self.doing)
    }

    fn close(&mut self, at: Time) {
        let (from, to) = (self.at.max(self.since), at);
        if to > from {
            self.stretches.push(Stretch { from, to, doing: self.doing });
        }
        self.at = self.at.max(at);
    }
}

/// What a wait is.
fn waits(reason: &Reason) -> Doing {
    match (hold(reason), reason.rule.clone()) {
        (Some(Hold::Frozen { .. }), _) => Doing::Frozen,
        (Some(Hold::Cooling { .. } | Hold::Limited { .. }), _) => Doing::Cooling,
        (None, RuleId::Resting) if reason.inputs.contains_key("flag") => Doing::Blocked,
        (None, RuleId::Resting) => Doing::Asleep,
        (None, RuleId::Paused | RuleId::Asleep) => Doing::Paused,
        (None, _) => Doing::Waiting,
    }
}

/// A strip of so many cells; each shows what counts most of what fell into it.
pub fn cells(stretches: &[Stretch], (since, now): (Time, Time), n: usize) -> Vec<Doing> {
    let all = now.since(since);
    let edge = |cell: usize| since + all.mul_f64(cell as f64 / n.max(1) as f64);
    let of = |cell: usize| {
        let (from, to) = (edge(cell), edge(cell + 1));
        let falls = |s: &&Stretch| s.from < to && s.to > from || s.from == s.to && (from..to).contains(&s.from);
        stretches.iter().filter(falls).map(|stretch| stretch.doing).min().unwrap_or(Doing::Over)
    };
    (0..n).map(of).collect()
}

/// How long it did what, without what it did not.
pub fn shares(stretches: &[Stretch]) -> Vec<(Doing, Duration)> {
    let of = |doing: Doing| stretches.iter().filter(|s| s.doing == doing).map(|s| s.to.since(s.from)).sum();
    Doing::ALL.into_iter().map(|doing| (doing, of(doing))).filter(|(_, time)| *time > Duration::ZERO).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::minutes;

    fn waiting(rule: RuleId) -> Event {
        Event::Waiting { reason: Reason::new(rule).until(Time(1_000_000_000)) }
    }

    fn started() -> Event {
        let started = r#"{"event":"turn_started","turn":"k-1.1","task":"k-1","fence":1,"number":1,
            "permit":{"scopes":[],"reserve":{"calls":1,"tokens":0,"microusd":0},"canary":null,"bucket":null}}"#;
        serde_json::from_str(started).expect("an event")
    }

    #[test]
    fn a_day_is_a_strip() {
        let (since, at) = (Time(0) + minutes(60), |n| Time(0) + minutes(n));
        let rhythm = |step| Event::Rhythm { step: Box::new(step) };
        let mut fold = StripFold::new(since);
        for (minute, event) in [
            (10, waiting(RuleId::Resting)),
            (90, rhythm(RhythmStep::Looked { at: at(90) })),
            (100, Event::Woken { by: String::new() }),
            (101, started()),
            (120, waiting(RuleId::Resting)),
            (140, rhythm(RhythmStep::TurnedInward { at: at(140), inward: Inward::Dream })),
            (140, started()),
            (150, waiting(RuleId::GuardFreeze)),
            (160, waiting(RuleId::GuardGap)),
            (170, waiting(RuleId::Resting)),
        ] {
            fold.take(&event, at(minute));
        }
        let found = fold.finish(at(180));
        let strip: String = cells(&found, (since, at(180)), 12).into_iter().map(Doing::mark).collect();
        assert_eq!(strip, "...o##..dFc.");
        let shares: Vec<(&str, u64)> =
            shares(&found).into_iter().map(|(doing, time)| (doing.as_str(), time.as_secs() / 60)).collect();
        assert_eq!(
            shares,
            [("working", 19), ("dreaming", 10), ("frozen", 10), ("cooling", 10), ("looking", 1), ("asleep", 70),]
        );
    }

    #[test]
    fn before_the_first_event_there_is_nothing() {
        assert_eq!(cells(&StripFold::new(Time(0)).finish(Time(9_000)), (Time(0), Time(9_000)), 3), [Doing::Over; 3]);
        assert_eq!(cells(&[], (Time(0), Time(0)), 2), [Doing::Over; 2]);
    }
}
