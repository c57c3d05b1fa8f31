//! Keys that a person may press in a pane by name. A closed set: tmux takes many more words for
//! keys, and some of them for commands.

use std::str::FromStr;

use super::PaneError;

/// The known names, for hints.
pub(super) const NAMES: &str = "keys are enter, escape, tab, space, backspace, up, down, left, right, a digit, a letter, \
                                and ctrl-LETTER";

const NAMED: [(&str, &str); 9] = [
    ("enter", "Enter"),
    ("escape", "Escape"),
    ("tab", "Tab"),
    ("space", "Space"),
    ("backspace", "BSpace"),
    ("up", "Up"),
    ("down", "Down"),
    ("left", "Left"),
    ("right", "Right"),
];

/// A key of the closed set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneKey(String);

impl PaneKey {
    /// The word for `send-keys`: letters, digits and a dash only.
    pub(super) fn as_tmux(&self) -> &str {
        &self.0
    }
}

impl FromStr for PaneKey {
    type Err = PaneError;

    fn from_str(text: &str) -> Result<Self, PaneError> {
        let bad = || PaneError::BadKey { key: text.to_owned() };
        let one = |word: &str| word.len() == 1 && word.bytes().all(|b| b.is_ascii_alphanumeric());
        if one(text) {
            return Ok(Self(text.to_owned()));
        }
        let lower = text.to_lowercase();
        if let Some(letter) = lower.strip_prefix("ctrl-").or_else(|| lower.strip_prefix("c-")) {
            let letter = Some(letter).filter(|l| one(l) && l.bytes().all(|b| b.is_ascii_lowercase()));
            return letter.map(|l| Self(format!("C-{l}"))).ok_or_else(bad);
        }
        let named = NAMED.iter().find(|(name, _)| *name == lower || (*name == "escape" && lower == "esc"));
        named.map(|(_, tmux)| Self((*tmux).to_owned())).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_keys_are_pressed() {
        for (word, tmux) in
            [("enter", "Enter"), ("Esc", "Escape"), ("2", "2"), ("y", "y"), ("ctrl-c", "C-c"), ("C-d", "C-d")]
        {
            assert_eq!(word.parse::<PaneKey>().unwrap().as_tmux(), tmux, "{word}");
        }
        for word in ["", ";", "é", "F13", "ctrl-", "ctrl-1", "-x", "Enter Enter", "yes", "kill-server"] {
            assert!(word.parse::<PaneKey>().is_err(), "{word}");
        }
    }
}
