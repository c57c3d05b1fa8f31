//! The screen of Claude Code: session text, input box between two rules, status lines below it; or
//! a dialog in its place.

use super::{Limit, State, after, is_spinner, question};

/// Rules span the whole width; model output never begins at the left edge, so it cannot contain
/// one.
const RULE: &str = "────────";
/// The upper edge of a menu.
const MENU_EDGE: &str = "▔▔▔▔▔▔▔▔";

/// The input box.
struct Box<'a> {
    conversation: &'a [&'a str],
    input: &'a [&'a str],
    below: &'a [&'a str],
}

pub(super) fn detect(lines: &[&str], title: &str) -> State {
    let Some(Box { conversation, below, .. }) = find_box(lines) else { return dialog(lines) };
    let limit = below.iter().find(|l| l.trim_start().starts_with("⚠ Usage limit reached"));
    if let Some(line) = limit {
        return State::Limited { until: after(line, "resets ").map(str::to_owned) };
    }
    let spins = title.chars().next().is_some_and(is_spinner);
    if spins || below.iter().any(|l| l.contains("esc to interrupt")) {
        return State::Working;
    }
    match refused(conversation) {
        Some(Limit { until }) => State::Limited { until },
        None => State::Idle,
    }
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
fn dialog(lines: &[&str]) -> State {
    let asks = lines.last().is_some_and(|l| l.contains("Esc to cancel") || l.contains("Enter to confirm"));
    if !asks {
        return State::Unknown;
    }
    let edge = lines.iter().rposition(|l| l.starts_with(RULE) || l.starts_with(MENU_EDGE));
    let dialog = &lines[edge.map_or(0, |i| i + 1)..];
    if dialog.iter().any(|l| l.trim_start_matches([' ', '❯']).ends_with(". Stop and wait for limit to reset")) {
        let until = dialog.iter().find_map(|l| after(l, "continue automatically at "));
        return State::Limited { until: until.map(str::to_owned) };
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
    let went_on = rest[answer..].iter().any(|l| l.starts_with('●') && !l.starts_with("● Usage limit reached"));
    (beside && is_limit && !went_on).then(|| Limit { until: after(line, "resets ").map(str::to_owned) })
}
