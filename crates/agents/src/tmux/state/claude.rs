//! The screen of Claude Code: session text, input box between two rules, status lines below it; or
//! a dialog in its place.

use super::{Limit, PaneView, State, after, is_spinner, question};

/// Rules span the whole width; model output never begins at the left edge, so it cannot contain
/// one.
const RULE: &str = "────────";
/// The upper edge of a menu.
const MENU_EDGE: &str = "▔▔▔▔▔▔▔▔";

/// The beginning of its words about a limit.
const REACHED: &str = "Usage limit reached";

/// The input box.
struct Box<'a> {
    conversation: &'a [&'a str],
    input: &'a [&'a str],
    below: &'a [&'a str],
}

pub(super) fn detect(lines: &[&str], sight: &PaneView) -> State {
    let Some(Box { conversation, below, .. }) = find_box(lines) else { return dialog(lines, sight) };
    let refused = refused(conversation);
    let footer = |line: &&&str| line.trim_start().starts_with(&format!("⚠ {REACHED}"));
    if let Some(line) = below.iter().find(footer) {
        // The answer to the prompt names the kind of the limit and the time zone, too.
        let until = after(line, "resets ").map(str::to_owned);
        let said = refused.as_ref().map_or(line.trim(), |limit| &limit.said).to_owned();
        if let Some(limited) = sight.limited(Limit { until, said }) {
            return limited;
        }
    }
    let spins = sight.title.chars().next().is_some_and(is_spinner);
    if spins || below.iter().any(|l| l.contains("esc to interrupt")) {
        return State::Working;
    }
    refused.and_then(|limit| sight.limited(limit)).unwrap_or(State::Idle)
}

pub(super) fn composer(lines: &[&str]) -> Option<String> {
    let first = find_box(lines)?.input.first()?;
    Some(first.trim_start_matches('❯').trim().to_owned())
}

fn find_box<'a>(lines: &'a [&'a str]) -> Option<Box<'a>> {
    let lower = lines.iter().rposition(|l| l.starts_with(RULE))?;
    let upper = lines[..lower].iter().rposition(|l| l.starts_with(RULE))?;
    let input = &lines[upper + 1..lower];
    let is_box = input.first().is_some_and(|l| l.starts_with('❯'));
    is_box.then(|| Box { conversation: &lines[..upper], input, below: &lines[lower + 1..] })
}

/// Something stands in the place of the box; if its last line names the keys of an answer, it is a
/// question.
fn dialog(lines: &[&str], sight: &PaneView) -> State {
    let asks = lines.last().is_some_and(|l| l.contains("Esc to cancel") || l.contains("Enter to confirm"));
    if !asks {
        return State::Unknown;
    }
    let edge = lines.iter().rposition(|l| l.starts_with(RULE) || l.starts_with(MENU_EDGE));
    let dialog = &lines[edge.map_or(0, |i| i + 1)..];
    if dialog.iter().any(|l| l.trim_start_matches([' ', '❯']).ends_with(". Stop and wait for limit to reset")) {
        let until = dialog.iter().find_map(|l| after(l, "continue automatically at ")).map(str::to_owned);
        let above = refused(&lines[..edge.unwrap_or(0)]);
        let when = until.as_ref().map_or_else(String::new, |time| format!(" · resets {time}"));
        let said = above.map_or_else(|| format!("{REACHED}{when}"), |limit| limit.said);
        if let Some(limited) = sight.limited(Limit { until, said }) {
            return limited;
        }
    }
    State::Asking { question: question(dialog) }
}

/// A prompt that the program answered instead of the model: the `⎿` stands right below the prompt,
/// and nothing followed. Output of tools stands below a `●` instead.
fn refused(conversation: &[&str]) -> Option<Limit> {
    let prompt = conversation.iter().rposition(|l| l.starts_with('❯'))?;
    let rest = &conversation[prompt + 1..];
    let answer = rest.iter().position(|l| l.trim_start().starts_with('⎿'))?;
    let beside = rest[..answer].iter().all(|l| l.starts_with("  ") && !l.trim().is_empty());
    let line = rest[answer].trim_start().trim_start_matches('⎿').trim();
    let is_limit = line.starts_with("You've hit your ") || line.starts_with("You're out of ");
    let went_on =
        rest[answer..].iter().any(|l| l.starts_with('●') && !l.trim_start_matches(['●', ' ']).starts_with(REACHED));
    let limit = || Limit { until: after(line, "resets ").map(str::to_owned), said: line.to_owned() };
    (beside && is_limit && !went_on).then(limit)
}
