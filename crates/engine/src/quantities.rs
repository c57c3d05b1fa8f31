//! Times, money and sizes in a readable form.

use std::time::Duration;

use everloop_core::event::Settled;
pub use everloop_core::event::used_up;
use everloop_core::guard::Spend;
use everloop_core::raise::RunLimits;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::state::{LoopSpend, LoopState, Phase};
use everloop_core::time::{Time, human};
use jiff::tz::TimeZone;

use crate::tally::UsageSum;
use crate::text::count;

/// `3 of 5 checks pass`.
pub fn score(board: &Scoreboard) -> String {
    match board.0.len() {
        0 => "no check has run yet".to_owned(),
        1 => format!("{} of 1 check passes", board.passing().len()),
        all => format!("{} of {all} checks pass", board.passing().len()),
    }
}

/// `in 12s`, `3m ago`, `now`.
pub fn relative(at: Time, now: Time) -> String {
    if at > now {
        format!("in {}", coarse(at.since(now)))
    } else if now.since(at) < Duration::from_secs(1) {
        "now".to_owned()
    } else {
        format!("{} ago", coarse(now.since(at)))
    }
}

/// A duration in its largest unit or two.
pub fn coarse(duration: Duration) -> String {
    let secs = duration.as_millis().div_ceil(1000) as u64;
    match secs {
        0..3600 => human(Duration::from_secs(secs)),
        _ => human(Duration::from_secs(secs / 60 * 60)),
    }
}

/// `21:04:05`, in the reader's zone.
pub fn clock(at: Time, zone: &TimeZone) -> String {
    zoned(at, zone).map_or_else(|| "--:--:--".to_owned(), |z| z.strftime("%H:%M:%S").to_string())
}

/// A point in time in the zone of this machine: `21:04:05` today, `16 Nov 21:04` on another day.
pub fn here(at: Time) -> String {
    moment(at, Time(jiff::Timestamp::now().as_millisecond()), &TimeZone::system())
}

/// `21:04:05` today, `16 Nov 21:04` on another day.
pub fn moment(at: Time, now: Time, zone: &TimeZone) -> String {
    match (zoned(at, zone), zoned(now, zone)) {
        (Some(then), Some(today)) if then.date() != today.date() => then.strftime("%-d %b %H:%M").to_string(),
        _ => clock(at, zone),
    }
}

fn zoned(at: Time, zone: &TimeZone) -> Option<jiff::Zoned> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|t| t.to_zoned(zone.clone()))
}

/// `$0.30`; small sums keep their digits, so that they do not look like nothing.
pub fn money(microusd: u64) -> String {
    let cents = microusd.div_ceil(10_000);
    match microusd {
        1..10_000 => format!("${:.4}", microusd as f64 / 1e6),
        _ => format!("${}.{:02}", cents / 100, cents % 100),
    }
}

/// `950`, `12k`, `1.2M`.
pub fn tokens(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1000),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// The duration of a check.
pub fn took(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis}ms"),
        1000..60_000 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        _ => human(Duration::from_secs(millis / 1000)),
    }
}

/// `~$0.30, ~12k tokens, 3 calls`; `~` marks estimates. Zeros are left out.
pub fn spend(spend: Spend, accuracy: Accuracy) -> String {
    let mut parts = Vec::new();
    if spend.microusd > 0 {
        parts.push(format!("{}{}", accuracy.of_dollars(), money(spend.microusd)));
    }
    if spend.tokens > 0 {
        parts.push(format!("{}{} tokens", accuracy.of_tokens(), tokens(spend.tokens)));
    }
    parts.push(count(spend.calls, "call"));
    parts.join(", ")
}

/// The source of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// everloop's own estimate.
    Estimated,
    /// Tokens by the agent's report, dollars by a list of prices.
    DollarsEstimated,
    /// The agent's report.
    Reported,
}

impl Accuracy {
    /// The mark before dollars.
    pub fn of_dollars(self) -> &'static str {
        if self == Accuracy::Reported { "" } else { "~" }
    }

    /// The mark before tokens.
    pub fn of_tokens(self) -> &'static str {
        if self == Accuracy::Estimated { "~" } else { "" }
    }

    fn new(estimated: bool, tokens_exact: bool) -> Self {
        match (estimated, tokens_exact) {
            (false, _) => Accuracy::Reported,
            (true, true) => Accuracy::DollarsEstimated,
            (true, false) => Accuracy::Estimated,
        }
    }
}

impl From<&LoopSpend> for Accuracy {
    fn from(spend: &LoopSpend) -> Self {
        Accuracy::new(spend.estimated, spend.tokens_exact)
    }
}

impl From<&Settled> for Accuracy {
    fn from(settled: &Settled) -> Self {
        Accuracy::new(settled.estimated, settled.tokens_exact)
    }
}

impl From<&UsageSum> for Accuracy {
    fn from(sum: &UsageSum) -> Self {
        Accuracy::new(sum.estimated, !sum.tokens_estimated)
    }
}

/// The most that a loop may still use, as a fragment. Turns that a person, a limit or a crash cut
/// short are not counted, so they are named once there were any.
pub fn ceiling(state: &LoopState, limits: &RunLimits, now: Time) -> String {
    let (bounds, budget) = (&limits.bounds, &limits.budget);
    let turns = bounds.max_turns.map(|n| u64::from(n.saturating_sub(state.counted())));
    let calls = budget.calls.map(|n| n.saturating_sub(state.spend.spent.calls));
    let turns = [turns, calls].into_iter().flatten().min();
    let more = if state.task.started > 0 { "more " } else { "" };
    let unit = if state.spec.research.is_some() { "experiment" } else { "turn" };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(turns.map(|n| format!("{n} {more}{unit}{}", if n == 1 { "" } else { "s" })));
    parts.extend(bounds.max_time.map(|time| human(time.saturating_sub(state.time_used(now)))));
    parts.extend(bounds.deadline.map(|at| format!("until {}", here(at))));
    let price = state.spec.agent.turn_microusd;
    let by_turns = turns.filter(|_| price > 0).map(|n| (n.saturating_mul(price), "~"));
    let left = budget.microusd.map(|most| (most.saturating_sub(state.spend.spent.microusd), ""));
    parts.extend(left.into_iter().chain(by_turns).min().map(|(most, mark)| format!("{mark}{}", money(most))));
    parts.extend(budget.tokens.map(|n| format!("{} tokens", tokens(n.saturating_sub(state.spend.spent.tokens)))));
    if parts.is_empty() {
        let pace = state.spec.guard.caps.per_day.map(|day| {
            let cost = u64::from(day).saturating_mul(price);
            let cost = if cost > 0 { format!(", ~{}", money(cost)) } else { String::new() };
            format!(" ({} a day{cost})", count(day, "turn"))
        });
        let end = match &state.spec.research {
            None => "it works until the checks pass",
            Some(research) if research.goal_value.is_some() => "it works until the goal value is reached",
            Some(_) => "it works until it is stopped",
        };
        return format!("no limit, {end}{}", pace.unwrap_or_default());
    }
    let under_way = u32::from(matches!(state.phase, Phase::Turn(_)));
    if bounds.max_turns.is_some() && state.task.started > state.counted() + under_way {
        parts.push("turns that were cut short not counted".to_owned());
    }
    parts.join(", ")
}

/// The flag of `run` and `resume` for a limit, with an example.
pub fn flag_of(bound: &str) -> &'static str {
    match bound {
        "time" => "--max-time 2h",
        "deadline" => "--deadline 2030-01-31T07:00",
        "calls" => "--max-calls 10",
        "tokens" => "--max-tokens 1000000",
        "dollars" => "--max-usd 5",
        _ => "-n 10",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_now() {
        let now = Time(100_000_000);
        assert_eq!(relative(Time(100_012_000), now), "in 12s");
        assert_eq!(relative(Time(100_000_001), now), "in 1s");
        assert_eq!(relative(Time(99_820_000), now), "3m ago");
        assert_eq!(relative(now, now), "now");
        assert_eq!(coarse(Duration::from_secs(3 * 3600 + 61)), "3h 1m");
    }

    #[test]
    fn clocks_show_the_day_when_it_is_another() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(clock(Time(0), &zone), "01:00:00");
        assert_eq!(moment(Time(0), Time(5), &zone), "01:00:00");
        assert_eq!(moment(Time(86_400_000 * 3), Time(5), &zone), "4 Jan 01:00");
        assert_eq!(clock(Time(i64::MAX), &zone), "--:--:--");
    }

    #[test]
    fn money_and_tokens_are_short_and_never_look_like_nothing() {
        assert_eq!([money(0), money(300_000), money(1500), money(12_345_678)], ["$0.00", "$0.30", "$0.0015", "$12.35"]);
        assert_eq!([tokens(950), tokens(12_345), tokens(1_234_567)], ["950", "12k", "1.2M"]);
        assert_eq!([took(0), took(1234), took(61_000)], ["0ms", "1.2s", "61s"]);
        let used = Spend { calls: 1, tokens: 0, microusd: 100_000 };
        assert_eq!(spend(used, Accuracy::Estimated), "~$0.10, 1 call");
        let used = Spend { tokens: 12_345, ..used };
        assert_eq!(spend(used, Accuracy::Estimated), "~$0.10, ~12k tokens, 1 call");
        assert_eq!(spend(used, Accuracy::DollarsEstimated), "~$0.10, 12k tokens, 1 call");
        assert_eq!(spend(used, Accuracy::Reported), "$0.10, 12k tokens, 1 call");
    }

    #[test]
    fn the_most_a_loop_may_use_is_said_before_it_starts() {
        let mut state = everloop_testkit::sample::state();
        let now = everloop_testkit::sample::START;
        let most = |state: &LoopState| ceiling(state, &RunLimits::of(state), now);
        assert_eq!(most(&state), "10 turns, ~$1.00");
        state.spec.guard.budget.microusd = Some(500_000);
        state.spec.bounds.max_time = Some(Duration::from_secs(8 * 3600));
        assert_eq!(most(&state), "10 turns, 8h, $0.50");
        (state.task.turns, state.task.started, state.spend.spent.microusd) = (4, 4, 300_000);
        assert_eq!(most(&state), "6 more turns, 8h, $0.20");
        state.task.started = 5;
        state.spec.bounds.deadline = Some(now);
        assert!(most(&state).contains(", until ") && most(&state).ends_with("turns that were cut short not counted"));
        state.spec.bounds = everloop_core::spec::Bounds::default();
        state.spec.guard.budget = everloop_core::spec::Budget::default();
        assert_eq!(most(&state), "no limit, it works until the checks pass (1000 turns a day, ~$100.00)");
    }
}
