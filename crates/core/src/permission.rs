//! Permission requests of agents' CLIs as tickets: what a person's answer means, and what an answer
//! for always covers.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Prefix of the tickets that a CLI waits for.
pub const PERMISSION: &str = "permission:";
/// Prefix of those that were not answered in time: the CLI was refused, and an answer is for the
/// next time.
pub const PERMISSION_LATER: &str = "permission.later:";

/// Characters with which a shell does more than run one program.
const SHELL_SYNTAX: &[char] = &[';', '|', '&', '$', '`', '<', '>', '(', ')', '\\', '"', '\''];
/// Arguments beside a command that do not change what it does.
const BESIDE_A_COMMAND: [&str; 3] = ["description", "timeout", "run_in_background"];
/// Characters of a request that its ticket shows of each end.
const SHOWN_CHARS: usize = 500;

/// Whether a command is `beginning`, alone or with further words that a shell only passes on.
pub fn begins_with(command: &str, beginning: &str) -> bool {
    let rest = command.strip_prefix(beginning);
    is_one_program(command) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn is_one_program(command: &str) -> bool {
    !command.contains(SHELL_SYNTAX) && !command.contains(char::is_control)
}

/// A tool call that needs a person's consent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionCall {
    pub tool: String,
    /// What it is called with, word for word: consent is to all of it. A command as it is, anything
    /// else as JSON.
    pub input: String,
}

impl PermissionCall {
    /// A call with these arguments.
    pub fn new(tool: String, arguments: &Value) -> Self {
        let is_known = |name: &String| name == "command" || BESIDE_A_COMMAND.contains(&name.as_str());
        let only_a_command = arguments.as_object().is_some_and(|all| all.keys().all(is_known));
        let command = arguments.get("command").and_then(Value::as_str).filter(|_| only_a_command);
        Self { tool, input: command.map_or_else(|| arguments.to_string(), str::to_owned) }
    }

    /// What an answer for always covers: commands with the same program and subcommand; anything
    /// that a shell would take apart, or that is not a command, only word for word.
    pub fn rule(&self) -> PermissionRule {
        let words: Vec<&str> = self.input.split(' ').filter(|word| !word.is_empty()).collect();
        let plain = is_one_program(&self.input) && !words.is_empty() && !self.input.starts_with(['/', '{']);
        let subcommand = words.get(1).is_some_and(|word| word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-'));
        let is_option = words.get(1).is_some_and(|word| word.starts_with('-'));
        // A program without a subcommand, such as `rm`: its arguments are what matters.
        let exact = !(plain && subcommand && !is_option);
        let begins = if exact { self.input.clone() } else { words[..2].join(" ") };
        PermissionRule { tool: self.tool.clone(), exact, begins }
    }

    /// The text of its ticket.
    pub fn question(&self, turn: &str) -> String {
        let rule = self.rule();
        let always = if rule.exact {
            "exactly this".to_owned()
        } else {
            format!("everything that begins with `{}`", rule.begins)
        };
        format!(
            "turn {turn} may not do this by itself: {} `{}`. Answer `allow` (once), `always` ({always}, in this loop) or \
             `deny`",
            self.tool,
            shown(&self.input)
        )
    }
}

/// A text without what hides or reorders a part of it; both ends of a long one.
fn shown(text: &str) -> String {
    let hides = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
    };
    let mut plain = Vec::new();
    for c in text.chars() {
        if hides(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    let left_out = plain.len().saturating_sub(2 * SHOWN_CHARS);
    if left_out == 0 {
        return plain.into_iter().collect();
    }
    let (head, tail) = (&plain[..SHOWN_CHARS], &plain[plain.len() - SHOWN_CHARS..]);
    let text = |part: &[char]| part.iter().collect::<String>();
    format!("{} … ({left_out} characters left out) … {}", text(head), text(tail))
}

/// Calls that a person allowed for a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionRule {
    pub tool: String,
    pub begins: String,
    /// Nothing may follow.
    #[serde(default)]
    pub exact: bool,
}

impl PermissionRule {
    /// Whether a call is one of them.
    pub fn covers(&self, call: &PermissionCall) -> bool {
        if self.tool != call.tool {
            return false;
        }
        if self.exact { call.input == self.begins } else { begins_with(&call.input, &self.begins) }
    }
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionWord {
    Once,
    Always,
    /// With the person's words.
    Deny(String),
}

impl PermissionWord {
    /// Reads an answer. What is neither yes nor always is no.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        match first.as_str() {
            "allow" | "yes" | "y" | "ok" | "once" => PermissionWord::Once,
            "always" => PermissionWord::Always,
            _ => PermissionWord::Deny(text.to_owned()),
        }
    }
}

/// What is remembered about the permissions of a loop; a document beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopPermissions {
    pub format: u32,
    /// Allowed for always.
    #[serde(default)]
    pub rules: Vec<PermissionRule>,
    /// Open requests by the key of their ticket.
    #[serde(default)]
    pub asked: Vec<(String, PermissionCall)>,
    /// A request was not answered in time, and no person has answered one since: further ones are
    /// not waited for.
    #[serde(default)]
    pub unattended: bool,
}

/// Format of that document.
pub const PERMISSIONS_FORMAT: u32 = 1;
/// Requests that are remembered; of more the oldest are forgotten.
const ASKED_KEPT: usize = 100;
/// Rules that are kept; of more the oldest are forgotten.
const RULES_KEPT: usize = 500;

impl LoopPermissions {
    /// Whether a person allowed such a call for always.
    pub fn allows(&self, call: &PermissionCall) -> bool {
        self.rules.iter().any(|rule| rule.covers(call))
    }

    /// Remembers an open request.
    pub fn ask(&mut self, key: &str, call: &PermissionCall) {
        self.asked.retain(|(known, _)| known != key);
        self.asked.push((key.to_owned(), call.clone()));
        self.asked.drain(..self.asked.len().saturating_sub(ASKED_KEPT));
    }

    /// Takes a person's answer to the ticket of this key.
    pub fn answer(&mut self, key: &str, word: &PermissionWord) {
        self.unattended = false;
        let Some(at) = self.asked.iter().position(|(known, _)| known == key) else { return };
        let (_, call) = self.asked.remove(at);
        if *word == PermissionWord::Always && !self.allows(&call) {
            self.rules.push(call.rule());
            self.rules.drain(..self.rules.len().saturating_sub(RULES_KEPT));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(input: &str) -> PermissionCall {
        PermissionCall { tool: "Bash".to_owned(), input: input.to_owned() }
    }

    #[test]
    fn always_covers_the_same_subcommand_and_nothing_that_hides_another() {
        for (asked, covered, not) in [
            (
                "cargo test --all",
                &["cargo test", "cargo test -p x"][..],
                &["cargo run", "cargo test; rm x", "cargo testx", "cargo test\nrm x", "cargo test\rx"][..],
            ),
            ("rm -rf build", &["rm -rf build"], &["rm -rf buildx", "rm -rf build /", "rm -rf /"]),
            ("git push && x", &["git push && x"], &["git push", "git push && x y"]),
            ("/etc/hosts", &["/etc/hosts"], &["/etc/hosts.allow"]),
            ("curl http://a", &["curl http://a"], &["curl http://b"]),
        ] {
            let rule = call(asked).rule();
            for one in covered {
                assert!(rule.covers(&call(one)), "{asked} covers {one}");
            }
            for one in not {
                assert!(!rule.covers(&call(one)), "{asked} does not cover {one}");
            }
            let other = PermissionCall { tool: "Write".to_owned(), ..call(asked) };
            assert!(!rule.covers(&other));
        }
    }

    #[test]
    fn a_call_is_taken_word_for_word_and_shown_without_tricks() {
        let of = |arguments: Value| PermissionCall::new("Bash".to_owned(), &arguments).input;
        assert_eq!(of(json!({"command": "make\n  x", "description": "d"})), "make\n  x");
        let other = of(json!({"command": "make", "dangerouslyDisableSandbox": true}));
        assert!(other.starts_with('{') && other.contains("dangerouslyDisableSandbox"), "{other}");
        let hidden = call("make\n rm \u{202e}x").question("k3f9-1.1");
        assert!(hidden.contains("make\\n rm \\u{202e}x"), "{hidden}");
        let long = call(&format!("make {} && rm x", "y".repeat(9_000)));
        let text = long.question("k3f9-1.1");
        assert!(
            text.contains("&& rm x") && text.contains("characters left out") && text.contains("exactly this"),
            "{text}"
        );
        assert!(!long.rule().covers(&call(&format!("make {} && rm z", "y".repeat(9_000)))));
    }

    #[test]
    fn what_is_not_yes_is_no() {
        for (text, word) in [
            ("allow", PermissionWord::Once),
            ("Yes, but hurry", PermissionWord::Once),
            ("always", PermissionWord::Always),
            ("deny", PermissionWord::Deny("deny".to_owned())),
            ("allowed?", PermissionWord::Deny("allowed?".to_owned())),
            ("use make instead", PermissionWord::Deny("use make instead".to_owned())),
            ("", PermissionWord::Deny(String::new())),
        ] {
            assert_eq!(PermissionWord::of(text), word, "{text}");
        }
    }

    #[test]
    fn an_answer_for_always_is_remembered_and_one_for_once_is_not() {
        let (test, run) = (call("cargo test"), call("cargo run"));
        let mut known = LoopPermissions::default();
        for (key, one) in [("a", &test), ("b", &run)] {
            known.ask(key, one);
        }
        known.unattended = true;
        known.answer("a", &PermissionWord::Always);
        known.answer("b", &PermissionWord::Once);
        assert!(known.allows(&call("cargo test --all")) && !known.allows(&run));
        assert!(known.asked.is_empty() && !known.unattended);
    }
}
