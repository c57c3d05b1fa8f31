//! Mutated lines never make a parser panic, and never make it hold more than one line per stream.

use everloop_agents::agent::{LINE_CAP, Reader};
use everloop_core::spec::AgentKind;
use everloop_core::stream::TurnReport;

use super::fixtures::{self, NOW, end};
use super::mutate::{self, Corpus, Dice, Run};

#[test]
fn spoiled_lines_are_survived() {
    // As many as fit into a few seconds; `everloop-bench --only parsers` makes ten million.
    const CASES: u64 = 200_000;
    const LINES: u64 = 50;
    let corpus = Corpus::read(&fixtures::folder()).unwrap();
    let mut sum = Run::default();
    for seed in 0..CASES / LINES {
        let run = mutate::run(seed, LINES, &corpus);
        assert!(run.held <= 2 * LINE_CAP, "{} bytes held in run {seed}", run.held);
        sum.understood += run.understood;
        sum.unknown += run.unknown;
        sum.held = sum.held.max(run.held);
    }
    // Otherwise only the first line of each parser would be tested. A fifth is usual; new
    // recordings shift it a little.
    assert!(sum.understood > CASES / 8, "only {} records were understood, {} were not", sum.understood, sum.unknown);
    assert!(sum.held > LINE_CAP / 2, "the longest line had {} bytes", sum.held);
}

/// codex's own file may be cut off, or replaced meanwhile.
#[test]
fn spoiled_notes_of_codex_are_survived() {
    let noted: Vec<fixtures::Case> = fixtures::all().into_iter().filter(|c| !c.rollout.is_empty()).collect();
    assert!(!noted.is_empty());
    let lines: Vec<Vec<u8>> = noted.iter().flat_map(|c| c.rollout.split(|b| *b == b'\n').map(<[u8]>::to_vec)).collect();
    let mut dice = Dice::new(11);
    for number in 0..1_000 {
        let case = &noted[number % noted.len()];
        // The first line stays: the test finds the thread's name in it.
        let mut rollout = case.rollout.split(|b| *b == b'\n').next().unwrap().to_vec();
        for _ in 0..8 {
            rollout.push(b'\n');
            rollout.extend(mutate::spoiled(&mut dice, &lines));
        }
        let spoiled = fixtures::Case { out: case.out.clone(), rollout, ..fixtures::Case::empty(AgentKind::Codex) };
        fixtures::read(&spoiled, usize::MAX);
    }
}

#[test]
fn a_flood_without_an_end_of_line_is_not_kept() {
    for kind in AgentKind::ALL {
        let mut reader = Reader::new(kind, false);
        let mut report = TurnReport::default();
        let piece = vec![b'{'; 64 << 10];
        for _ in 0..64 {
            reader.out(&piece, NOW, &mut |said| report.take(&said));
            reader.err(&piece, NOW, &mut |said| report.take(&said));
            assert!(reader.held_bytes() <= 2 * LINE_CAP);
        }
        reader.end(&end(0, &[]), &mut |said| report.take(&said));
        assert_eq!(report.unknown, 1, "{kind:?}");
        // The screen of a pane is text; only its exit code counts.
        assert_eq!(report.ok == Some(true), kind == AgentKind::Pane, "{kind:?}");
    }
}

#[test]
fn a_record_nested_too_deep_is_one_that_nobody_knows() {
    let deep = format!("{{\"type\":\"assistant\",\"message\":{}1{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    for kind in [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Api] {
        let said = fixtures::read_text(kind, &deep, 0);
        assert_eq!(fixtures::report(&said).unknown, 1, "{kind:?}");
    }
}
