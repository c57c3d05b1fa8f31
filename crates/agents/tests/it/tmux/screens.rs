//! Recorded screens of the real programs and their meaning.

use std::path::Path;

use everloop_agents::tmux::{PaneProgram, PaneSession, PaneView, State, Status, composer, detect};

const IDLE_TITLE: &str = "✳ Claude Code";
const BUSY_TITLE: &str = "◐ Claude Code";

/// As codex wraps it at the edge of the screen.
const CODEX_LIMIT: &str = "You've hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit \
    https://chatgpt.com/settings/ usage to purchase more credits or try again at 9:42 PM.";

fn screen(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tmux/fixtures").join(format!("{name}.txt"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn sight(name: &str, title: &str) -> PaneView {
    PaneView { title: title.to_owned(), screen: screen(name), ..PaneView::default() }
}

fn limited(until: &str, said: &str) -> State {
    State::Limited { until: Some(until.to_owned()), said: said.to_owned() }
}

/// The sentence of claude on these screens.
fn hit(until: &str) -> State {
    limited(until, &format!("You've hit your 5-hour limit · resets {until} (UTC)"))
}

fn asking(question: &str) -> State {
    State::Asking { question: question.to_owned() }
}

#[test]
fn every_recorded_screen_of_claude_is_understood() {
    let proceed = || asking("Do you want to proceed?");
    let table = [
        ("01-trust-dialog", IDLE_TITLE, asking("Accessing workspace:")),
        ("02-apikey-dialog", IDLE_TITLE, asking("Do you want to use this API key?")),
        ("03-idle-fresh", IDLE_TITLE, State::Idle),
        ("04-idle-bypass", IDLE_TITLE, State::Idle),
        ("05-working", BUSY_TITLE, State::Working),
        ("06-idle-after", IDLE_TITLE, State::Idle),
        ("07-permission", IDLE_TITLE, proceed()),
        ("08-permission-after", IDLE_TITLE, State::Idle),
        ("09-retry-429", BUSY_TITLE, State::Working),
        ("10-retry-529", BUSY_TITLE, State::Working),
        ("11-401", BUSY_TITLE, State::Working),
        ("12-hang", BUSY_TITLE, State::Working),
        ("13-usage-limit", IDLE_TITLE, hit("9:30pm")),
        ("14-queued", BUSY_TITLE, State::Working),
        ("15-limit-wait", IDLE_TITLE, hit("7:32pm")),
        ("16-after-queue", IDLE_TITLE, State::Idle),
        ("17-limit-continued", IDLE_TITLE, hit("7:32pm")),
        ("18-idle60", IDLE_TITLE, State::Idle),
        ("19-multiline-literal", IDLE_TITLE, State::Idle),
        ("20-multiline-sent", IDLE_TITLE, State::Idle),
        ("21-bracketed-paste", IDLE_TITLE, State::Idle),
        ("22-bracketed-sent", IDLE_TITLE, State::Idle),
        ("23-exit", "bash", State::Unknown),
        ("24-limit-short", IDLE_TITLE, hit("7:33pm")),
        ("25-limit-continued", IDLE_TITLE, State::Idle),
        ("26-tool-running", BUSY_TITLE, State::Working),
        ("27-interrupted", IDLE_TITLE, State::Idle),
        ("28-sigterm", "bash", State::Unknown),
        ("29-perm-again", IDLE_TITLE, proceed()),
        ("30-killed", IDLE_TITLE, State::Unknown),
        ("31-limit-noauto", IDLE_TITLE, hit("9:50pm")),
    ];
    for (name, title, expected) in table {
        assert_eq!(detect(PaneProgram::Claude, &sight(name, title)), expected, "{name}");
    }
}

#[test]
fn every_recorded_screen_of_codex_is_understood() {
    let table = [
        ("40-codex-idle", "work", State::Idle),
        ("41-codex-working", "⠋ work", State::Working),
        ("42-codex-done", "work", State::Idle),
        ("42-codex-idle2", "work", State::Idle),
        ("43-codex-approval", "work", State::Idle),
        ("43-codex-tool", "work", State::Idle),
        ("44-codex-429", "work", State::Working),
        ("44-codex-after", "work", State::Idle),
        ("45-codex-limit", "work", limited("9:42 PM", CODEX_LIMIT)),
        ("46-codex-new-model", "vm", asking("Meet GPT-6 Sol")),
        ("47-codex-trust", "vm", asking("Trust this folder?")),
        ("48-codex-command", "[ . ] Action Required | work", asking("Would you like to run the following command?")),
        ("48-codex-command", "work", asking("Would you like to run the following command?")),
    ];
    for (name, title, expected) in table {
        assert_eq!(detect(PaneProgram::Codex, &sight(name, title)), expected, "{name}");
    }
}

#[test]
fn every_fixture_is_in_a_table() {
    let tables = include_str!("screens.rs");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tmux/fixtures");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(tables.contains(&format!("(\"{name}\"")), "{name}");
    }
}

/// Agents write about limits and dialogs too.
#[test]
fn words_in_the_conversation_decide_nothing() {
    let words = [
        "You've hit your 5-hour limit · resets 9:30pm (UTC)",
        "⚠ Usage limit reached · limit resets 9:30pm",
        "■ You’ve hit your usage limit. try again at 9:42 PM.",
        "Do you want to proceed?",
        "❯ 1. Yes",
        "Enter to confirm · Esc to cancel",
        "⏵⏵ bypass permissions on · esc to interrupt",
        "────────────────────────",
        "  ⎿  You've hit your 5-hour limit · resets 9:30pm (UTC)",
    ];
    for text in words {
        let claude = screen("06-idle-after").replace("w0 w1", &format!("so:\n  {text}\n  w0 w1"));
        let seen = PaneView { title: IDLE_TITLE.to_owned(), screen: claude, ..PaneView::default() };
        assert_eq!(detect(PaneProgram::Claude, &seen), State::Idle, "{text}\n{}", seen.screen);
        let codex = screen("42-codex-done").replace("w0 w1", &format!("so:\n  {text}\n  w0 w1"));
        let seen = PaneView { title: "work".to_owned(), screen: codex, ..PaneView::default() };
        assert_eq!(detect(PaneProgram::Codex, &seen), State::Idle, "{text}\n{}", seen.screen);
    }
    // Output of a tool stands below a bullet; a message of the program itself right below the
    // prompt.
    let tool = screen("06-idle-after").replace("● w0", "● Ran a command\n  ⎿  You've hit your 5-hour limit\n\n● w0");
    let seen = PaneView { title: IDLE_TITLE.to_owned(), screen: tool, ..PaneView::default() };
    assert_eq!(detect(PaneProgram::Claude, &seen), State::Idle);
}

/// The sentence stays on the screen when the limit is over; then what is below it counts.
#[test]
fn a_limit_that_is_over_is_none() {
    let seen = |kind, name: &str, title: &str, past: &str| {
        detect(kind, &PaneView { past_limit: Some(past.to_owned()), ..sight(name, title) })
    };
    let said = "You've hit your 5-hour limit · resets 9:30pm (UTC)";
    assert_eq!(seen(PaneProgram::Claude, "13-usage-limit", IDLE_TITLE, said), State::Idle);
    assert_eq!(seen(PaneProgram::Claude, "13-usage-limit", BUSY_TITLE, said), State::Working);
    assert_eq!(seen(PaneProgram::Claude, "13-usage-limit", IDLE_TITLE, "another one"), hit("9:30pm"));
    let menu = seen(PaneProgram::Codex, "45-codex-limit", "work", CODEX_LIMIT);
    assert_eq!(menu, asking("Switch to gpt-6-luna for lower credit usage?"), "a menu is not typed into");
}

/// The next version may name its keys differently: an unknown menu is not typed into.
#[test]
fn choices_of_an_unknown_menu_are_not_taken_for_an_input_line() {
    for name in ["46-codex-new-model", "47-codex-trust", "48-codex-command"] {
        let text = screen(name);
        let footer = text.trim_end().lines().last().unwrap();
        let seen =
            PaneView { title: "work".to_owned(), screen: text.replace(footer, "  ⏎ go"), ..PaneView::default() };
        assert_eq!(detect(PaneProgram::Codex, &seen), State::Unknown, "{name}");
        assert_eq!(composer(PaneProgram::Codex, &seen.screen), None, "{name}");
    }
    // A person's own list in the input line is not a menu.
    let list = screen("42-codex-done").replace("› Ask Codex to do anything", "› 1. fix the test");
    let seen = PaneView { title: "work".to_owned(), screen: list, ..PaneView::default() };
    assert_eq!(detect(PaneProgram::Codex, &seen), State::Idle);
}

#[test]
fn a_limit_without_its_banner_is_seen_until_work_goes_on() {
    let menu_closed = screen("13-usage-limit");
    let lines: Vec<&str> = menu_closed.lines().filter(|l| !l.contains('⚠') && !l.contains("Continuing")).collect();
    let seen = PaneView { title: IDLE_TITLE.to_owned(), screen: lines.join("\n"), ..PaneView::default() };
    assert_eq!(
        detect(PaneProgram::Claude, &seen),
        limited("9:30pm (UTC)", "You've hit your 5-hour limit · resets 9:30pm (UTC)")
    );
}

#[test]
fn claudes_own_record_counts_beside_the_screen() {
    let with = |name: &str, title: &str, status: Status| {
        let session = Some(PaneSession { status, updated: "1".to_owned(), id: None });
        detect(PaneProgram::Claude, &PaneView { session, ..sight(name, title) })
    };
    // The screen of a small terminal hides the footer.
    assert_eq!(with("06-idle-after", IDLE_TITLE, Status::Busy), State::Working);
    assert_eq!(with("06-idle-after", IDLE_TITLE, Status::Idle), State::Idle);
    assert_eq!(with("05-working", BUSY_TITLE, Status::Idle), State::Working);
    let waiting = Status::Waiting { reason: "permission prompt".to_owned() };
    assert_eq!(with("06-idle-after", IDLE_TITLE, waiting), asking("permission prompt"));
    // The record is idle during a usage limit.
    assert_eq!(with("13-usage-limit", IDLE_TITLE, Status::Idle), hit("9:30pm"));
    // Idle alone is not enough when no input box is visible.
    assert_eq!(with("23-exit", "bash", Status::Idle), State::Unknown);
    assert_eq!(with("06-idle-after", IDLE_TITLE, Status::Other), State::Idle);
}

#[test]
fn a_title_that_spins_is_work() {
    assert_eq!(detect(PaneProgram::Claude, &sight("06-idle-after", BUSY_TITLE)), State::Working);
    assert_eq!(detect(PaneProgram::Codex, &sight("42-codex-done", "⠙ work")), State::Working);
    // The program's logo is made of the same dots.
    assert_eq!(detect(PaneProgram::Codex, &sight("40-codex-idle", "work")), State::Idle);
}

#[test]
fn the_input_box_is_read() {
    let of = |kind, name| composer(kind, &screen(name));
    assert_eq!(of(PaneProgram::Claude, "06-idle-after").as_deref(), Some(""));
    assert_eq!(of(PaneProgram::Claude, "19-multiline-literal").as_deref(), Some("line one"));
    assert_eq!(of(PaneProgram::Claude, "07-permission"), None);
    assert_eq!(of(PaneProgram::Codex, "42-codex-done").as_deref(), Some("Ask Codex to do anything"));
    assert_eq!(of(PaneProgram::Codex, "45-codex-limit"), None);
}
