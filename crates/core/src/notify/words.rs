//! What people read: a message of one ticket or of many, and why a ticket is told, later, or not at all.

use super::{Alarm, Message, Severity, severity};
use crate::reason::Reason;
use crate::time::{Time, human};

/// What fits into a message of every kind of notifier but an SMS, which cuts for itself.
const TEXT_CHARS: usize = 1_500;
/// Tickets that a message lists; the others are counted.
const LISTED: usize = 10;
/// What is listed of each.
const LINE_CHARS: usize = 140;

/// One message about these tickets, each with how often it was told before.
pub fn message_of(tickets: &[(&Alarm, u32)]) -> Message {
    let severity = tickets.iter().map(|(a, _)| severity(&a.key)).max().unwrap_or_default();
    let key_of = |(alarm, times): &(&Alarm, u32)| format!("{:x}-{}-{}", alarm.opened_at.0, alarm.id, times + 1);
    let (key, title, text) = match tickets {
        [one @ (alarm, times)] => {
            let again = if *times == 0 { String::new() } else { format!(" (again, {})", times + 1) };
            let owner = alarm.owner.as_ref().map_or(String::new(), |id| format!(" loop {id}"));
            let title = format!("everloop #{}{owner}: {}{again}", alarm.id, severity.label());
            (key_of(one), title, clip(&alarm.text, TEXT_CHARS))
        }
        many => {
            let keys: Vec<String> = many.iter().map(key_of).collect();
            let key = format!("{}+{}-{:08x}", keys[0], many.len() - 1, crc32fast::hash(keys.join(",").as_bytes()));
            (key, format!("everloop: {} tickets, {}", many.len(), severity.label()), digest(many))
        }
    };
    let asks = matches!(tickets, [(alarm, _)] if alarm.key.starts_with("question:"));
    Message { key, severity, title, text, tickets: tickets.iter().map(|(a, _)| a.id).collect(), asks, refused: 0 }
}

/// The most important first, then the oldest.
fn digest(tickets: &[(&Alarm, u32)]) -> String {
    let mut sorted: Vec<&Alarm> = tickets.iter().map(|(a, _)| *a).collect();
    sorted.sort_by_key(|a| (std::cmp::Reverse(severity(&a.key)), a.id));
    let line = |a: &&Alarm| {
        let mark = if severity(&a.key) == Severity::Critical { "! " } else { "" };
        format!("{mark}#{} {}", a.id, clip(a.text.lines().next().unwrap_or_default(), LINE_CHARS))
    };
    let mut lines: Vec<String> = sorted.iter().take(LISTED).map(line).collect();
    if sorted.len() > LISTED {
        lines.push(format!("… and {} more: everloop ticket list", sorted.len() - LISTED));
    }
    lines.join("\n")
}

/// Not longer than this many characters.
fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Why a ticket is told now, later or not at all. `clock` prints a point in time for the reader's time zone.
pub fn sentence(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let said = match reason.rule.as_str() {
        "notify.due" => "is told now".to_owned(),
        "notify.queued" => "is being sent".to_owned(),
        "notify.route" => format!("is not for this notifier: it is {}", reason.input("severity")),
        "notify.acked" => "is not repeated: somebody has seen it".to_owned(),
        "notify.told" => format!("was told {} times, that is enough", reason.input("times")),
        "notify.repeat" => format!("was told {} times and is repeated", reason.input("times")),
        "notify.flapping" => "was told lately for the same cause".to_owned(),
        "notify.quiet" => "waits for the end of the quiet hours".to_owned(),
        "notify.storm" => "waits to be told together with others".to_owned(),
        "notify.down" => format!("cannot be sent: {}", reason.input("why")),
        other => other.to_owned(),
    };
    match reason.until.filter(|at| *at > now) {
        Some(at) => format!("{said}; next in {} (at {}) [{}]", human(at.since(now)), clock(at), reason.rule),
        None => format!("{said} [{}]", reason.rule),
    }
}
