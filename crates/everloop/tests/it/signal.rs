//! `everloop signal`: what wakes a persona, what does not, and that each signal counts once.

use std::fs;
use std::time::Duration;

use everloop_core::op::Op;
use everloop_store::{Ledger, OpenMode, Sqlite};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::env::Env;
use crate::persona::Personas;

/// Kills in all, each between a signal and the turn that it starts.
const KILLS: usize = 20;

/// Puts a file where signals are read, as a careful writer does.
fn put_file(personas: &Personas, name: &str, text: &str) {
    let dir = personas.env.state().join("signals");
    let part = dir.join(format!(".{name}"));
    fs::write(&part, text).expect("the folder is there");
    fs::rename(part, dir.join(name)).expect("it is the same folder");
}

#[test]
fn a_low_one_sleeps_on_and_the_second_one_wakes() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    personas.signal("echo", "the first word", &["--class", "low"]);
    personas.waits("echo", 1);
    let shown = personas.show("echo");
    assert_eq!((&shown["state"], &shown["turns"]), (&json!("asleep"), &json!(0)), "{shown}");
    personas.signal("echo", "the second word", &["--class", "low"]);
    personas.took("echo", 1);
    assert_eq!((personas.prompted("echo", "the first word"), personas.prompted("echo", "the second word")), (1, 1));
    personas.down(up);
}

#[test]
fn two_low_ones_outside_of_the_window_do_not_wake() {
    let personas = Personas::of(Env::new().fast(20)).with("echo", "low_window = \"10s\"\nafter_nothing = \"4h\"");
    let up = personas.up();
    personas.signal("echo", "first", &["--class", "low"]);
    personas.waits("echo", 1);
    personas.env.let_pass(Duration::from_secs(11));
    personas.signal("echo", "second", &["--class", "low"]);
    personas.waits("echo", 2);
    assert_eq!(personas.show("echo")["turns"], 0);
    personas.down(up);
}

#[test]
fn a_high_one_wakes_related_personas_once_also_in_a_circle() {
    let personas = Personas::new()
        .with("a", "related = [\"b\", \"c\"]")
        .with("b", "related = [\"a\", \"c\"]")
        .with("c", "related = [\"a\", \"b\"]");
    let up = personas.up();
    personas.signal("a", "the datacenter burns", &["--class", "high"]);
    for name in ["a", "b", "c"] {
        personas.took(name, 1);
    }
    // A further signal to each shows that nothing else was under way.
    for name in ["a", "b", "c"] {
        personas.signal(name, "and now for something else", &[]);
        personas.took(name, 2);
        assert_eq!(personas.prompted(name, "the datacenter burns"), 1, "{name}");
        assert_eq!(personas.show(name)["yields"]["signals"], 2, "{name}");
    }
    assert_eq!(personas.prompted("b", "passed on by a"), 1);
    personas.down(up);
}

#[test]
fn a_secret_in_a_signal_reaches_neither_a_prompt_nor_the_ledger() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    let key = ["sk-ant-", "api03-", &"k".repeat(40)].concat();
    personas.signal("echo", &format!("the key is {key}"), &[]);
    personas.took("echo", 1);
    put_file(&personas, "echo.one", &format!("another place has {key}"));
    personas.took("echo", 2);
    assert_eq!(personas.prompted("echo", &key), 0);
    assert_eq!((personas.prompted("echo", "the key is ["), personas.prompted("echo", "another place has [")), (1, 1));
    for name in ["ledger.db", "ledger.db-wal"] {
        let bytes = fs::read(personas.env.state().join(name)).unwrap_or_default();
        assert!(!bytes.windows(key.len()).any(|part| part == key.as_bytes()), "{name} holds it");
    }
    personas.down(up);
}

#[test]
fn ignored_ones_never_wake_and_wait_for_the_next_turn() {
    let personas = Personas::new().with("echo", "ignore = [\"noise\", \"topic:chat.*\"]");
    let up = personas.up();
    personas.signal("echo", "hum", &["--class", "high", "--tag", "noise"]);
    personas.signal("echo", "small talk", &["--topic", "chat.off"]);
    personas.waits("echo", 2);
    let shown = personas.show("echo");
    assert_eq!(
        (&shown["state"], &shown["turns"], &shown["yields"]["ignored"]),
        (&json!("asleep"), &json!(0), &json!(2))
    );
    personas.signal("echo", "for real", &[]);
    personas.took("echo", 1);
    for text in ["hum", "small talk", "for real"] {
        assert_eq!(personas.prompted("echo", &format!("```text\n{text}\n```")), 1, "{text}");
    }
    assert_eq!(personas.show("echo")["waiting"], 0);
    personas.down(up);
}

#[test]
fn the_same_id_counts_once() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    let id = ["--id", "report-7"];
    assert_eq!(personas.signal("echo", "a report", &id)["repeated"], false);
    personas.took("echo", 1);
    assert_eq!(personas.signal("echo", "a report", &id)["repeated"], true);
    put_file(&personas, "echo.report-7", "the same id at another source");
    personas.took("echo", 2);
    put_file(&personas, "echo.report-7", "the same id at the same source");
    personas.env.wait_for("the file is read", || !personas.env.state().join("signals/echo.report-7").exists());
    personas.signal("echo", "the last one", &[]);
    personas.took("echo", 3);
    assert_eq!((personas.prompted("echo", "a report"), personas.prompted("echo", "at the same source")), (1, 0));
    personas.down(up);
}

#[test]
fn a_file_is_a_signal_and_what_cannot_be_read_is_kept() {
    let personas = Personas::new().with("echo", "ignore = [\"noise\"]");
    let up = personas.up();
    let refused = personas.env.state().join("signals/refused");
    let full = r#"{"body":"by file","class":"high","topic":"deploy.eu"}"#;
    put_file(&personas, "echo.1.json", full);
    personas.took("echo", 1);
    assert_eq!(personas.prompted("echo", "class high; topic deploy.eu; from a file"), 1);
    for (name, text, why) in [
        ("nobody.1", "x", "no persona has this name"),
        ("echo.2.json", "{\"klass\":\"high\"}", "unknown field `klass`"),
        ("echo.3.json", "{\"class\":\"urgent\"}", "urgent"),
        ("echo.4", &"x".repeat(40_000), "has 40000 bytes"),
    ] {
        put_file(&personas, name, text);
        personas.env.wait_for(name, || refused.join(name).exists());
        assert_eq!(fs::read_to_string(refused.join(name)).expect("it is kept"), text);
        personas.env.wait_for_words(&["logs", "--all"], &[&format!("the signal in the file `{name}` is refused"), why]);
    }
    put_file(&personas, "echo.5.tmp", "not complete");
    put_file(&personas, "echo.6", "complete");
    personas.took("echo", 2);
    assert!(personas.env.state().join("signals/echo.5.tmp").exists());
    personas.down(up);
}

#[test]
fn files_from_before_the_supervisor_are_signals_and_without_personas_no_folder_is_watched() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    personas.env.run(&["down"]).ok();
    up.wait();
    put_file(&personas, "echo.1", "while nothing runs");
    let up = personas.supervise();
    personas.took("echo", 1);
    personas.down(up);

    let env = Env::new();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).ok().json()["supervisor"].is_object());
    assert!(!env.state().join("signals").exists());
    let links = fs::read_dir(format!("/proc/{}/fd", up.pid())).expect("it runs").flatten();
    let watches = links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to.ends_with("inotify"))).count();
    assert_eq!(watches, 0);
    env.run(&["down"]).ok();
    up.wait();
}

#[test]
fn a_kill_between_signal_and_turn_loses_nothing_and_doubles_nothing() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    personas.env.run(&["guard", "hold", "all", "--reason", "lunch"]).ok();
    personas.signal("echo", "before the kill", &[]);
    personas.waits("echo", 1);
    up.signal(Signal::SIGKILL);
    up.wait();
    personas.signal("echo", "without a supervisor", &[]);
    personas.env.run(&["guard", "release", "all", "--reason", "lunch is over"]).ok();
    let up = personas.supervise();
    personas.took("echo", 1);
    for text in ["before the kill", "without a supervisor"] {
        assert_eq!(personas.prompted("echo", text), 1, "{text}");
    }
    personas.down(up);
}

#[test]
fn long_kills_at_any_moment_leave_each_signal_in_one_prompt() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    up.signal(Signal::SIGKILL);
    up.wait();
    let mut seed = 7;
    for kill in 0..KILLS {
        let up = personas.supervise();
        personas.signal("echo", &format!("signal {kill} is new"), &["--id", &kill.to_string()]);
        seed = everloop_core::jitter::mix(seed, 1);
        // From the arrival of the signal to after the turn that it starts.
        std::thread::sleep(Duration::from_micros(seed % 400_000));
        up.signal(Signal::SIGKILL);
        up.wait();
    }
    let up = personas.supervise();
    personas.waits("echo", 0);
    personas.sleeps("echo");
    for kill in 0..KILLS {
        assert_eq!(personas.prompted("echo", &format!("signal {kill} is new")), 1, "signal {kill}");
    }
    personas.down(up);
}

#[test]
fn a_storm_is_few_turns_and_every_signal_is_read_once() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    personas.env.run(&["guard", "hold", "all", "--reason", "a storm"]).ok();
    for n in 0..250 {
        put_file(&personas, &format!("echo.storm-{n}"), &format!("drop {n} of the storm"));
    }
    personas.waits("echo", 250);
    personas.env.run(&["guard", "release", "all", "--reason", "it is over"]).ok();
    personas.took("echo", 3);
    for n in 0..250 {
        assert_eq!(personas.prompted("echo", &format!("drop {n} of the storm")), 1, "{n}");
    }
    personas.down(up);
}

/// Writes so many signals in one transaction, as a source that was away does.
fn flood(personas: &Personas, name: &str, count: usize) {
    let mut ledger = Sqlite::open(&personas.env.state().join("ledger.db"), OpenMode::ReadWrite).expect("a ledger");
    let to = personas.show(name)["loop"].as_str().expect("an id").to_owned();
    let drop = |n: usize| {
        let signal = serde_json::json!({
            "id": format!("flood-{n}"), "to": name, "class": "medium", "body": format!("drop {n} of the flood"),
            "at": 0, "source": "test",
        });
        let body = json!({ "command": "signal", "signal": signal }).to_string();
        Op::Signal { to: to.clone(), by: "a test".to_owned(), body }
    };
    let all: Vec<Op> = (0..count).map(drop).collect();
    ledger.transact(personas.env.now(), &all).expect("it is the ledger's turn");
}

#[test]
fn long_a_thousand_signals_make_no_more_starts_than_the_caps_and_none_is_lost() {
    flooded(1_000);
}

#[test]
fn soak_ten_thousand_signals_make_no_more_starts_than_the_caps_and_none_is_lost() {
    flooded(10_000);
}

fn flooded(drops: usize) {
    const STARTS: u64 = 5;
    let personas = Personas::new().with("echo", "").and(&format!("[defaults.guard]\nper_hour = {STARTS}\n"));
    let up = personas.up();
    flood(&personas, "echo", drops);
    personas.env.run(&["wake", "echo"]).ok();
    let received = || personas.show("echo")["yields"]["signals"].as_u64().unwrap_or(0);
    for part in 1..=10 {
        personas.env.wait_for("the flood to come in", || received() >= part * drops as u64 / 10);
    }
    let turns = || personas.show("echo")["turns"].as_u64().unwrap_or(0);
    personas.env.wait_for("all turns that the caps allow", || turns() == STARTS);
    personas.env.wait_for_words(&["why", "echo"], &["5 of 5 starts per hour are used"]);
    let shown = personas.show("echo");
    let (waiting, taken) = (shown["waiting"].as_u64(), shown["yields"]["taken"].as_u64());
    assert_eq!(waiting.zip(taken).map(|(waiting, taken)| waiting + taken), Some(drops as u64), "{shown}");
    assert!(turns() == STARTS && taken.is_some_and(|taken| taken <= 100 * STARTS), "{shown}");
    let prompts = personas.prompts("echo").concat();
    let counts = (0..drops).map(|n| prompts.matches(&format!("drop {n} of the flood")).count());
    let (once, more) = counts.fold((0, 0), |(once, more), n| (once + u64::from(n == 1), more + u64::from(n > 1)));
    assert_eq!((Some(once), more), (taken, 0), "each that was taken is in one prompt");
    personas.down(up);
}

#[test]
fn a_signal_concerns_its_persona_alone() {
    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    let personas = names.iter().fold(Personas::new(), |personas, name| personas.with(name, ""));
    let up = personas.up();
    let versions = || {
        let ledger = Sqlite::open(&personas.env.state().join("ledger.db"), OpenMode::ReadOnly).expect("a ledger");
        let marks = ledger.open_loops().expect("the loops");
        marks.into_iter().map(|mark| (mark.id.to_string(), mark.version)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (before, woken) = (versions(), personas.show("p7")["loop"].as_str().expect("an id").to_owned());
    personas.signal("p7", "the deploy to eu failed", &[]);
    personas.took("p7", 1);
    let after = versions();
    let changed: Vec<&String> = before.keys().filter(|id| before.get(*id) != after.get(*id)).collect();
    assert_eq!(changed, [&woken], "the others sleep on, and nothing is decided about them");
    personas.env.run(&["task", "add", "sort the tickets", "--loop", "p3"]).ok();
    personas.took("p3", 1);
    personas.env.run(&["message", "send", "p5", "look at the docs"]).ok();
    personas.took("p5", 1);
    personas.down(up);
}

#[test]
fn what_is_wrong_is_refused_with_a_hint_and_changes_nothing() {
    let personas = Personas::new().with("echo", "");
    let up = personas.up();
    let large = "x".repeat(32 * 1024 + 1);
    let long = "x".repeat(201);
    for (args, words) in [
        (&["signal", "echo", "x", "--class", "urgent"][..], "`urgent` is no class of a signal"),
        (&["signal", "echo", &large], "the body of a signal has 32769 bytes"),
        (&["signal", "echo", "x", "--topic", &long], "the topic of a signal has 201 characters"),
        (&["signal", "echo", "x", "--tag", "a\nb"], "control characters"),
        (&["signal", "echo", "x", "--id", "a/b"], "has a slash"),
        (&["signal", "nobody", "x"], "there is no persona `nobody`"),
    ] {
        let said = personas.env.run(args).exits(2).stderr;
        assert!(said.contains(words), "{said}");
    }
    let shown = personas.show("echo");
    assert_eq!((&shown["yields"]["signals"], &shown["turns"]), (&json!(0), &json!(0)));
    personas.signal("echo", &"y".repeat(32 * 1024), &[]);
    personas.took("echo", 1);
    assert_eq!(personas.prompted("echo", &"y".repeat(32 * 1024)), 1, "the largest one arrives whole");
    personas.down(up);
}

#[test]
fn a_turn_sends_no_high_signal_and_none_to_itself() {
    let exe = env!("CARGO_BIN_EXE_everloop");
    let said = Env::new();
    let out = said.project().with_file_name("out").join("a");
    let tries = format!(
        "cat > /dev/null; {{ {exe} signal a x; {exe} signal b y --class high; {exe} signal b \"from a turn\" --id t1; }} > {}/said 2>&1",
        out.display()
    );
    let personas = Personas::of(said).with_agent("a", &tries, "").with("b", "");
    let up = personas.up();
    personas.signal("a", "go", &[]);
    personas.took("a", 1);
    personas.took("b", 1);
    let said = fs::read_to_string(out.join("said")).expect("the agent ran");
    assert!(said.contains("a turn may not signal its own persona") && said.contains("<WAKE in 15m>"), "{said}");
    assert!(said.contains("send a signal of class high"), "{said}");
    assert_eq!((personas.prompted("b", "from a turn"), personas.prompted("b", "```text\ny\n")), (1, 0));
    assert_eq!(personas.show("a")["yields"]["signals"], Value::from(1));
    personas.down(up);
}
