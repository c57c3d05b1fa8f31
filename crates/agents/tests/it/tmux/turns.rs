//! Turns with programs that imitate agents: a screen, a title, an input box.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::tmux::{Pane, PaneError, PaneKey, PaneNews, PaneProgram, PaneTurn, PaneTurnEnd, SafeText, State};

use super::world::World;

/// Draws Claude Code's screen from its functions; `turn` is the effect of a prompt.
const FAKE: &str = r#"
rule='────────────────────────────────────────'
draw() { # TITLE ABOVE FOOTER
    printf '\033[2J\033[H\033]2;%s\007%s\n%s\n❯ \n%s\n  %s' "$1" "$2" "$rule" "$rule" "$3"
}
idle() { draw '✳ Claude Code' "$1" '⏵⏵ bypass permissions on'; }
busy() { draw '◐ Claude Code' "$1" '⏵⏵ bypass permissions on · esc to interrupt'; }
ask() { printf '\033[2J\033[H%s\n Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel' "$rule"; }
limit() { draw '✳ Claude Code' "$1" "⚠ Usage limit reached · limit resets 9:30pm"; }
stty -echo
idle welcome
while read -r line; do
    printf '%s\n' "$line" >> prompts
    case $line in
        slow) for i in 1 2 3 4; do busy "working $i"; sleep 0.4; done; idle 'answer: slow' ;;
        fast) idle 'answer: fast' ;;
        ask) busy asking; sleep 0.3; ask ;;
        limit) busy limited; sleep 0.3; limit nothing ;;
        die) busy dying; sleep 0.3; exit 3 ;;
        allowed) busy asking; sleep 0.3; ask; read -r _; busy going; sleep 0.3; idle 'answer: allowed' ;;
        hang) busy hanging ;;
        stop) busy stopping; sleep 0.3; idle 'answer: stop'; : > stopped ;;
    esac
done
"#;

fn fake(world: &World) -> Pane {
    let program = world.program(&["sh", "-c", FAKE]);
    world.server.start("agent".parse().unwrap(), PaneProgram::Claude, program).unwrap()
}

fn turn(prompt: &str) -> PaneTurn {
    let prompt = SafeText::clean(prompt.as_bytes());
    PaneTurn {
        prompt,
        limit: Duration::from_secs(30),
        quiet: Duration::from_millis(800),
        stop_file: None,
        answer_within: Duration::ZERO,
    }
}

fn take(world: &World, pane: &Pane, turn: &PaneTurn) -> Result<PaneTurnEnd, PaneError> {
    world.server.turn(pane, turn, &mut |_| {})
}

fn prompts(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.path("work/prompts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_turn_ends_when_the_program_is_idle_again() {
    let world = World::new();
    let pane = fake(&world);
    for word in ["slow", "fast", "slow"] {
        match take(&world, &pane, &turn(word)).unwrap() {
            PaneTurnEnd::Done { screen } => assert!(screen.contains(&format!("answer: {word}")), "{screen}"),
            other => panic!("{word}: {other:?}"),
        }
    }
    assert_eq!(prompts(&world), ["slow", "fast", "slow"], "each prompt once");
}

fn limited(until: &str) -> State {
    State::Limited { until: Some(until.to_owned()), said: format!("⚠ Usage limit reached · limit resets {until}") }
}

#[test]
fn a_question_a_limit_and_an_end_are_told_apart() {
    for (word, expected) in [
        ("ask", State::Asking { question: "Do you want to proceed?".to_owned() }),
        ("limit", limited("9:30pm")),
        ("die", State::Dead { status: Some(3) }),
    ] {
        let world = World::new();
        let pane = fake(&world);
        for attempt in ["first", "again"] {
            match take(&world, &pane, &turn(word)).unwrap() {
                PaneTurnEnd::Stuck { state, .. } => assert_eq!(state, expected, "{attempt}"),
                other => panic!("{word}: {other:?}"),
            }
        }
        assert_eq!(prompts(&world), [word], "nothing is typed into a program that is not idle");
    }
}

#[test]
fn a_turn_that_takes_too_long_ends_and_the_next_one_does_not_type() {
    let world = World::new();
    let pane = fake(&world);
    let short = PaneTurn { limit: Duration::from_secs(3), ..turn("hang") };
    let first = take(&world, &pane, &short).unwrap();
    assert!(matches!(first, PaneTurnEnd::TimedOut { state: State::Working, typed: true, .. }), "{first:?}");
    let second = take(&world, &pane, &short).unwrap();
    assert!(matches!(second, PaneTurnEnd::TimedOut { state: State::Working, typed: false, .. }), "{second:?}");
    assert_eq!(prompts(&world), ["hang"]);
}

#[test]
fn a_hooks_file_ends_the_turn_and_an_old_one_does_not() {
    let world = World::new();
    let pane = fake(&world);
    let file: PathBuf = world.path("work/stopped");
    std::fs::write(&file, "of an earlier turn").unwrap();
    // The screen is never quiet for that long: only the file can end this turn.
    let patient = PaneTurn { quiet: Duration::from_secs(3600), stop_file: Some(file), ..turn("stop") };
    match take(&world, &pane, &patient).unwrap() {
        PaneTurnEnd::Done { screen } => assert!(screen.contains("answer: stop"), "{screen}"),
        other => panic!("{other:?}"),
    }
    // The file of that turn still exists; a turn that creates none must not be ended by it.
    assert!(world.path("work/stopped").exists());
    let never = PaneTurn { limit: Duration::from_secs(5), ..patient };
    let ended = take(&world, &pane, &PaneTurn { prompt: SafeText::clean(b"slow"), ..never }).unwrap();
    assert!(matches!(ended, PaneTurnEnd::TimedOut { state: State::Idle, typed: true, .. }), "{ended:?}");
}

#[test]
fn two_turns_at_once_are_refused() {
    let world = World::new();
    let pane = fake(&world);
    let server = world.server.clone();
    let other = pane.clone();
    let first = std::thread::spawn(move || server.turn(&other, &turn("slow"), &mut |_| {}));
    super::world::wait_for("the first turn runs", || prompts(&world) == ["slow"]);
    let second = take(&world, &pane, &turn("fast"));
    assert!(matches!(second, Err(PaneError::Busy { .. })), "{second:?}");
    assert!(matches!(first.join().unwrap().unwrap(), PaneTurnEnd::Done { .. }));
    assert_eq!(prompts(&world), ["slow"]);
}

/// The question is reported, waits for a person, and the turn goes on with the answer.
#[test]
fn a_question_within_a_turn_waits_for_its_answer() {
    let world = World::new();
    let pane = fake(&world);
    let patient = PaneTurn { answer_within: Duration::from_secs(30), ..turn("allowed") };
    let mut news = Vec::new();
    let ended = world.server.turn(&pane, &patient, &mut |said| match said {
        PaneNews::Asks(question) => {
            news.push(question.to_owned());
            let enter: PaneKey = "enter".parse().unwrap();
            world.server.press(&pane, &[enter]).unwrap();
        }
        PaneNews::GoesOn => news.push("goes on".to_owned()),
        PaneNews::Used(used) => news.push(format!("{used:?}")),
    });
    assert!(matches!(&ended, Ok(PaneTurnEnd::Done { screen }) if screen.contains("answer: allowed")), "{ended:?}");
    assert_eq!(news, ["Do you want to proceed?", "goes on"]);
    assert_eq!(prompts(&world), ["allowed"], "the prompt was typed once");
}
