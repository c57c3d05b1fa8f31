//! Cron expressions on wall clocks without a zone: five fields with `*`, lists, ranges and steps.

use super::{Civil, DAY_MINUTES};

/// Days within which an expression has to match: the 29th of February comes after eight years at
/// the latest.
const DAYS_LOOKED_AT: i64 = 8 * 366;

/// The first time after `after` that matches the expression. `None` if it cannot be read or never
/// matches.
pub fn next_match(expression: &str, after: Civil) -> Option<Civil> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
    let minutes = field(minutes, 0, 59)?;
    let hours = field(hours, 0, 23)?;
    let (in_month, in_year, in_week) = (field(days, 1, 31)?, field(months, 1, 12)?, field(weekdays, 0, 7)?);
    for day in after.day()..after.day() + DAYS_LOOKED_AT {
        let (month, of_month) = date(day);
        let weekday = (day + 4).rem_euclid(7);
        let in_weekday = in_week.contains(&weekday) || weekday == 0 && in_week.contains(&7);
        let on_month_day = in_month.contains(&of_month);
        // As in every cron: if both kinds of days are given, either is enough.
        let fits = if days != "*" && weekdays != "*" { on_month_day || in_weekday } else { on_month_day && in_weekday };
        if !fits || !in_year.contains(&month) {
            continue;
        }
        for hour in &hours {
            for minute in &minutes {
                let at = Civil(day * DAY_MINUTES + hour * 60 + minute);
                if at > after {
                    return Some(at);
                }
            }
        }
    }
    None
}

/// The values of a field, in order.
fn field(text: &str, low: i64, high: i64) -> Option<Vec<i64>> {
    let mut values = Vec::new();
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (from.parse().ok()?, to.parse().ok()?),
            None if range == "*" => (low, high),
            None => range.parse().map(|n: i64| (n, n)).ok()?,
        };
        if from < low || to > high || from > to {
            return None;
        }
        values.extend((from..=to).step_by(step));
    }
    values.sort_unstable();
    values.dedup();
    Some(values)
}

/// Month and day of the month of a day since 1970, in the Gregorian calendar (Hinnant's
/// `civil_from_days`).
fn date(day: i64) -> (i64, i64) {
    let z = day + 719_468;
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * shifted + 2) / 5 + 1;
    (if shifted < 10 { shifted + 3 } else { shifted - 9 }, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (day, expected) in [(0, (1, 1)), (58, (2, 28)), (59, (3, 1)), (789, (2, 29)), (20_543, (3, 31))] {
            assert_eq!(date(day), expected, "{day}");
        }
    }

    #[test]
    fn five_fields() {
        let next = |expression: &str, after: i64| next_match(expression, Civil(after)).map(|civil| civil.0);
        // The first day of 1970 was a Thursday.
        for (expression, after, expected) in [
            ("*/15 * * * *", 0, Some(15)),
            ("*/15 9-18 * * 1-5", 0, Some(540)),
            ("*/15 9-18 * * 1-5", 18 * 60 + 45, Some(DAY_MINUTES + 540)),
            ("30 2 * * *", 150, Some(DAY_MINUTES + 150)),
            ("0 0 1 2 *", 0, Some(31 * DAY_MINUTES)),
            ("0 0 * * 0", 0, Some(3 * DAY_MINUTES)),
            ("0 0 * * 7", 0, Some(3 * DAY_MINUTES)),
            ("0 0 31 2 *", 0, None),
            ("0 0 13 * 5", 0, Some(DAY_MINUTES)),
            ("0 0 * *", 0, None),
            ("61 0 * * *", 0, None),
            ("*/0 0 * * *", 0, None),
            ("x 0 * * *", 0, None),
        ] {
            assert_eq!(next(expression, after), expected, "{expression} after {after}");
        }
    }
}
