//! Completion in shells: finds the words that can follow on a command line, among them ids and names
//! of what is there now. The scripts of `generate completions` call it.
//!
//! It is run at every press of a key, so it only reads, says nothing about what it cannot read, and
//! makes no state folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use everloop_engine::services::names::{self, Named};

use super::Cli;
use crate::config::{self, Flags, Overrides};
use crate::ui::text::clean;
use crate::ui::{Format, Ui};

/// The variable by which a script requests words, with the name of its shell.
const VARIABLE: &str = "COMPLETE";

/// Cells of a description: the rest of a line belongs to the word.
const MAX_ABOUT_CHARS: usize = 60;

/// Answers the request of a completion script; `None` when this is no such request.
pub fn answer() -> Option<ExitCode> {
    let shell = std::env::var(VARIABLE).ok()?;
    let line = match shell.as_str() {
        "bash" => |named: &Named| named.word.clone(),
        "zsh" => |named: &Named| format!("{}:{}", named.word.replace(':', "\\:"), about(named)),
        "fish" => |named: &Named| format!("{}\t{}", named.word, about(named)),
        _ => return None,
    };
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next()? != "--" {
        return None;
    }
    let words: Vec<String> = words.skip(1).collect();
    let lines: Vec<String> = candidates(&words).iter().map(line).collect();
    // A shell that went away needs no answer.
    Ui::new(Format::Text).out_lines(&lines).ok();
    Some(ExitCode::SUCCESS)
}

fn about(named: &Named) -> String {
    let line = clean(&named.about);
    line.chars().take(MAX_ABOUT_CHARS).collect()
}

/// The words that can stand in the place of the last of `words`.
fn candidates(words: &[String]) -> Vec<Named> {
    let mut root = Cli::command();
    // Gives every verb the global options.
    root.build();
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let place = Place::after(&root, before);
    let (option, current) = match current.split_once('=') {
        Some((name, value)) if name.starts_with("--") => (option(place.command, name), value),
        _ => (place.option, current.as_str()),
    };
    let mut found = match option {
        Some(option) => place.values(option),
        None if current.starts_with('-') => options(place.command),
        None => place.verbs_and_values(),
    };
    let mut seen = BTreeSet::new();
    found.retain(|named| named.word.starts_with(current) && is_plain(&named.word) && seen.insert(named.word.clone()));
    found
}

/// Whether a shell takes the word as it is. Names can hold anything; only plain ones are offered.
fn is_plain(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/@+,".contains(c))
}

/// Where a command line has come to.
struct Place<'a> {
    command: &'a Command,
    /// The verb below which the command is.
    verb: &'a str,
    /// The option whose value comes next.
    option: Option<&'a Arg>,
    /// Positional arguments so far.
    positionals: usize,
    /// Values of `--state-dir` and `--dir`.
    state_dir: Option<PathBuf>,
    dir: Option<PathBuf>,
}

impl<'a> Place<'a> {
    fn after(root: &'a Command, words: &[String]) -> Self {
        let mut place = Self { command: root, verb: "", option: None, positionals: 0, state_dir: None, dir: None };
        for word in words {
            place.pass(word);
        }
        place
    }

    fn pass(&mut self, word: &str) {
        // bash makes a word of its own of the sign in `--loop=k3f9`.
        if word == "=" {
            return;
        }
        if let Some(option) = self.option.take() {
            self.keep(option, word);
        } else if let Some((name, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
            if let Some(option) = option(self.command, name) {
                self.keep(option, value);
            }
        } else if word.starts_with('-') && word.len() > 1 {
            self.option = option(self.command, word).filter(|arg| arg.get_action().takes_values());
        } else if let Some(command) = self.command.find_subcommand(word).filter(|_| self.positionals == 0) {
            if self.verb.is_empty() {
                self.verb = command.get_name();
            }
            self.command = command;
        } else {
            self.positionals += 1;
        }
    }

    fn keep(&mut self, option: &Arg, value: &str) {
        match option.get_long() {
            Some("state-dir") => self.state_dir = Some(value.into()),
            Some("dir") => self.dir = Some(value.into()),
            _ => {}
        }
    }

    fn verbs_and_values(&self) -> Vec<Named> {
        let verbs = self.command.get_subcommands().filter(|verb| !verb.is_hide_set() && self.positionals == 0);
        let mut found: Vec<Named> =
            verbs.map(|verb| named(verb.get_name(), verb.get_about().map(ToString::to_string))).collect();
        let mut positionals = self.command.get_positionals();
        let last = self.command.get_positionals().last().filter(|arg| repeats(arg));
        if let Some(arg) = positionals.nth(self.positionals).or(last) {
            found.extend(self.values(arg));
        }
        found
    }

    /// The values that an argument can have.
    fn values(&self, arg: &Arg) -> Vec<Named> {
        let choices = arg.get_possible_values();
        if !choices.is_empty() && arg.get_action().takes_values() {
            let shown = choices.iter().filter(|choice| !choice.is_hide_set());
            return shown.map(|c| named(c.get_name(), c.get_help().map(ToString::to_string))).collect();
        }
        let state_dir = self.state_dir.clone().or_else(|| std::env::var_os("EVERLOOP_STATE_DIR").map(PathBuf::from));
        let state_dir = state_dir.as_deref();
        let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        match (self.verb, value) {
            ("mesh" | "pane" | "hook", _) => Vec::new(),
            ("show", "ID") | ("message", "TO" | "MAILBOX") => {
                [names::loops(state_dir), names::tasks(state_dir)].concat()
            }
            ("check", "ID") => [names::loops(state_dir), self.configured_loops()].concat(),
            ("run" | "config", "NAME") if arg.get_long().is_none_or(|long| long == "loop") => self.configured_loops(),
            ("run", "NAME[@ACCOUNT]") => self.agents(),
            (_, "TASK") => names::tasks(state_dir),
            (_, "TICKET") => names::tickets(state_dir),
            (_, "LOOP") | ("handoff", "OF") => names::loops(state_dir),
            (_, "ID") if arg.get_long() != Some("session") => names::loops(state_dir),
            _ => Vec::new(),
        }
    }

    fn config(&self) -> Option<config::Config> {
        let dir = match &self.dir {
            Some(dir) => dir.canonicalize().ok()?,
            None => std::env::current_dir().ok()?,
        };
        let user = config::user_dir(|name| std::env::var(name).ok());
        let root: &Path = config::find(&dir).unwrap_or(&dir);
        config::load(root, user.as_deref(), &Overrides::new(Flags::default())).ok()
    }

    fn configured_loops(&self) -> Vec<Named> {
        let loops = self.config().map(|config| config.loops()).unwrap_or_default();
        loops.into_iter().map(|name| named(&name, Some("of everloop.toml".to_owned()))).collect()
    }

    fn agents(&self) -> Vec<Named> {
        let agents = self.config().map(|config| config.known_agents()).unwrap_or_default();
        agents.into_iter().map(|name| named(&name, None)).collect()
    }
}

fn repeats(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|n| n.max_values() > 1)
}

fn named(word: &str, about: Option<String>) -> Named {
    Named { word: word.to_owned(), about: about.unwrap_or_default() }
}

/// The long options of a command.
fn options(command: &Command) -> Vec<Named> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let option = |arg: &Arg| Some(named(&format!("--{}", arg.get_long()?), arg.get_help().map(ToString::to_string)));
    shown.filter_map(option).collect()
}

/// The option that a word names, `--loop` or `-n`.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        // Of letters in one word only the last can wait for a value.
        None => word.chars().last().is_some_and(|short| arg.get_short() == Some(short)),
    };
    command.get_arguments().find(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(&typed).into_iter().map(|named| named.word).collect()
    }

    #[test]
    fn verbs_options_and_choices_follow_from_the_command_line() {
        assert_eq!(words("sta"), ["status"]);
        assert_eq!(words("--json sta"), ["status"]);
        assert_eq!(words("guard quarantine l"), ["list", "lift"]);
        assert_eq!(words("stop --n"), ["--now"]);
        assert_eq!(words("usage --by ag"), ["agent"]);
        assert_eq!(words("usage --by=ag"), ["agent"]);
        assert_eq!(words("usage --by = ag"), ["agent"], "as bash splits it");
        assert_eq!(words("run --agent cla"), ["claude"]);
        assert_eq!(words("-C / run --agent cla"), ["claude"]);
        assert!(words("ticket __").is_empty(), "what is hidden stays hidden");
        assert!(words("steer x y").is_empty());
    }

    #[test]
    fn only_plain_words_are_offered() {
        assert!(is_plain("k3f9") && is_plain("mesh:3") && is_plain("claude@work"));
        assert!(!is_plain("$(touch x)") && !is_plain("a b") && !is_plain("a\nb") && !is_plain("a;b"));
    }
}
