//! The factors of the next look, each with its numbers, as data and as a sentence for `why`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::DayRange;
use super::signal::SignalClass;
use crate::time::{Time, human, millis};

/// One thing that counted for the next look. In the order in which they were applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Factor {
    /// The persona has never looked.
    First,
    /// What the last look brought.
    Brought {
        tasks: u32,
        urgent: bool,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The interval is fixed.
    Fixed {
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// A part of the day has its own pace.
    Window { hours: DayRange },
    /// Looks in a row without work.
    Empty {
        times: u32,
        percent: u32,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The rate of signals against the noise floor, per day.
    Signals {
        recent_per_day: f64,
        usual_per_day: f64,
        factor_percent: u32,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The metabolism and its beat.
    Metabolism {
        percent: u32,
        failed_percent: u32,
        #[serde(with = "millis")]
        beat: Duration,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The interval was too short.
    Shortest {
        #[serde(with = "millis")]
        wanted: Duration,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The interval was too long.
    Longest {
        #[serde(with = "millis")]
        wanted: Duration,
        #[serde(with = "millis")]
        interval: Duration,
    },
    /// The agent's wish.
    Wish { text: String, at: Time },
    /// The agent's wish was beyond the bounds.
    WishCut { text: String, wanted: Time, at: Time },
    /// The agent's wish has no moment here, because the zone is not known.
    WishUnknown { text: String },
    /// It waits for a flag.
    Flag { flag: String, latest: Time },
    /// It waits for a topic.
    Topic { topic: String, latest: Time },
    /// The cron expression.
    Cron { expression: String, at: Time },
    /// Times of the cron expression passed; they are one look.
    Missed { times: u32 },
    /// The cron expression gives no time; the interval counts.
    CronUnknown { expression: String },
    /// The time is over already; that is one look, now.
    Overdue { since: Time },
    /// A signal wakes.
    Woken { class: SignalClass },
    /// A person wakes it.
    Person,
    /// More waited than one look takes.
    Backlog { left: u64 },
    /// The wake budget is used up for now.
    Budget { balance_milli: i64, until: Time },
    /// The wake budget is overdrawn for something urgent.
    Overdraft { balance_milli: i64 },
    /// The guard holds the persona.
    Held { hold: Hold },
    /// Quiet hours delay it.
    Quiet { hours: DayRange, until: Time },
}

/// What the guard holds a persona with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Hold {
    /// A cooldown or a backoff.
    Cooling { until: Time },
    /// A limit of the vendor, or its `retry-after`.
    Limited { until: Time },
    /// A freeze; without a time a person ends it.
    Frozen { until: Option<Time> },
}

impl Hold {
    /// When it ends by itself.
    pub fn until(&self) -> Option<Time> {
        match self {
            Hold::Cooling { until } | Hold::Limited { until } => Some(*until),
            Hold::Frozen { until } => *until,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Hold::Cooling { .. } => "a cooldown",
            Hold::Limited { .. } => "a limit of the account",
            Hold::Frozen { .. } => "a freeze",
        }
    }
}

impl Factor {
    /// The factor as a sentence. `clock` prints a moment for the reader's zone.
    pub fn describe(&self, clock: &dyn Fn(Time) -> String) -> String {
        match self {
            Factor::First => "it has never looked".to_owned(),
            Factor::Brought { tasks: 0, urgent: false, interval } => {
                format!("the last look brought nothing: {}", human(*interval))
            }
            Factor::Brought { tasks, urgent, interval } => {
                let urgent = if *urgent { ", something urgent" } else { "" };
                format!("the last look brought {}{urgent}: {}", count(*tasks, "task"), human(*interval))
            }
            Factor::Fixed { interval } => format!("a fixed interval: {}", human(*interval)),
            Factor::Window { hours } => format!("the pace of {}", hours.shown()),
            Factor::Empty { times, percent, interval } => {
                format!(
                    "{} in a row without work, ×{} each: {}",
                    count(*times, "look"),
                    ratio(*percent),
                    human(*interval)
                )
            }
            Factor::Signals { recent_per_day, usual_per_day, factor_percent, interval } => format!(
                "{recent_per_day:.1} signals a day against {usual_per_day:.1} as usual, ×{}: {}",
                ratio(*factor_percent),
                human(*interval)
            ),
            Factor::Metabolism { percent, failed_percent, beat, interval } => format!(
                "metabolism {percent} % ({failed_percent} % of the turns failed), beat {}: {}",
                human(*beat),
                human(*interval)
            ),
            Factor::Shortest { wanted, interval } => {
                format!("at least {} instead of {}", human(*interval), human(*wanted))
            }
            Factor::Longest { wanted, interval } => {
                format!("at most {} instead of {}", human(*interval), human(*wanted))
            }
            Factor::Missed { times } => format!("{} passed and are one look", count(*times, "time")),
            Factor::Overdue { since } => format!("it was due at {}", clock(*since)),
            other => other.describe_event(clock),
        }
    }

    /// Those about wishes, wakes and holds.
    fn describe_event(&self, clock: &dyn Fn(Time) -> String) -> String {
        match self {
            Factor::Wish { text, at } => format!("the agent wants to be woken {text}: {}", clock(*at)),
            Factor::WishCut { text, wanted, at } => {
                format!("the agent wants to be woken {text} ({}), cut to {}", clock(*wanted), clock(*at))
            }
            Factor::WishUnknown { text } => format!("the agent wants to be woken {text}, which has no time here"),
            Factor::Flag { flag, latest } => format!("it waits for `{flag}`, until {} at the latest", clock(*latest)),
            Factor::Topic { topic, latest } => {
                format!("it waits for topic `{topic}`, until {} at the latest", clock(*latest))
            }
            Factor::Cron { expression, at } => format!("cron `{expression}`: {}", clock(*at)),
            Factor::CronUnknown { expression } => format!("cron `{expression}` gives no time"),
            Factor::Woken { class } => format!("a {} signal wakes it", class.as_str()),
            Factor::Person => "a person wakes it".to_owned(),
            Factor::Backlog { left } => format!("{left} signals still wait"),
            Factor::Budget { balance_milli, until } => {
                format!("its wake budget has {} left until {}", milli(*balance_milli), clock(*until))
            }
            Factor::Overdraft { balance_milli } => {
                format!("urgent: its wake budget of {} is overdrawn", milli(*balance_milli))
            }
            Factor::Held { hold } => match hold.until() {
                Some(until) => format!("{} holds it until {}", hold.word(), clock(until)),
                None => format!("{} holds it until a person ends it", hold.word()),
            },
            Factor::Quiet { hours, until } => format!("quiet hours {}, until {}", hours.shown(), clock(*until)),
            Factor::First
            | Factor::Brought { .. }
            | Factor::Fixed { .. }
            | Factor::Window { .. }
            | Factor::Empty { .. }
            | Factor::Signals { .. }
            | Factor::Metabolism { .. }
            | Factor::Shortest { .. }
            | Factor::Longest { .. }
            | Factor::Missed { .. }
            | Factor::Overdue { .. } => self.describe(clock),
        }
    }
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A percentage as a factor: 150 is `1.5`.
fn ratio(percent: u32) -> String {
    format!("{}", f64::from(percent) / 100.0)
}

fn milli(n: i64) -> String {
    format!("{:.1}", n as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_have_their_numbers() {
        let clock = |at: Time| format!("T{}", at.0);
        let (hour, hours) = (Duration::from_secs(3600), DayRange { from: 0, to: 60 });
        for (factor, expected) in [
            (Factor::Brought { tasks: 0, urgent: false, interval: hour }, "the last look brought nothing: 1h"),
            (
                Factor::Brought { tasks: 1, urgent: true, interval: hour },
                "the last look brought 1 task, something urgent: 1h",
            ),
            (Factor::Empty { times: 3, percent: 150, interval: hour }, "3 looks in a row without work, ×1.5 each: 1h"),
            (
                Factor::WishCut { text: "in 1s".to_owned(), wanted: Time(1), at: Time(2) },
                "the agent wants to be woken in 1s (T1), cut to T2",
            ),
            (Factor::Flag { flag: "ci".to_owned(), latest: Time(9) }, "it waits for `ci`, until T9 at the latest"),
            (Factor::Held { hold: Hold::Frozen { until: None } }, "a freeze holds it until a person ends it"),
            (Factor::Held { hold: Hold::Cooling { until: Time(3) } }, "a cooldown holds it until T3"),
            (Factor::Overdraft { balance_milli: 500 }, "urgent: its wake budget of 0.5 is overdrawn"),
            (Factor::Quiet { hours, until: Time(4) }, "quiet hours 00:00 to 01:00, until T4"),
        ] {
            assert_eq!(factor.describe(&clock), expected);
            let stored = serde_json::to_string(&factor).expect("text");
            assert_eq!(serde_json::from_str::<Factor>(&stored).expect("the same"), factor);
        }
    }
}
