//! The screen of Codex: blocks that begin with a mark at the left edge, the input line `›`, a
//! status line; or a menu.

use super::{Limit, PaneView, State, is_spinner};

/// The last line of its menus names keys and their effect: `enter continue · esc quit`,
/// `Press enter to confirm or esc to cancel`. The wording differs between versions.
const KEYS: [&str; 2] = ["enter", "esc"];
const KEYS_DO: [&str; 6] = ["select", "back", "confirm", "cancel", "continue", "quit"];

/// The title while it waits for a permission.
const ASKS: &str = "Action Required";

pub(super) fn detect(lines: &[&str], sight: &PaneView) -> State {
    let title = sight.title.as_str();
    let Some(input) = lines.iter().rposition(|l| l.starts_with('›')) else { return State::Unknown };
    let block = last_block(&lines[..input]);
    let last = lines.last().map(|l| l.to_lowercase()).unwrap_or_default();
    let names = |words: &[&str]| words.iter().any(|w| last.contains(w));
    let menu = is_choice(lines[input]) && names(&KEYS) && names(&KEYS_DO) || title.contains(ASKS);
    if let Some(limited) = block.and_then(limit).and_then(|limit| sight.limited(limit)) {
        return limited;
    }
    if menu {
        let top = lines[..input].iter().rposition(|l| l.starts_with(['•', '■', '›'])).map_or(0, |i| i + 1);
        return State::Asking { question: question(&lines[top..input]) };
    }
    // A list of choices with nothing known below it: typing would select one.
    if is_choice(lines[input]) && lines.get(input + 1).is_some_and(|l| is_choice(l)) {
        return State::Unknown;
    }
    let busy = |b: &[&str]| b[0].starts_with('•') && b[0].trim_end().ends_with(" • esc to interrupt)");
    if title.chars().any(is_spinner) || block.is_some_and(busy) {
        return State::Working;
    }
    State::Idle
}

pub(super) fn composer(lines: &[&str]) -> Option<String> {
    input_line(lines).filter(|input| !is_choice(input))
}

/// The last line with the mark of the input, which is a choice in a menu.
pub(super) fn input_line(lines: &[&str]) -> Option<String> {
    let input = lines.iter().rev().find(|l| l.starts_with('›'))?;
    Some(input.trim_start_matches('›').trim().to_owned())
}

/// The last block before the input line. Further lines of an answer are indented, so a mark at the
/// edge is the program's.
fn last_block<'a>(lines: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let start = lines.iter().rposition(|l| l.starts_with(['•', '■', '›']))?;
    Some(&lines[start..])
}

/// Reads `■ You’ve hit your usage limit. … try again at 9:42 PM.`, wrapped at the edge; older
/// versions have a plain apostrophe.
fn limit(block: &[&str]) -> Option<Limit> {
    let text = block.iter().take_while(|l| !l.trim().is_empty()).map(|l| l.trim()).collect::<Vec<_>>().join(" ");
    let said = text.strip_prefix('■')?.trim_start().replace('’', "'");
    if !said.starts_with("You've hit your usage limit") {
        return None;
    }
    let until = said.rsplit_once("try again at ").map(|(_, t)| t.trim_end_matches('.').to_owned());
    Some(Limit { until, said })
}

/// The question of a menu: its first line with a question mark, else its first words. The agent's
/// reasons stand below it.
fn question(menu: &[&str]) -> String {
    let mut lines = menu.iter().map(|l| l.trim()).filter(|l| !l.is_empty());
    let first = lines.clone().next().unwrap_or_default();
    let asked = lines.find_map(|l| l.find('?').map(|end| &l[..=end]));
    asked.unwrap_or(first).to_owned()
}

/// A numbered choice of a dialog: `› 1. Switch …`
fn is_choice(line: &str) -> bool {
    let text = line.trim_start_matches('›').trim_start();
    text.split_once(". ").is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
