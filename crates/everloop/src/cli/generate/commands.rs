//! `everloop generate commands`: the reference of all commands as Markdown, which is
//! `docs/commands.md`.

use std::fmt::Write;

use clap::{Arg, Command};
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use crate::cli::{VerbSession, help};

/// Prints the reference of all commands.
#[derive(Debug, clap::Args)]
pub struct CommandsArgs {}

pub fn commands(_: &CommandsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let text = reference();
    session.ui.answer(&[text.trim_end().to_owned()], &json!({ "reference": text }))?;
    Ok(Code::Ok)
}

const HEAD: &str = "# Commands

<!-- Made by `everloop generate commands` and checked by a test; do not edit it by hand. -->

`everloop` alone shows what is going on. `everloop VERB --help` prints what stands here for one verb.
";

/// The whole reference, in the order of the help.
fn reference() -> String {
    let mut root = help::command().disable_help_subcommand(true);
    // Gives every subcommand its full name and the global options.
    root.build();
    let mut text = HEAD.to_owned();
    text += "\n## Options of every command\n\n";
    for option in root.get_arguments().filter(|arg| is_shown(arg)) {
        text += &argument(option);
    }
    for (heading, verbs) in help::GROUPS {
        write!(text, "\n## {heading}\n").expect("writing to a string cannot fail");
        for verb in verbs.iter().filter_map(|name| root.find_subcommand(name)) {
            text += &section(verb, 3);
        }
    }
    text += "\n## For programs\n";
    for verb in help::FOR_PROGRAMS.iter().filter_map(|name| root.find_subcommand(name)) {
        text += &section(verb, 3);
    }
    text += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n";
    for code in Code::ALL {
        writeln!(text, "| {} | {} |", code.number(), code.meaning()).expect("writing to a string cannot fail");
    }
    text
}

/// A command and all below it.
fn section(command: &Command, level: usize) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut text = format!("\n{} {name}\n\n", "#".repeat(level));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    writeln!(text, "{}", about.trim()).expect("writing to a string cannot fail");
    if !command.has_subcommands() || command.get_positionals().next().is_some() {
        let usage = command.clone().render_usage().to_string();
        write!(text, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim())
            .expect("writing to a string cannot fail");
    }
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_shown(arg) && !arg.is_global_set()).collect();
    if !own.is_empty() {
        text.push('\n');
    }
    text.extend(own.into_iter().map(argument));
    if let Some(help) = command.get_after_help() {
        write!(text, "\n```text\n{}\n```\n", help.to_string().trim()).expect("writing to a string cannot fail");
    }
    text.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| section(sub, level + 1)));
    text
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

/// One argument as a line of a list.
fn argument(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let value = if arg.get_action().takes_values() { format!(" {}", values.join(" ")) } else { String::new() };
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}{value}")));
    if names.is_empty() {
        names.push(format!(
            "{}{}",
            value.trim(),
            if arg.get_num_args().is_some_and(|n| n.max_values() > 1) { "…" } else { "" }
        ));
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("- {}: {}", names.join(", "), help.split_whitespace().collect::<Vec<_>>().join(" "));
    let choices: Vec<String> = arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    if arg.get_action().takes_values() && !choices.is_empty() {
        write!(text, " (one of {})", choices.join(", ")).expect("writing to a string cannot fail");
    }
    let defaults: Vec<String> = arg.get_default_values().iter().map(|v| format!("`{}`", v.to_string_lossy())).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        write!(text, " [default: {}]", defaults.join(", ")).expect("writing to a string cannot fail");
    }
    if let Some(name) = arg.get_env() {
        write!(text, " [env: `{}`]", name.to_string_lossy()).expect("writing to a string cannot fail");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_of_commands_in_docs_is_the_current_one() {
        everloop_testkit::docs::assert_current("commands.md", &reference(), "reference");
    }
}
