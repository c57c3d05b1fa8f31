//! `everloop report`: the morning after, as text, Markdown, JSON, a page and a picture.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use everloop_testkit::browser::{Browser, ColourScheme, PageScripts, pages};
use serde_json::Value;

use crate::env::Env;

/// A page that can be mailed.
const MAX_BYTES: u64 = 300_000;

/// A loop whose agent first edits the check, then does nothing, then half of the work, then all.
fn night() -> Env {
    let env = Env::new().git();
    env.write("check.sh", "test -f one\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "check"]);
    let outside = env.project().join("../outside");
    fs::create_dir_all(&outside).expect("the folder is the test's");
    let agent = outside.join("agent");
    let script = "#!/bin/sh\ncase ${EVERLOOP_TASK##*-} in 1) echo true > check.sh;; 2) ;; 3) echo 1 > one;; \
        *) printf 'a\\nb\\n' > two;; esac\n";
    fs::write(&agent, script).expect("the folder is the test's");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("it was just written");
    let agent = agent.canonicalize().expect("it was just written").display().to_string();
    let checks = ["--check", "sh check.sh", "--check", "test -f two"];
    let words = ["run", "make <b>both</b> files", "--agent-cmd", &agent, "-n", "9", "--min-gap", "0"];
    env.run(&[&words[..], &checks].concat()).ok();
    env
}

#[test]
fn the_report_names_what_was_asked_proved_kept_and_refused() {
    let env = night();
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    let text = env.run(&["report"]).ok().stdout;
    for words in [
        "1 of 1 loop reached their goal, 2 changes kept, 2 turns not used, nothing waits for you",
        "make <b>both</b> files",
        "it changed what decides the checks: check.sh",
        "it changed nothing",
        &format!("everloop diff {id}"),
        "In all: 2 files, +3",
        "in 4 turns",
        "█ kept",
    ] {
        assert!(text.contains(words), "`{words}` is missing:\n{text}");
    }
    let markdown = env.run(&["report", &id, "--md"]).ok().stdout;
    assert!(markdown.starts_with("# Morning report\n") && markdown.contains("\\<b\\>both\\</b\\>"), "{markdown}");
    let json = env.run(&["report", "--json"]).ok().json();
    let part = &json["report"]["loops"][0];
    assert_eq!((part["loop"].as_str(), part["phase"].as_str()), (Some(id.as_str()), Some("reached")));
    assert_eq!((part["kept_count"].as_u64(), part["changes"]["files"].as_u64()), (Some(2), Some(2)));
    let turns = |n: usize| (part["refused"][n]["outcome"].as_str(), part["refused"][n]["turns"].clone());
    assert_eq!(turns(0), (Some("no-op"), Value::from(vec![2])));
    assert_eq!(turns(1), (Some("refused"), Value::from(vec![1])));
    let later = env.run(&["report", "--since", "2020-01-01"]).ok().stdout;
    assert!(later.contains("2 changes kept"), "{later}");
}

#[test]
fn tickets_wait_in_the_report_and_other_loops_stay_out_of_it() {
    let env = night();
    env.run(&["message", "send", "person", "may I use the <i>other</i> key?"]).ok();
    let text = env.run(&["report"]).ok().stdout;
    assert!(text.contains("1 ticket waits for you") && text.contains("may I use the <i>other</i> key?"), "{text}");
    let none = env.run(&["report", "nowhere"]).exits(2).stderr;
    assert!(none.contains("there is no loop `nowhere`"), "{none}");
    let fresh = Env::new();
    let empty = fresh.run(&["report"]).ok().stdout;
    assert!(empty.contains("0 of 0 loops reached their goal"), "{empty}");
}

#[test]
fn the_page_is_opened_and_printed_in_a_browser() {
    let env = night();
    env.run(&["report", "--html", "report.html", "--png", "report.png"]).ok();
    let file = env.project().join("report.html");
    assert!(fs::metadata(&file).expect("it was written").len() <= MAX_BYTES);
    assert!(fs::read(env.project().join("report.png")).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG")));
    let browser = Browser::start();
    browser.scripts(PageScripts::Off);
    let mut papers = Vec::new();
    for scheme in ColourScheme::ALL {
        browser.prefer(scheme);
        for (width, height) in [(1280, 900), (360, 740)] {
            browser.resize(width, height);
            browser.open_file(&file);
            browser.keep_picture(&format!("report-{}-{width}", scheme.label()));
            let over = browser.eval("return document.documentElement.scrollWidth - innerWidth").as_i64();
            assert!(over.is_some_and(|over| over <= 0), "wider than {width} by {over:?}");
        }
        papers.push(browser.eval_text("return getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(papers[0], papers[1]);
    assert!(browser.text("main").contains("make <b>both</b> files"), "a text stays a text");
    assert_eq!(browser.count("svg .kept"), 1 + 2, "the legend and two turns");
    let printed = pages(&browser.pdf());
    assert!((1..=3).contains(&printed), "{printed} pages");
    let requests = browser.requests();
    assert!(requests.len() == 4 && requests.iter().all(|url| url.ends_with("/report.html")), "{requests:?}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    fs::copy(env.project().join("report.png"), everloop_testkit::browser::pictures().join("report-picture.png")).ok();
}
