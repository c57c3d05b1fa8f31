//! Typed text arrives byte for byte, and presses no keys.
//!
//! A terminal gets a line feed as CR, as from every paste; programs turn it back. So the comparison
//! does too.

use everloop_agents::tmux::{Finish, Pane, PaneError, PaneKey, PaneProgram, SafeText, State};

use super::world::{World, wait_for};

const BEGIN: &[u8] = b"\x1b[200~";
const END: &[u8] = b"\x1b[201~";

/// Text that needs no cleaning.
const TEXTS: &[&str] = &[
    "plain",
    "a",
    " ",
    "  both sides  ",
    "\t",
    "tab\tinside",
    "\n",
    "\n\n\n\n",
    "two\nlines",
    "ends with a line\n",
    "\nbegins with one",
    ";",
    "ends with ;",
    "a;b",
    ";;",
    "\\;",
    "ends with \\;",
    "ends with \\",
    "\\\\",
    "-",
    "--",
    "-x",
    "-l text",
    "-t %0",
    "--help",
    "Enter",
    "Escape",
    "C-c",
    "M-x",
    "Space",
    "^C",
    "#",
    "##",
    "#{pane_id}",
    "#(touch x)",
    "##(touch x)",
    "#{?1,#(touch x),}",
    "#[fg=red]",
    "#S #W",
    "$(touch x)",
    "`touch x`",
    "$HOME",
    "${HOME}",
    "~",
    "~root",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "!!",
    "!touch x",
    "| touch x",
    "& touch x",
    "; touch x",
    "> x",
    "\"",
    "'",
    "\"'\"'",
    "'; touch x; '",
    "\"; touch x; \"",
    "%0",
    "%if 1",
    "%%",
    "%s%n",
    "\\n\\t\\033[31m",
    "\\007",
    "=",
    "@",
    ":",
    "a:b.c",
    "kill-server",
    "} {",
    "ü é ñ",
    "漢字かな",
    "مرحبا بالعالم",
    "שלום",
    "\u{202e}override\u{2066}",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪",
    "e\u{301}\u{302}\u{303}",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "\u{feff}bom",
    "\u{200b}zero\u{200d}",
    "\u{2028}\u{2029}",
    "\u{fffd}",
    "\u{10ffff}",
    "[201~",
    "[200~ inside [201~",
    "<script>",
    "everloop pane kill a",
    "/exit",
    "/help",
    "1",
    "y",
];

/// Everything that tmux, a shell, a terminal or a careless program could take for more than text.
fn table() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = TEXTS.iter().map(|t| t.as_bytes().to_vec()).collect();
    all.extend([
        b"a\x03b".to_vec(),
        b"\x04".to_vec(),
        b"a\x00b".to_vec(),
        b"\x1b".to_vec(),
        b"a\x1b[201~b\rtouch x\r".to_vec(),
        b"\x1b[200~\x1b[201~\x1b[201~".to_vec(),
        b"\x1b]0;title\x07".to_vec(),
        b"\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\".to_vec(),
        b"\x1b[A\x1bOP\x1b\x1b".to_vec(),
        b"\xc2\x9b201~".to_vec(),
        b"\x9b201~".to_vec(),
        b"crlf\r\nlines\r\n".to_vec(),
        b"lone\rreturn".to_vec(),
        b"back\x08\x7fspace".to_vec(),
        b"\xff\xfe".to_vec(),
        b"cut \xe2\x82".to_vec(),
        b"surrogate \xed\xa0\x80".to_vec(),
        b"over \xc0\xaf long".to_vec(),
        (0..=255).collect(),
        "x".repeat(5000).into_bytes(),
        "line\n".repeat(10_000).into_bytes(),
        "漢字 #(touch x) ; \n".repeat(1 << 16).into_bytes(),
    ]);
    all
}

/// What the program must receive: the paste in its brackets, then Enter.
fn expected(text: &SafeText) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !text.as_str().is_empty() {
        bytes.extend_from_slice(BEGIN);
        bytes.extend(text.as_str().bytes().map(|b| if b == b'\n' { b'\r' } else { b }));
        bytes.extend_from_slice(END);
    }
    bytes.push(b'\r');
    bytes
}

/// Types it and returns what the program received.
fn deliver(world: &World, pane: &Pane, file: &std::path::Path, text: &SafeText) -> Vec<u8> {
    let before = std::fs::read(file).unwrap().len();
    world.server.type_text(pane, text, Finish::Enter).unwrap();
    let wanted = before + expected(text).len();
    let got = || std::fs::read(file).unwrap();
    wait_for("the text arrives", || got().len() >= wanted);
    got().split_off(before)
}

/// The number of panes that share the table: each text takes a good quarter of a second, because
/// Enter waits.
const PANES: usize = 8;

#[test]
fn every_byte_string_arrives_as_text_and_nothing_else() {
    let table = table();
    assert!(table.len() >= 100, "{}", table.len());
    assert!(table.iter().any(|t| t.len() >= 1 << 20));
    let world = World::new();
    std::thread::scope(|scope| {
        for n in 0..PANES {
            let share: Vec<&Vec<u8>> = table.iter().skip(n).step_by(PANES).collect();
            let world = &world;
            scope.spawn(move || arrive(world, &format!("reader-{n}"), &share));
        }
    });
    world.nothing_was_run();
    assert_eq!(world.our_tmux(&["list-buffers"]), "", "a buffer was left behind");
}

fn arrive(world: &World, name: &str, table: &[&Vec<u8>]) {
    let (pane, file) = world.raw_reader(name);
    let mut stream = Vec::new();
    for bytes in table {
        let text = SafeText::clean(bytes);
        let label = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        // Clean text is not changed; the cleaning itself has its own test.
        assert!(text.changes().is_some() || text.as_str().as_bytes() == bytes.as_slice(), "{label:?}");
        let got = deliver(world, &pane, &file, &text);
        // Independent of the cleaning: between the brackets there is no key but line breaks and
        // tabs, and one paste is one paste.
        let inside = got.strip_prefix(BEGIN).and_then(|g| g.strip_suffix(b"\x1b[201~\r")).unwrap_or_default();
        let key = inside.iter().find(|b| b.is_ascii_control() && **b != b'\r' && **b != b'\t');
        assert_eq!(key, None, "{label:?} presses a key");
        let c1 = String::from_utf8_lossy(inside).chars().find(|c| ('\u{80}'..='\u{9f}').contains(c));
        assert_eq!(c1, None, "{label:?} presses a key");
        assert!(inside.is_empty() == text.as_str().is_empty(), "{label:?} left its paste");
        assert!(got == expected(&text), "{label:?}: {} bytes, {:?}", got.len(), &got[..got.len().min(200)]);
        stream.extend(got);
    }
    // Nothing arrived late either.
    stream.extend(deliver(world, &pane, &file, &SafeText::clean(b"end")));
    assert!(std::fs::read(&file).unwrap() == stream);
    assert!(stream.ends_with(&expected(&SafeText::clean(b"end"))));
}

#[test]
fn nothing_presses_enter_unless_asked() {
    let world = World::new();
    let (pane, file) = world.raw_reader("reader");
    let typed = world.server.type_text(&pane, &SafeText::clean(b"draft"), Finish::Nothing).unwrap();
    assert_eq!((typed.bytes, typed.enters), (5, 0));
    wait_for("the text arrives", || std::fs::read(&file).unwrap().len() >= 17);
    let typed = world.server.type_text(&pane, &SafeText::clean(b""), Finish::Enter).unwrap();
    assert_eq!((typed.bytes, typed.enters), (0, 1));
    wait_for("Enter arrives", || std::fs::read(&file).unwrap().ends_with(b"\r"));
    assert_eq!(std::fs::read(&file).unwrap(), b"\x1b[200~draft\x1b[201~\r");
}

#[test]
fn a_pane_that_somebody_scrolled_back_still_gets_its_text() {
    let world = World::new();
    let (pane, file) = world.raw_reader("reader");
    world.our_tmux(&["copy-mode", "-t", pane.id()]);
    let text = SafeText::clean(b"q");
    assert_eq!(deliver(&world, &pane, &file, &text), expected(&text));
}

#[test]
fn a_program_in_a_shell_sees_what_was_typed() {
    let world = World::new();
    let pane = world.sh("cat", "echo READY; exec cat");
    wait_for("cat listens", || world.screen(&pane).contains("READY"));
    let typed = world.server.type_text(&pane, &SafeText::clean("grüße; #{pane_id}".as_bytes()), Finish::Enter).unwrap();
    assert!(typed.shown);
    // Once as the echo of the terminal, once from `cat`.
    wait_for("it is shown twice", || world.screen(&pane).matches("grüße; #{pane_id}\n").count() == 2);
}

/// Enter takes the marked choice of a dialog: it approves, exits, or changes the model.
#[test]
fn no_recorded_screen_but_an_idle_one_is_typed_into() {
    let (claude, codex) = (PaneProgram::Claude, PaneProgram::Codex);
    let table = [
        ("01-trust-dialog", claude, "✳ Claude Code", "asking"),
        ("02-apikey-dialog", claude, "✳ Claude Code", "asking"),
        ("05-working", claude, "◐ Claude Code", "working"),
        ("07-permission", claude, "✳ Claude Code", "asking"),
        ("13-usage-limit", claude, "✳ Claude Code", "limited"),
        ("31-limit-noauto", claude, "✳ Claude Code", "limited"),
        ("41-codex-working", codex, "⠋ work", "working"),
        ("45-codex-limit", codex, "work", "limited"),
        ("46-codex-new-model", codex, "work", "asking"),
        ("47-codex-trust", codex, "work", "asking"),
        ("48-codex-command", codex, "work", "asking"),
        ("06-idle-after", claude, "✳ Claude Code", "idle"),
        ("42-codex-done", codex, "work", "idle"),
    ];
    let world = World::new();
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tmux/fixtures");
    for (name, kind, title, label) in table {
        let script = format!(
            "stty raw -echo; : > {name}.got; printf '\\033]2;{title}\\007'; sed 's/$/\\r/' '{}/{name}.txt'; exec tee -a {name}.got >/dev/null",
            fixtures.display()
        );
        let pane = world.server.start(name.parse().unwrap(), kind, world.program(&["sh", "-c", &script])).unwrap();
        let see = || world.server.see(&pane).unwrap().1;
        wait_for(&format!("{name} is {label}"), || see().label() == label);
        let got = || std::fs::read(world.path(&format!("work/{name}.got"))).unwrap();
        for finish in [Finish::Enter, Finish::Nothing] {
            let typed = world.server.type_text(&pane, &SafeText::clean(b"yes"), finish);
            if label == "idle" {
                typed.unwrap();
            } else {
                let refused = typed.unwrap_err();
                assert!(matches!(refused, PaneError::NotIdle { .. }), "{name}: {refused:?}");
                assert_eq!(got(), b"", "{name}: nothing arrived");
                assert!(refused.hint().is_some(), "{name}");
            }
        }
        // A key that a person names is pressed all the same.
        let keys: Vec<PaneKey> = ["2", "down"].iter().map(|k| k.parse().unwrap()).collect();
        world.server.press(&pane, &keys).unwrap();
        let pressed = || got().ends_with(b"2\x1b[B") || got().ends_with(b"2\x1bOB");
        wait_for(&format!("{name}: the keys arrive"), pressed);
        assert!(!matches!(see(), State::Dead { .. }));
        world.server.kill(name).unwrap();
    }
}
