//! Content of an experiment's prompt.

use serde::Serialize;

use super::idea::{Focus, MARK, focus, untried};
use super::row::{Row, short};
use crate::state::LoopState;

/// Kept changes and failures that the prompt lists.
const LISTED: usize = 20;

/// Everything the template of an experiment can use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentPrompt {
    pub metric: String,
    pub direction: &'static str,
    pub baseline: String,
    pub champion: String,
    pub champion_number: u32,
    pub goal_value: Option<String>,
    pub number: u32,
    /// Standard deviation of the metric; `None` for one that never varies.
    pub noise: Option<String>,
    pub focus: String,
    /// Output of the crash that is to be mended; data.
    pub crash: Option<String>,
    /// Kept changes, newest first; data.
    pub kept: Vec<String>,
    /// Experiments without success, newest first; data.
    pub failed: Vec<String>,
    /// Strategies of the plan that no experiment was about.
    pub untried: Vec<String>,
    pub scope: Vec<String>,
    pub mark: &'static str,
}

/// The content for the experiment that is next or under way; `None` for any other loop.
pub fn experiment(state: &LoopState) -> Option<ExperimentPrompt> {
    let (spec, research) = (state.spec.research.as_deref()?, state.research.as_deref()?);
    let left = state.spec.bounds.max_turns.map(|most| most.saturating_sub(research.number));
    let focus = focus(spec, research, left);
    let crash = match &focus {
        Focus::Fix { text, .. } => Some(text.clone()),
        _ => None,
    };
    let kept = research.keeps.iter().skip(1).rev().take(LISTED);
    let failed = research.rows.iter().rev().filter(|row| !row.status.keeps()).take(LISTED);
    Some(ExperimentPrompt {
        metric: spec.metric.check.run.clone(),
        direction: spec.metric.direction.label(),
        baseline: short(research.baseline),
        champion: short(research.champion.value()),
        champion_number: research.champion.number,
        goal_value: spec.goal_value.map(short),
        number: research.number + 1,
        noise: (!research.exact).then(|| short(research.sigma)),
        focus: words(&focus),
        crash,
        kept: kept.map(|keep| format!("{} -> {}", keep.description, short(keep.value))).collect(),
        failed: failed.map(tried).collect(),
        untried: untried(spec, research).into_iter().map(|(_, strategy)| strategy).collect(),
        scope: spec.scope.clone(),
        mark: MARK,
    })
}

fn tried(row: &Row) -> String {
    let value = row.value.map_or_else(String::new, |value| format!(" -> {}", short(value)));
    format!("{}{value}: {} ({})", row.description, row.status.label(), row.why)
}

fn words(focus: &Focus) -> String {
    match focus {
        Focus::Fix { kind, .. } => {
            format!("The change before crashed ({}). Mend it, and keep its idea.", kind.label())
        }
        Focus::Exploit { description } if description.is_empty() => "Improve on the best version so far.".to_owned(),
        Focus::Exploit { description } => format!("The last gain came from: {description}. Go on in that direction."),
        Focus::Plan { strategy, .. } => format!("Try this strategy of the plan: {strategy}"),
        Focus::Combine { first, second } => {
            format!("Two changes came close. Combine them: {first}; and: {second}")
        }
        Focus::Simplify => {
            "Make the code simpler without making the metric worse, or better by being simpler.".to_owned()
        }
        Focus::Opposite => "Try the opposite of what was tried so far.".to_owned(),
        Focus::Radical => "Try a radical change: another algorithm or data structure.".to_owned(),
        Focus::Refine => {
            "Several experiments in a row were not kept. Read the code and the list below again, find out what the \
             metric really depends on, and refine the best version."
                .to_owned()
        }
        Focus::Branch { from } => format!(
            "Many experiments in a row were not kept. You start from experiment {from}, an older keep: take another \
             way from there."
        ),
        Focus::DualForcing => "Many experiments in a row were not kept. Describe two opposite changes, then make the \
                               one that you find less likely to work."
            .to_owned(),
    }
}
