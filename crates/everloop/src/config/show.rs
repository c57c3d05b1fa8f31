//! The values of a loop and where each comes from, as `config show --origin` prints them.

use serde::Serialize;
use toml::Value;

use super::agent::Chosen;
use super::guard::GuardKeys;
use super::keys::{AccountKeys, AgentKeys, IsolationKeys, LoopKeys};
use super::layer::Layer;
use super::persona::PersonaKeys;
use super::research::ResearchKeys;
use super::settings::names;

/// One value that is in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effective {
    /// `loop.NAME`, `research.NAME`, `persona.NAME`, `agent.NAME` or `account.NAME`.
    pub section: String,
    /// The key in it.
    pub key: String,
    /// Value of the key.
    pub value: Value,
    /// `built-in`, `everloop.toml:4`, `EVERLOOP_MIN_GAP`, `--min-gap`.
    pub origin: String,
}

/// All values of a loop, of its agents and of their accounts, in the order of the reference.
pub(super) fn effective(
    name: &str,
    (values, research, persona): (&Layer, Option<&Layer>, Option<&Layer>),
    agents: &[Chosen],
) -> Vec<Effective> {
    let (own, guard, reach) = (names::<LoopKeys>(), names::<GuardKeys>(), names::<IsolationKeys>());
    let metric = names::<ResearchKeys>();
    let rhythm = names::<PersonaKeys>();
    let place = match (research, persona) {
        (Some(_), _) => format!("research.{name}"),
        (None, Some(_)) => format!("persona.{name}"),
        (None, None) => format!("loop.{name}"),
    };
    let mut rows = research.map_or_else(Vec::new, |own| section(&place, own, &|key| (position(&metric, key), 0)));
    rows.extend(persona.map_or_else(Vec::new, |own| section(&place, own, &|key| (position(&rhythm, key), 0))));
    rows.extend(section(&place, values, &|key| match key.split_once('.') {
        Some(("guard", inner)) => (usize::MAX - 1, position(&guard, inner)),
        Some((_, inner)) => (usize::MAX, position(&reach, inner)),
        None => (position(&own, key), 0),
    }));
    let named = agents.iter().filter_map(|a| Some((format!("agent.{}", a.spec.name), a.layer.as_ref()?)));
    let accounts = agents.iter().filter_map(|a| Some((format!("account.{}", a.spec.account), a.account.as_ref()?)));
    for (name, values) in named.chain(accounts) {
        // The same agent under another account, or the same account again, is shown once.
        if !rows.iter().any(|row| row.section == name) {
            let names = if name.starts_with("agent.") { names::<AgentKeys>() } else { names::<AccountKeys>() };
            rows.extend(section(&name, values, &|key| (position(&names, key), 0)));
        }
    }
    rows
}

fn section(section: &str, values: &Layer, order: &dyn Fn(&str) -> (usize, usize)) -> Vec<Effective> {
    let mut rows: Vec<Effective> = values
        .0
        .iter()
        .map(|(key, sourced)| Effective {
            section: section.to_owned(),
            key: key.clone(),
            value: sourced.value.clone(),
            origin: sourced.origin.to_string(),
        })
        .collect();
    rows.sort_by_key(|row| order(&row.key));
    rows
}

fn position(names: &[&str], key: &str) -> usize {
    names.iter().position(|name| *name == key).unwrap_or(names.len())
}

/// The values as TOML that could be read again; origins stand behind them as comments.
pub fn render(values: &[Effective], with_origin: WithOrigin) -> String {
    let assignments: Vec<String> = values.iter().map(|row| format!("{} = {}", row.key, row.value)).collect();
    // A long goal must not push every origin out of sight.
    let fitting = assignments.iter().map(|line| line.chars().count()).filter(|cells| *cells <= 48);
    let column = fitting.max().unwrap_or(0);
    let mut lines: Vec<String> = Vec::new();
    let mut section = "";
    for (row, assignment) in values.iter().zip(assignments) {
        if row.section != section {
            if !section.is_empty() {
                lines.push(String::new());
            }
            lines.push(format!("[{}]", row.section));
            section = &row.section;
        }
        lines.push(match with_origin {
            WithOrigin::Yes => format!("{assignment:column$}  # {}", row.origin),
            WithOrigin::No => assignment,
        });
    }
    lines.join("\n")
}

/// Whether origins are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithOrigin {
    /// Behind each value.
    Yes,
    /// Not at all.
    No,
}
