//! The end of a loop: what changed, what it cost, which attempts are unused, what to do next.

use everloop_core::event::{Integrated, LoopEnd, Outcome};
use everloop_core::research::ResearchSpec;
use everloop_core::research::state::ResearchState;
use everloop_core::research::summary::summary as whole;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::{KeptWork, LoopState, Phase, Try};
use everloop_core::time::human;

use super::board::scoreboard;
use super::events::{amounts_to, ended, short};
use super::paint::Paint;
use super::quantities::score;
use super::quantities::{Accuracy, coarse, spend};
use super::text::{clean, count, pad};

/// The width of the column of heads.
const HEAD_CELLS: usize = 10;
/// Kept commits that are listed; `git log` has the others.
const KEPT_SHOWN: usize = 10;

/// The summary as lines, from the state alone.
pub fn summary(state: &LoopState, paint: Paint) -> Vec<String> {
    let mut page = Page { paint, lines: Vec::new() };
    page.entry("Loop", &format!("{} ({})", state.id, clean(&state.name)));
    page.entry("Goal", &clean(&state.spec.goal));
    page.entry("Ended", &how(state, paint));
    match (&state.spec.research, &state.research) {
        (Some(spec), Some(found)) => research(spec, found, state, &mut page),
        _ => checks(state, &mut page),
    }
    page.entry("Turns", &turns(state));
    kept(state, &mut page);
    set_aside(state, &mut page);
    let mut spent = spend(state.spend.spent, Accuracy::from(&state.spend));
    if spent.contains('~') {
        spent.push_str(" (~ is an estimate)");
    }
    page.entry("Spent", &spent);
    page.entry("Time", &format!("{} in turns, {} asleep", coarse(state.spend.in_turns), coarse(state.spend.asleep)));
    let tickets: Vec<String> = state.people.tickets.iter().map(|key| clean(key)).collect();
    page.entry("Tickets", if tickets.is_empty() { "none".to_owned() } else { tickets.join(", ") }.as_str());
    for step in next(state) {
        page.entry("Next", &step);
    }
    page.lines
}

struct Page {
    paint: Paint,
    lines: Vec<String>,
}

impl Page {
    fn entry(&mut self, head: &str, text: &str) {
        self.lines.push(format!("{}{text}", self.paint.strong(&pad(head, HEAD_CELLS))));
    }

    fn more(&mut self, text: &str) {
        self.lines.push(format!("{}{text}", " ".repeat(HEAD_CELLS)));
    }
}

fn how(state: &LoopState, paint: Paint) -> String {
    match &state.phase {
        Phase::Ended { ending, at } => {
            let said = match (ending, &state.spec.research) {
                (LoopEnd::Reached, Some(_)) => "reached, the metric is as good as wanted".to_owned(),
                _ => clean(&ended(ending)),
            };
            let said = match ending {
                LoopEnd::Reached => paint.good(&said),
                LoopEnd::Failed { .. } => paint.bad(&said),
                LoopEnd::Exhausted { .. } | LoopEnd::Stopped { .. } => paint.warn(&said),
            };
            format!("{said}, after {}", coarse(at.since(state.created_at)))
        }
        other => format!("not yet: {}", other.label()),
    }
}

/// The summary of a research run, in the form that other tools of this kind print.
fn research(spec: &ResearchSpec, found: &ResearchState, state: &LoopState, page: &mut Page) {
    let text = whole(spec, found, state.spec.bounds.max_turns);
    for (n, line) in text.lines().enumerate() {
        let line = clean(line);
        if n == 0 { page.entry("Result", &line) } else { page.more(&line) }
    }
}

fn checks(state: &LoopState, page: &mut Page) {
    let before = state.progress.baseline.as_ref().map_or(String::new(), |b| format!(" ({} before)", b.passing().len()));
    page.entry("Checks", &format!("{}{before}", score(&state.progress.board)));
    for line in scoreboard(&state.progress.board, state.progress.baseline.as_ref(), page.paint) {
        page.more(&line);
    }
}

/// `4: 1 turn with progress, 3 no-op turns`.
fn turns(state: &LoopState) -> String {
    let tally = &state.progress.tally;
    let kinds = [
        (tally.progress, "turn with progress", "turns with progress"),
        (tally.not_yet, "turn without a new check passing", "turns without a new check passing"),
        (tally.no_op, "no-op turn", "no-op turns"),
        (tally.refused, "refused turn", "refused turns"),
        (tally.regressed, "regressed turn", "regressed turns"),
        (tally.discarded, "discarded experiment", "discarded experiments"),
        (tally.agent_failed, "failure of the agent", "failures of the agent"),
        (tally.task_failed, "failed turn", "failed turns"),
        (tally.interrupted, "interrupted turn (not counted)", "interrupted turns (not counted)"),
        (tally.limited, "turn cut off by a limit (not counted)", "turns cut off by a limit (not counted)"),
        (tally.lost, "lost turn (not counted)", "lost turns (not counted)"),
    ];
    let words = kinds.iter().filter(|(n, _, _)| *n > 0);
    let words: Vec<String> = words.map(|(n, one, many)| format!("{n} {}", if *n == 1 { one } else { many })).collect();
    if words.is_empty() { state.task.turns.to_string() } else { format!("{}: {}", state.task.turns, words.join(", ")) }
}

fn kept(state: &LoopState, page: &mut Page) {
    if state.progress.kept_count == 0 {
        return page.entry("Kept", "nothing");
    }
    let listed = state.progress.kept.iter().rev().take(KEPT_SHOWN).rev();
    let hidden = state.progress.kept_count as usize - listed.len().min(state.progress.kept_count as usize);
    page.entry("Kept", &format!("work of {}", count(state.progress.kept_count, "turn")));
    if hidden > 0 {
        page.more(&format!("… {hidden} before these"));
    }
    for kept in listed {
        page.more(&kept_line(kept));
        if let Some(Integrated::Aside { why, command, .. }) = &kept.integrated {
            page.more(&format!("  not merged: {}; by hand: {}", clean(why), clean(command)));
        }
    }
}

fn kept_line(kept: &KeptWork) -> String {
    let place = kept.commit.as_deref().map_or("in the folder", short);
    let stat = if kept.diffstat.is_empty() { String::new() } else { format!("  {}", clean(&kept.diffstat)) };
    let see = kept.commit.as_deref().map_or(String::new(), |commit| format!("  (git show {})", short(commit)));
    format!("{}  {}{stat}{see}", clean(place), kept.task)
}

/// Attempts that do not count but are not lost either.
fn set_aside(state: &LoopState, page: &mut Page) {
    let worth = |attempt: &&Try| match attempt.outcome {
        Outcome::Reached | Outcome::Progress => false,
        // Listed as kept already.
        Outcome::NotYet | Outcome::AgentFailed { kept: true, .. } if is_kept(state, attempt) => false,
        Outcome::NotYet
        | Outcome::NoOp
        | Outcome::Refused { .. }
        | Outcome::Regressed { .. }
        | Outcome::Discarded { .. }
        | Outcome::AgentFailed { .. }
        | Outcome::TaskFailed { .. }
        | Outcome::Limited { .. }
        | Outcome::Interrupted
        | Outcome::Lost => attempt.pin.is_some(),
    };
    for (i, attempt) in state.progress.tries.iter().filter(worth).enumerate() {
        let line = format!("turn {}: {}", attempt.number, clean(&amounts_to(&attempt.outcome)));
        if i == 0 {
            page.entry("Unused", &line);
        } else {
            page.more(&line);
        }
        let pin = attempt.pin.as_deref().unwrap_or_default();
        page.more(&format!("  kept at {pin}  (git show {pin})", pin = clean(pin)));
    }
}

fn is_kept(state: &LoopState, attempt: &Try) -> bool {
    let task = attempt.turn.as_str().rsplit_once('.').map(|(task, _)| task);
    state.progress.kept.iter().any(|kept| Some(kept.task.as_str()) == task)
}

fn next(state: &LoopState) -> Vec<String> {
    let id = &state.id;
    let mut steps = Vec::new();
    if state.research.as_ref().is_some_and(|research| research.champion.number > 0) {
        steps.push(format!("bring the champion to your branch: everloop research apply {id}"));
    }
    if state.research.is_some() {
        steps.push(format!(
            "see all experiments: everloop research show {id}; as a page: everloop research report {id}"
        ));
    }
    let waits = state.progress.waits_to_be_taken(&state.spec.workspace.mode);
    if waits {
        steps.push(format!("take the work: everloop take {id}"));
    }
    match &state.phase {
        Phase::Ended { ending: LoopEnd::Reached, .. } => match (&state.spec.workspace.mode, state.progress.kept.last())
        {
            (WorkspaceMode::Git { target }, Some(_)) if !waits && state.research.is_none() => {
                let branch = target.strip_prefix("refs/heads/").unwrap_or(target);
                steps.push(format!(
                    "look at it: git log --stat -{} {}",
                    state.progress.kept_count.min(50),
                    clean(branch)
                ));
            }
            _ => {}
        },
        Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } => {
            let more = match bound.as_str() {
                "turns" => format!("everloop resume {id} --max-turns {}", state.spec.bounds.max_turns.unwrap_or(10)),
                "time" => {
                    format!(
                        "everloop resume {id} --max-time {}",
                        state.spec.bounds.max_time.map_or("8h".to_owned(), human)
                    )
                }
                _ => format!("everloop resume {id}"),
            };
            steps.push(format!("give it more: {more}"));
            steps.push(format!("see what was tried: everloop show {id}"));
        }
        Phase::Ended { ending: LoopEnd::Stopped { .. }, .. } => steps.push(format!("go on: everloop resume {id}")),
        Phase::Ended { ending: LoopEnd::Failed { .. }, .. } => {
            steps.push(format!("find the cause: everloop logs {id}; then: everloop resume {id}"));
        }
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) => {
            steps.push(format!("see why: everloop why {id}"));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everloop_core::guard::Spend;
    use everloop_core::ids::TaskId;
    use everloop_core::scoreboard::Verdict;
    use everloop_core::state::TurnTally;
    use everloop_core::time::Time;

    use super::*;
    use everloop_testkit::sample::{START, board, state, tried};

    fn over(ending: LoopEnd) -> LoopState {
        let mut state = state();
        state.phase = Phase::Ended { ending, at: Time(START.0 + 754_000) };
        state
    }

    #[test]
    fn a_reached_loop_shows_what_was_kept_and_what_was_refused() {
        let mut state = over(LoopEnd::Reached);
        state.progress.board = board(&[("build", Verdict::Pass), ("unit tests", Verdict::Pass)]);
        state.task.turns = 4;
        state.progress.tally =
            TurnTally { progress: 1, no_op: 1, refused: 1, regressed: 1, lost: 1, ..TurnTally::default() };
        state.progress.tries = vec![
            tried(1, Outcome::NoOp),
            tried(2, Outcome::Refused { paths: vec!["tests/unit.sh".into()] }),
            tried(3, Outcome::Regressed { lost: vec!["build".into()] }),
            tried(4, Outcome::Reached),
        ];
        state.progress.kept = vec![KeptWork {
            task: TaskId::new("k3f9-4"),
            commit: Some("0123456789abcdef".into()),
            diffstat: "2 files, +14 -3".into(),
            integrated: Some(Integrated::Landed { commit: "0123456789abcdef".into() }),
        }];
        state.progress.kept_count = 1;
        state.spend.spent = Spend { calls: 4, tokens: 12_345, microusd: 400_000 };
        state.spend.in_turns = Duration::from_secs(480);
        state.spend.asleep = Duration::from_secs(200);
        insta::assert_snapshot!(summary(&state, Paint::Off).join("\n"));
    }

    #[test]
    fn a_loop_of_no_ops_says_so_and_offers_more_turns() {
        let mut state = over(LoopEnd::Exhausted { bound: "turns".into() });
        state.task.turns = 3;
        state.progress.tally.no_op = 3;
        state.people.tickets = vec!["stagnation".into()];
        insta::assert_snapshot!(summary(&state, Paint::Off).join("\n"));
    }

    #[test]
    fn work_that_waits_aside_comes_with_its_command() {
        let mut state = over(LoopEnd::Reached);
        let aside = Integrated::Aside {
            commit: "0123456789abcdef".into(),
            why: "the tree of main is dirty".into(),
            command: "git merge --ff-only refs/everloop/k3f9/work".into(),
        };
        state.progress.kept = vec![KeptWork {
            task: TaskId::new("k3f9-1"),
            commit: Some("0123456789abcdef".into()),
            diffstat: String::new(),
            integrated: Some(aside),
        }];
        state.progress.kept_count = 1;
        let text = summary(&state, Paint::Off).join("\n");
        assert!(text.contains("Next      take the work: everloop take k3f9"), "{text}");
    }

    #[test]
    fn kept_work_is_not_listed_as_unused_too() {
        let mut state = over(LoopEnd::Reached);
        let attempt = Try { pin: Some("refs/everloop/k3f9/1.1".into()), ..tried(1, Outcome::NotYet) };
        state.progress.tries = vec![attempt];
        assert!(summary(&state, Paint::Off).join("\n").contains("Unused    turn 1"));
        let (task, commit) = (TaskId::new("k3f9-1"), Some("0123456789abcdef".into()));
        state.progress.kept = vec![KeptWork { task, commit, diffstat: String::new(), integrated: None }];
        assert!(!summary(&state, Paint::Off).join("\n").contains("Unused"));
    }

    #[test]
    fn an_agents_text_cannot_forge_a_summary() {
        let mut state = over(LoopEnd::Failed { why: "x\u{1b}[2J\nEnded     reached".into() });
        state.spec.goal = "a\u{202e}b\u{1b}]0;t\u{7}".into();
        let text = summary(&state, Paint::Off).join("\n");
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("\nEnded     reached"),
            "{text}"
        );
    }
}
