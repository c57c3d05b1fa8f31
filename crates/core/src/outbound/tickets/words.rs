//! Texts for people: a message about one ticket or many, and why a ticket is sent now, later, or
//! not at all.

use super::super::{Button, Delivery};
use super::{Alert, ReplyAction, Severity, severity};
use crate::reason::{Reason, RuleId};
use crate::time::{Time, human};

/// Maximum length of a message; fits every kind of notifier but an SMS, which cuts for itself.
const TEXT_CHARS: usize = 1_500;
/// Maximum number of tickets listed in a message; the others are counted.
const LISTED: usize = 10;
/// Maximum length of each listed line.
const LINE_CHARS: usize = 140;

/// One message about these tickets, each with the number of its earlier reports.
pub fn message_of(tickets: &[(&Alert, u32)]) -> Delivery {
    let severity = tickets.iter().map(|(a, _)| severity(&a.key)).max().unwrap_or_default();
    let key_of = |(alert, times): &(&Alert, u32)| format!("{:x}-{}-{}", alert.opened_at.0, alert.id, times + 1);
    let (key, title, text) = match tickets {
        [one @ (alert, times)] => {
            let again = if *times == 0 { String::new() } else { format!(" (again, {})", times + 1) };
            let owner = alert.owner.as_ref().map_or(String::new(), |id| format!(" loop {id}"));
            let title = format!("everloop #{}{owner}: {}{again}", alert.id, severity.label());
            (key_of(one), title, clip(&alert.text, TEXT_CHARS))
        }
        many => {
            let keys: Vec<String> = many.iter().map(key_of).collect();
            let key = format!("{}+{}-{:08x}", keys[0], many.len() - 1, crc32fast::hash(keys.join(",").as_bytes()));
            (key, format!("everloop: {} tickets, {}", many.len(), severity.label()), digest(many))
        }
    };
    let buttons = if let [(alert, _)] = tickets { buttons(alert) } else { Vec::new() };
    Delivery {
        key,
        severity,
        title,
        text,
        tickets: tickets.iter().map(|(a, _)| a.id).collect(),
        buttons,
        ..Delivery::default()
    }
}

/// Replies to a ticket with one press.
fn buttons(alert: &Alert) -> Vec<Button> {
    let id = alert.id;
    let answer = |label: &str, word: &str| Button { label: label.to_owned(), data: format!("answer:{id}:{word}") };
    let mut buttons = match alert.key.split_once(':').map_or("", |(kind, _)| kind) {
        "question" => vec![answer("Yes", "yes"), answer("No", "no")],
        "permission" => {
            vec![answer("Allow once", "allow"), answer("Always in this loop", "always"), answer("Deny", "deny")]
        }
        "permission.later" => vec![answer("Always in this loop", "always"), answer("Deny", "deny")],
        "guard.freeze" => vec![answer("Release", "released with a button")],
        _ => Vec::new(),
    };
    buttons.push(Button { label: "Seen".to_owned(), data: format!("ack:{id}") });
    buttons
}

/// Meaning of a pressed button.
pub fn pressed(data: &str) -> Option<ReplyAction> {
    match data.split_once(':')? {
        ("ack", id) => Some(ReplyAction::Ack { ticket: id.parse().ok()? }),
        ("answer", rest) => {
            let (id, text) = rest.split_once(':')?;
            Some(ReplyAction::Answer { ticket: id.parse().ok()?, text: text.to_owned() })
        }
        _ => None,
    }
}

/// Meaning of a text reply: `/ack 17`, `/answer 17 yes`, `#17 yes`, or a reply to the message
/// `about`.
pub fn replied(text: &str, about: Option<&str>) -> Option<ReplyAction> {
    let text = text.trim();
    let answer = |ticket: u64, text: &str| ReplyAction::Answer { ticket, text: text.trim().to_owned() };
    if let Some(rest) = text.strip_prefix("/ack") {
        let ticket = number(rest.trim()).or_else(|| about.and_then(named))?;
        return Some(ReplyAction::Ack { ticket });
    }
    let rest = text.strip_prefix("/answer").map_or(text, str::trim);
    let (first, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let addressed = first.starts_with('#') || text.starts_with("/answer");
    let action = match number(first).filter(|_| addressed) {
        Some(ticket) => answer(ticket, words),
        None if text.starts_with('/') => return None,
        None => answer(about.and_then(named)?, text),
    };
    matches!(&action, ReplyAction::Answer { text, .. } if !text.is_empty()).then_some(action)
}

fn number(word: &str) -> Option<u64> {
    word.trim_start_matches('#').parse().ok()
}

/// The single ticket that a message of everloop is about.
fn named(message: &str) -> Option<u64> {
    let rest = message.strip_prefix("everloop #")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The most important first, then the oldest.
fn digest(tickets: &[(&Alert, u32)]) -> String {
    let mut sorted: Vec<&Alert> = tickets.iter().map(|(a, _)| *a).collect();
    sorted.sort_by_key(|a| (std::cmp::Reverse(severity(&a.key)), a.id));
    let line = |a: &&Alert| {
        let mark = if severity(&a.key) == Severity::Critical { "! " } else { "" };
        format!("{mark}#{} {}", a.id, clip(a.text.lines().next().unwrap_or_default(), LINE_CHARS))
    };
    let mut lines: Vec<String> = sorted.iter().take(LISTED).map(line).collect();
    if sorted.len() > LISTED {
        lines.push(format!("… and {} more: everloop ticket list", sorted.len() - LISTED));
    }
    lines.join("\n")
}

/// Cuts to this many characters.
fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Why a ticket is sent now, later or not at all. `clock` prints a point in time for the reader's
/// time zone.
pub fn sentence(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let said = match &reason.rule {
        RuleId::NotifyDue => "is sent now".to_owned(),
        RuleId::NotifyQueued => "is being sent".to_owned(),
        RuleId::NotifyRoute => format!("is not for this notifier: it is {}", reason.input("severity")),
        RuleId::NotifyAcked => "is not repeated: it was acknowledged".to_owned(),
        RuleId::NotifyTold => format!("was sent {} times, the maximum", reason.input("times")),
        RuleId::NotifyRepeat => format!("was sent {} times and is repeated", reason.input("times")),
        RuleId::NotifyFlapping => "was sent recently for the same cause".to_owned(),
        RuleId::NotifyQuiet => "waits for the end of the quiet hours".to_owned(),
        RuleId::NotifyStorm => "waits to be sent together with others".to_owned(),
        RuleId::NotifyDown => format!("cannot be sent: {}", reason.input("why")),
        other => other.to_string(),
    };
    match reason.until.filter(|at| *at > now) {
        Some(at) => format!("{said}; next in {} (at {}) [{}]", human(at.since(now)), clock(at), reason.rule),
        None => format!("{said} [{}]", reason.rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pressed_or_written_back_is_understood() {
        let alert = |key: &str| Alert {
            id: 17,
            key: key.to_owned(),
            owner: None,
            text: "may I?".to_owned(),
            opened_at: Time(1),
            acked: false,
        };
        let asked = alert("question:k3f9:1");
        let message = message_of(&[(&asked, 0)]);
        let actions: Vec<Option<ReplyAction>> = message.buttons.iter().map(|b| pressed(&b.data)).collect();
        let answer = |text: &str| Some(ReplyAction::Answer { ticket: 17, text: text.to_owned() });
        assert_eq!(actions, [answer("yes"), answer("no"), Some(ReplyAction::Ack { ticket: 17 })]);
        assert!(message.buttons.iter().all(|b| b.data.len() <= 64), "that is all that Telegram takes");
        assert_eq!(message_of(&[(&alert("guard.freeze:account:default"), 0)]).buttons[0].label, "Release");
        let labels = |key: &str| -> Vec<String> {
            message_of(&[(&alert(key), 0)]).buttons.iter().map(|button| button.label.clone()).collect()
        };
        assert_eq!(labels("permission:a"), ["Allow once", "Always in this loop", "Deny", "Seen"]);
        assert_eq!(labels("permission.later:a"), ["Always in this loop", "Deny", "Seen"]);
        for (text, action) in [
            ("/ack 17", Some(ReplyAction::Ack { ticket: 17 })),
            ("/ack", Some(ReplyAction::Ack { ticket: 17 })),
            ("/answer 17 use 3.9", answer("use 3.9")),
            ("#17 use 3.9", answer("use 3.9")),
            ("use 3.9", answer("use 3.9")),
            ("3 of them", answer("3 of them")),
            ("/start", None),
            ("#17", None),
            ("", None),
        ] {
            assert_eq!(replied(text, Some(&message.title)), action, "{text}");
        }
        assert_eq!(replied("use 3.9", None), None, "it names no ticket");
        assert_eq!(pressed("ack:x"), None);
    }
}
