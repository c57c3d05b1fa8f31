//! `everloop --help`: the everyday verbs first, then the others in groups.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;
use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

/// Headings and their verbs. A test checks that every verb stands here once.
pub const GROUPS: [(&str, &[&str]); 7] = [
    ("Every day", &["run", "status", "why", "logs", "show", "steer", "pause", "resume", "stop", "ticket"]),
    ("Work", &["init", "check", "prompt", "wake", "up", "down", "demo"]),
    ("Watch", &["diff", "usage", "guard", "quarantine", "notify"]),
    ("Board", &["task", "board", "message"]),
    ("Mesh", &["mesh"]),
    ("Agents", &["agents", "pane", "mcp", "hook", "handoff", "plugin"]),
    ("Maintain", &["doctor", "config", "trust", "replay", "recover", "generate", "uninstall"]),
];

/// Parses the command line of this process; prints help and ends the process where it requires
/// that.
pub fn parse() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command line with help in groups.
pub fn command() -> Command {
    let command = Cli::command();
    let template = template(&command);
    command.help_template(template)
}

/// clap has headings for options, not for subcommands, so they are part of the template.
fn template(command: &Command) -> StyledStr {
    let styles = Styles::default();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let wide = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or_default();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, verbs) in GROUPS {
        write!(text, "\n{header}{heading}:{header:#}\n").expect("writing to a string cannot fail");
        for name in verbs {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let pad = " ".repeat(wide - name.len());
            writeln!(text, "  {literal}{name}{literal:#}{pad}  {}", about.unwrap_or_default())
                .expect("writing to a string cannot fail");
        }
    }
    write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}").expect("writing to a string cannot fail");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_stands_in_one_group_and_ten_are_for_every_day() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        assert_eq!(GROUPS[0].1.len(), 10);
    }

    #[test]
    fn the_help_has_the_groups_in_their_order() {
        let help = command().render_help().to_string();
        let places: Vec<_> = GROUPS.iter().map(|(heading, _)| help.find(&format!("\n{heading}:\n"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in\n{help}");
        assert!(help.contains("\n  run         Work on a goal until its checks pass\n"), "{help}");
        assert!(help.contains("\nOptions:\n") && help.contains("Exit codes: 0 "), "{help}");
        assert!(!help.contains("Commands:"), "{help}");
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 110).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
