//! `everloop usage`: sums as a table, and below it how full the accounts' windows are.

use everloop_core::pacing::{AHEAD_PERMILLE, Window};
use everloop_core::time::Time;
use everloop_engine::tally::{UsageSum, UsageTally};

use super::quantities::{Accuracy, coarse, money, tokens};
use super::status::StatusStyle;
use super::table::Table;
use super::text::{clean, count, fit};

/// The sums and the windows.
pub fn usage_lines(tally: &UsageTally, look: &StatusStyle) -> Vec<String> {
    if tally.total.turns == 0 {
        let when = if tally.since.is_some() { " in this time" } else { " yet" };
        return vec![format!("no turn has ended{when}")];
    }
    let head = tally.by.label().to_uppercase();
    let mut table = Table::new(&[&head, "TURNS", "INPUT", "OUTPUT", "CACHED", "TOKENS", "COST"]);
    for (key, sum) in &tally.rows {
        table.row(row(&clean(key), sum));
    }
    if tally.rows.len() > 1 {
        table.row(row("total", &tally.total));
    }
    let mut lines = table.lines(look.width);
    for ((account, _), seen) in &tally.windows {
        let line = format!("account {}: {}", clean(account), clean(&window(seen, look.now)));
        lines.push(fit(&line, look.width));
        let until = seen.hold(AHEAD_PERMILLE, look.now).filter(|_| tally.paced.contains(account));
        lines.extend(until.map(|at| format!("  paced: its next start is in {}", coarse(at.since(look.now)))));
    }
    if tally.total.estimated {
        lines.push("~ is everloop's estimate, not the agent's report".to_owned());
    }
    if tally.total.from_telemetry > 0 {
        let turns = count(tally.total.from_telemetry, "turn");
        lines.push(format!("* {turns} by the agent's telemetry: its stream reported less or nothing"));
    }
    lines
}

fn row(name: &str, sum: &UsageSum) -> [String; 7] {
    let accuracy = Accuracy::from(sum);
    let some = |n: u64| if n == 0 { "-".to_owned() } else { tokens(n) };
    let star = if sum.from_telemetry > 0 { "*" } else { "" };
    let charged = |n: u64, mark: &str, text: String| match n {
        0 => "-".to_owned(),
        _ => format!("{mark}{text}{star}"),
    };
    [
        name.to_owned(),
        sum.turns.to_string(),
        some(sum.input),
        some(sum.output),
        some(sum.cache_read.saturating_add(sum.cache_write)),
        charged(sum.tokens, accuracy.of_tokens(), tokens(sum.tokens)),
        charged(sum.microusd, accuracy.of_dollars(), money(sum.microusd)),
    ]
}

/// `five_hour: 62 % used, resets in 2h 10m, at this pace 95 % at the reset`.
pub fn window(window: &Window, now: Time) -> String {
    let quota = &window.quota;
    let name = &quota.window;
    let Some(reset) = quota.reset_at else { return format!("{name}: {} used", percent(quota.used_permille)) };
    if window.is_over(now) {
        let last = percent(quota.used_permille);
        return format!("{name}: started anew {} ago ({last} were used)", coarse(now.since(reset)));
    }
    let said = format!("{name}: {} used, resets in {}", percent(quota.used_permille), coarse(reset.since(now)));
    match window.pace(now) {
        None => said,
        Some(pace) => match pace.empty_at {
            Some(empty) if empty <= now => format!("{said}, used up at this pace by now"),
            Some(empty) => {
                let before = coarse(reset.since(empty));
                format!("{said}, at this pace used up in {}, {before} before the reset", coarse(empty.since(now)))
            }
            None => format!("{said}, at this pace {} at the reset", percent(pace.at_reset_permille)),
        },
    }
}

fn percent(permille: u32) -> String {
    format!("{} %", permille.saturating_add(5) / 10)
}

#[cfg(test)]
mod tests {
    use everloop_core::stream::Quota;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::ui::Paint;
    use everloop_engine::tally::By;
    use everloop_testkit::sample::START;

    fn seen(used_permille: u32, reset_in_min: i64) -> Window {
        let reset_at = Some(Time(START.0 + reset_in_min * 60_000));
        Window { quota: Quota { window: "five_hour".into(), used_permille, reset_at, length_ms: None }, seen: START }
    }

    #[test]
    fn windows_say_where_they_lead() {
        assert_eq!(
            window(&seen(537, 130), START),
            "five_hour: 54 % used, resets in 2h 10m, at this pace 95 % at the reset"
        );
        assert_eq!(
            window(&seen(850, 130), START),
            "five_hour: 85 % used, resets in 2h 10m, at this pace used up in 30m, 1h 40m before the reset"
        );
        assert_eq!(window(&seen(850, -10), START), "five_hour: started anew 10m ago (85 % were used)");
        assert_eq!(window(&seen(10, 299), START), "five_hour: 1 % used, resets in 4h 59m");
    }

    #[test]
    fn sums_are_listed_with_a_total_and_estimates_marked() {
        let mut tally = UsageTally::new(By::Agent, TimeZone::UTC, None);
        let claude = UsageSum {
            turns: 3,
            input: 1200,
            output: 800,
            cache_read: 90_000,
            tokens: 92_000,
            microusd: 310_000,
            from_telemetry: 1,
            ..UsageSum::default()
        };
        let guess = |sum| UsageSum { estimated: true, tokens_estimated: true, ..sum };
        let bot = guess(UsageSum { turns: 2, microusd: 200_000, ..UsageSum::default() });
        let codex = UsageSum { turns: 1, tokens: 1000, microusd: 5000, estimated: true, ..UsageSum::default() };
        tally.rows.insert("claude".to_owned(), claude);
        tally.rows.insert("bot".to_owned(), bot);
        tally.rows.insert("codex".to_owned(), codex);
        tally.total = guess(UsageSum { turns: 6, microusd: 515_000, tokens: 93_000, ..claude });
        tally.windows.insert(("work".to_owned(), "five_hour".to_owned()), seen(537, 130));
        tally.windows.insert(("own".to_owned(), "five_hour".to_owned()), seen(650, 130));
        tally.paced.insert("own".to_owned());
        let look = StatusStyle { now: START, zone: TimeZone::UTC, paint: Paint::Off, width: 110 };
        insta::assert_snapshot!(usage_lines(&tally, &look).join("\n"), @r"
        AGENT   TURNS  INPUT  OUTPUT  CACHED  TOKENS  COST
        bot     2      -      -       -       -       ~$0.20
        claude  3      1200   800     90k     92k*    $0.31*
        codex   1      -      -       -       1000    ~$0.0050
        total   6      1200   800     90k     ~93k*   ~$0.52*
        account own: five_hour: 65 % used, resets in 2h 10m, at this pace used up in 1h 31m, 38m 28s before the reset
          paced: its next start is in 10m
        account work: five_hour: 54 % used, resets in 2h 10m, at this pace 95 % at the reset
        ~ is everloop's estimate, not the agent's report
        * 1 turn by the agent's telemetry: its stream reported less or nothing
        ");
        let empty = UsageTally::new(By::Day, TimeZone::UTC, None);
        assert_eq!(usage_lines(&empty, &look), ["no turn has ended yet"]);
    }
}
