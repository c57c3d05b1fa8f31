//! What the next experiment is about, in the order in which ideas are worth trying, and whether an
//! idea was tried.

use std::collections::BTreeSet;

use super::ResearchSpec;
use super::ladder::Rung;
use super::row::{Row, Status};
use super::sample::CrashKind;
use super::state::ResearchState;

/// The line in which an agent names its change, before it edits.
pub const MARK: &str = "EXPERIMENT:";
/// Longest description that is kept.
const DESCRIPTION_CHARS: usize = 200;
/// Below this number of experiments left, nothing new is begun.
const FEW_LEFT: u32 = 3;
/// A discard is a near miss within this many deviations, or this share of the champion.
const NEAR_DEVIATIONS: f64 = 2.0;
const NEAR_SHARE: f64 = 0.01;

/// How far from the champion's value a near miss may be.
pub fn near(champion: f64, sigma: f64) -> f64 {
    (NEAR_DEVIATIONS * sigma).max(NEAR_SHARE * champion.abs())
}

/// What the next experiment is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Mend the crash of the change before.
    Fix {
        kind: CrashKind,
        text: String,
    },
    /// Go on where the last gain came from.
    Exploit {
        description: String,
    },
    /// Try a strategy of the plan, counted from 0.
    Plan {
        item: u32,
        strategy: String,
    },
    /// Combine two near misses.
    Combine {
        first: String,
        second: String,
    },
    Simplify,
    Opposite,
    Radical,
    Refine,
    /// Begin from an older keep.
    Branch {
        from: u32,
    },
    DualForcing,
}

impl Focus {
    /// The strategy of the plan that it is about.
    pub fn plan(&self) -> Option<u32> {
        match self {
            Focus::Plan { item, .. } => Some(*item),
            _ => None,
        }
    }
}

/// What the next experiment is about; `left` is the number of experiments that the run still has.
pub fn focus(spec: &ResearchSpec, state: &ResearchState, left: Option<u32>) -> Focus {
    if let Some(open) = &state.open {
        return Focus::Fix { kind: open.kind, text: open.text.clone() };
    }
    let last_gain = state.keeps.last().map(|keep| keep.description.clone()).unwrap_or_default();
    if left.is_some_and(|n| n < FEW_LEFT) {
        return Focus::Exploit { description: last_gain };
    }
    let planned = || untried(spec, state).into_iter().next().map(|(item, strategy)| Focus::Plan { item, strategy });
    match state.rung() {
        Some(Rung::Refine) => return Focus::Refine,
        Some(Rung::NextPlan) => {
            if let Some(focus) = planned() {
                return focus;
            }
        }
        Some(Rung::Branch) => {
            if let Some(line) = state.line_due() {
                return Focus::Branch { from: line.from };
            }
        }
        Some(Rung::DualForcing) => return Focus::DualForcing,
        None => {}
    }
    if state.rows.last().is_some_and(|row| row.status.keeps()) {
        return Focus::Exploit { description: last_gain };
    }
    let by_turns = match state.number % 3 {
        0 => Focus::Simplify,
        1 => Focus::Opposite,
        _ => Focus::Radical,
    };
    planned().or_else(|| combined(state)).unwrap_or(by_turns)
}

/// Strategies of the plan that no experiment was about.
pub fn untried(spec: &ResearchSpec, state: &ResearchState) -> Vec<(u32, String)> {
    let numbered = (0..).zip(&spec.plan);
    numbered.filter(|(item, _)| !state.planned.contains(item)).map(|(item, text)| (item, text.clone())).collect()
}

/// Discards that came close to the champion, newest first.
pub fn near_misses(state: &ResearchState) -> Vec<&Row> {
    let champion = state.champion.value();
    let near = near(champion, state.sigma());
    let close = |row: &&Row| row.value.is_some_and(|value| (value - champion).abs() <= near);
    state
        .rows
        .iter()
        .rev()
        .filter(|row| row.status == Status::Discard && row.guard != Some(false))
        .filter(close)
        .collect()
}

fn combined(state: &ResearchState) -> Option<Focus> {
    let misses = near_misses(state);
    let [first, second, ..] = misses.as_slice() else { return None };
    Some(Focus::Combine { first: first.description.clone(), second: second.description.clone() })
}

/// Share of their words that two descriptions of one idea have in common.
const SAME_IDEA: f64 = 0.75;
/// Words that are in no idea or in all of them.
const FILLERS: [&str; 16] = [
    "the", "and", "for", "with", "that", "this", "try", "use", "make", "into", "from", "instead", "again", "now",
    "its", "new",
];
/// Letters of a word from which on it counts.
const WORD_LETTERS: usize = 3;

/// Whether two descriptions are about the same idea, by their words.
pub fn is_same_idea(one: &str, other: &str) -> bool {
    let (one, other) = (words(one), words(other));
    if one.is_empty() || other.is_empty() {
        return false;
    }
    let shared = one.intersection(&other).count() as f64;
    2.0 * shared / (one.len() + other.len()) as f64 >= SAME_IDEA
}

fn words(description: &str) -> BTreeSet<String> {
    let lower = description.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() >= WORD_LETTERS);
    words.filter(|word| !FILLERS.contains(word)).map(|word| word.trim_end_matches('s').to_owned()).collect()
}

/// Ideas that were tried more than once without success, newest first, each with the numbers of its
/// experiments.
pub fn repeated(state: &ResearchState) -> Vec<(String, Vec<u32>)> {
    let mut found: Vec<(String, Vec<u32>)> = Vec::new();
    for row in state.rows.iter().rev().filter(|row| row.number > 0 && !row.status.succeeds()) {
        match found.iter_mut().find(|(description, _)| is_same_idea(description, &row.description)) {
            Some((_, numbers)) => numbers.insert(0, row.number),
            None => found.push((row.description.clone(), vec![row.number])),
        }
    }
    found.retain(|(_, numbers)| numbers.len() > 1);
    found
}

/// The strategies of a plan: the items of its lists.
pub fn strategies(plan: &str) -> Vec<String> {
    let item = |line: &str| {
        let line = line.trim();
        let bullet = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        let numbered = || line.split_once(". ").filter(|(n, _)| n.parse::<u32>().is_ok()).map(|(_, rest)| rest);
        bullet.or_else(numbered).map(|item| item.trim().to_owned()).filter(|item| !item.is_empty())
    };
    plan.lines().filter_map(item).collect()
}

/// The sentence in which the agent named its change: the first marked line of what it wrote.
pub fn description(written: &str) -> Option<String> {
    let (_, rest) = written.split_once(MARK)?;
    // In a stream of JSON records the line ends with an escape or with the string.
    let ends = rest.find(['\n', '"']).into_iter().chain(rest.find("\\n"));
    let line = &rest[..ends.min().unwrap_or(rest.len())];
    let line: String = line.trim().chars().filter(|c| !c.is_control()).take(DESCRIPTION_CHARS).collect();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::tests_support::{research, row, state};

    #[test]
    fn the_order_of_ideas() {
        let (mut spec, mut state) = (research(), state());
        assert_eq!(focus(&spec, &state, None), Focus::Simplify, "nothing is known yet");
        spec.plan = vec!["vectorise".to_owned(), "cache".to_owned()];
        assert_eq!(focus(&spec, &state, None).plan(), Some(0));
        state.planned.insert(0);
        assert_eq!(focus(&spec, &state, None).plan(), Some(1));
        state.planned.insert(1);
        state.rows = vec![row(1, Status::Discard, Some(10.05)), row(2, Status::Discard, Some(10.02))];
        assert!(matches!(focus(&spec, &state, None), Focus::Combine { .. }));
        state.rows.push(row(3, Status::Keep, Some(9.0)));
        assert!(matches!(focus(&spec, &state, None), Focus::Exploit { .. }));
        state.open = Some(crate::research::state::OpenExperiment {
            commit: "c".to_owned(),
            kind: CrashKind::Syntax,
            text: "SyntaxError".to_owned(),
            fixes: 1,
            base: None,
            plan: None,
            millis: 0,
            microusd: 0,
        });
        assert!(matches!(focus(&spec, &state, Some(1)), Focus::Fix { .. }));
        state.open = None;
        state.rows.push(row(4, Status::Discard, Some(99.0)));
        assert!(matches!(focus(&spec, &state, Some(2)), Focus::Exploit { .. }), "few are left");
    }

    #[test]
    fn the_ladder_changes_the_focus() {
        let (mut spec, mut state) = (research(), state());
        spec.plan = vec!["vectorise".to_owned()];
        let mut at = |n| {
            state.number = n;
            focus(&spec, &state, None)
        };
        assert_eq!(at(5), Focus::Refine);
        assert_eq!(at(10).plan(), Some(0));
        assert_eq!(at(25), Focus::DualForcing);
    }

    #[test]
    fn the_same_idea_in_other_words_is_recognised() {
        assert!(is_same_idea("Unroll the inner loop", "unroll inner loops again"));
        assert!(!is_same_idea("unroll the inner loop", "sort the table first"));
        assert!(!is_same_idea("try it", "make it"), "fillers alone are no idea");
        let mut state = state();
        let about =
            |n, description: &str| Row { description: description.to_owned(), ..row(n, Status::Discard, Some(11.0)) };
        state.rows = vec![about(1, "unroll the inner loop"), about(2, "sort first"), about(3, "unroll inner loops")];
        assert_eq!(repeated(&state), [("unroll inner loops".to_owned(), vec![1, 3])]);
    }

    #[test]
    fn strategies_are_the_items_of_lists() {
        let plan = "# Plan\n\nSome words.\n- cache it\n  * unroll\n2. sort first\n- \n";
        assert_eq!(strategies(plan), ["cache it", "unroll", "sort first"]);
    }

    #[test]
    fn the_description_is_the_marked_line() {
        assert_eq!(description("ok\nEXPERIMENT: unroll the loop\nEXPERIMENT: x").as_deref(), Some("unroll the loop"));
        let json = r#"{"type":"text","text":"EXPERIMENT: use a table\nThen I edit"}"#;
        assert_eq!(description(json).as_deref(), Some("use a table"));
        assert_eq!(description("nothing"), None);
        assert_eq!(description("EXPERIMENT:  \n"), None);
    }
}
