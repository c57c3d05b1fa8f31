//! `everloop --help`: the everyday verbs first, then the others in groups.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Error, FromArgMatches};

use super::Cli;

/// Headings and their verbs. A test checks that every verb stands here once.
pub const GROUPS: [(&str, &[&str]); 6] = [
    ("Every day", &["run", "status", "why", "logs", "show", "steer", "pause", "resume", "stop", "ticket"]),
    (
        "Work",
        &["research", "persona", "signal", "stream", "init", "check", "take", "prompt", "wake", "up", "down", "demo"],
    ),
    ("Watch", &["ui", "report", "diff", "usage", "guard", "rhythm"]),
    ("Board and mesh", &["task", "message", "mesh"]),
    ("Agents", &["agents", "pane", "handoff"]),
    ("Maintain", &["doctor", "config", "trust", "forget", "replay", "recover"]),
];

/// Verbs that programs run. The help names them in one sentence, the reference describes them.
pub const FOR_PROGRAMS: [&str; 3] = ["mcp", "hook", "generate"];

const LAST_WORDS: &str = "`everloop generate` prints shell completions, manual pages and the reference of all commands;
agents' CLIs run `mcp` and `hook`.";

/// Verbs that became subcommands of another one, and how they are typed now.
const MOVED: [(&str, &str); 5] = [
    ("uninstall", "everloop init --remove"),
    ("plugin", "everloop agents plugin"),
    ("notify", "everloop ticket notifiers"),
    ("quarantine", "everloop guard quarantine"),
    ("board", "everloop task board"),
];

/// Parses the command line of this process; prints help and ends the process where it requires
/// that.
pub fn parse() -> Cli {
    let matches = command().try_get_matches().unwrap_or_else(|error| with_new_place(error).exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Names the new place of a verb that has moved.
fn with_new_place(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if let Some((_, place)) = MOVED.iter().find(|(verb, _)| verb == word) {
        let tip = vec![format!("it is `{place}`").into()];
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
    }
    error
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
    write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}\n\n{LAST_WORDS}")
        .expect("writing to a string cannot fail");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_stands_in_one_group_and_ten_are_for_every_day() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        // Dashboard, streams and rhythm are one each, and no other verb contains them.
        assert!(grouped.len() <= 40, "{} verbs: fold some into another one", grouped.len());
        grouped.extend(FOR_PROGRAMS);
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        assert_eq!(GROUPS[0].1.len(), 10);
    }

    #[test]
    fn a_verb_that_moved_is_refused_with_its_new_place() {
        for (verb, place) in MOVED {
            let error = command().try_get_matches_from(["everloop", verb, "list"]).expect_err("it is no verb");
            let said = with_new_place(error).render().to_string();
            assert!(
                said.contains("unrecognized subcommand")
                    && said.contains(&format!("tip: it is `{place}`"))
                    && said.matches("tip:").count() == 1,
                "{said}"
            );
            let words = place.split(' ').chain(["--help"]);
            let shown = command().try_get_matches_from(words).expect_err("help is no match");
            assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayHelp, "{place}");
        }
        let typo = with_new_place(command().try_get_matches_from(["everloop", "statsu"]).expect_err("it is no verb"));
        assert!(typo.render().to_string().contains("'status'"), "{typo}");
    }

    #[test]
    fn the_help_has_the_groups_in_their_order() {
        let help = command().render_help().to_string();
        let places: Vec<_> = GROUPS.iter().map(|(heading, _)| help.find(&format!("\n{heading}:\n"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in\n{help}");
        assert!(help.contains("\n  run       Work on a goal until its checks pass\n"), "{help}");
        assert!(help.contains("\nOptions:\n") && help.contains("Exit codes: 0 "), "{help}");
        assert!(!help.contains("Commands:"), "{help}");
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 110).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
