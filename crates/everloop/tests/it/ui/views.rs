//! Every view in a real Chromium, over a ledger with a loop, tasks, tickets and texts that try to be
//! more than text: nothing of them runs, and `axe` finds nothing, at both widths and in both schemes.

use everloop_testkit::browser::{ColourScheme, PageScripts};

use super::corpus::{HARM, corpus};
use super::desk::Desk;
use crate::env::Env;

/// All views, and the pages of a loop and a turn.
fn pages(desk: &Desk) -> Vec<(String, String)> {
    let views = ["inbox", "board", "guard", "rhythm", "timeline", "burn", "research", "mesh", "log", "settings"];
    let mut pages = vec![("now".to_owned(), "/".to_owned())];
    pages.extend(views.iter().map(|view| ((*view).to_owned(), format!("/{view}"))));
    let id = desk.env.the_loop()["id"].as_str().expect("there is a loop").to_owned();
    for part in ["", "/diff", "/prompt"] {
        pages.push((format!("loop{}", part.replace('/', "-")), format!("/loop/{id}{part}")));
    }
    pages.push(("turn".to_owned(), format!("/turn/{id}-1.1")));
    pages
}

/// A loop with the corpus in its goal, its agent's output, its check and its tickets.
fn hostile() -> Env {
    let env = Env::new().git();
    let all = corpus().join("\n");
    env.write("corpus.txt", &all);
    env.script("check.sh", "cat corpus.txt; test -f made.txt && exit 1; exit 1");
    env.write("board.md", "");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a corpus"]);
    for text in corpus().iter().step_by(5) {
        env.run(&["task", "add", "--", text]).ok();
    }
    for texts in corpus().chunks(50) {
        env.run(&["message", "send", "--", "person", &texts.join("\n")]).ok();
    }
    let goal = format!("say it all\n{all}");
    let agent = "cat > /dev/null; cat corpus.txt; date +%N >> made.txt";
    let words = ["run", &goal, "--check", "./check.sh"];
    env.run(&[&words[..], &["--agent-cmd", agent, "-n", "3", "--min-gap", "0"]].concat()).exits(3);
    env
}

#[test]
fn long_no_text_of_an_agent_is_more_than_text_on_any_page() {
    assert!(corpus().len() >= 200);
    let desk = Desk::new(hostile());
    for (name, path) in pages(&desk) {
        desk.open(&path);
        // A mark would be set by now: handlers of broken images run after the page.
        desk.browser.eval("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))");
        assert_eq!(desk.browser.eval_text(HARM), "", "{name}");
        let asked: Vec<String> = desk.browser.requests();
        let foreign: Vec<&String> = asked.iter().filter(|url| !url.contains(&desk.address.to_string())).collect();
        assert!(foreign.is_empty(), "{name}: {foreign:?}");
    }
    let complaints = desk.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    // The live update takes the parts of a fresh page over.
    desk.open("/board");
    desk.env.run(&["task", "add", "<img src=x onerror=window.owned=1> arrived live"]).ok();
    desk.env.run(&["message", "send", "person", "look: <svg onload=window.owned=1>"]).ok();
    desk.wait_for_words("arrived live");
    assert_eq!(desk.browser.eval_text(HARM), "");
}

/// `axe-core`, of the folder that `test-runners.sh` made.
fn axe() -> String {
    let hint = "hint: export EVERLOOP_TEST_RUNNERS=<the folder that crates/testkit/test-runners.sh prints last>";
    let folder = std::env::var_os("EVERLOOP_TEST_RUNNERS").unwrap_or_else(|| panic!("no test runners\n{hint}"));
    let path = std::path::PathBuf::from(folder).join("axe-core/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("`{}`: {e}\n{hint}", path.display()))
}

#[test]
fn long_every_view_answers_at_both_widths_in_both_schemes_and_axe_finds_nothing() {
    let env = Env::new().git();
    env.git_run(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let agent = "cat > /dev/null; echo working on it; echo $((n)) >> made.txt; date +%N >> made.txt";
    let checks = ["--check", "test -f made.txt", "--check", "test $(wc -l < made.txt) -ge 99"];
    let words = [&["run", "make the file long"], &checks[..], &["--agent-cmd", agent]].concat();
    env.run(&[&words[..], &["-n", "4", "--min-gap", "0"]].concat()).exits(3);
    let id = env.the_loop()["id"].as_str().expect("there is a loop").to_owned();
    env.run(&["task", "add", "port the parser", "--prompt", "carefully"]).ok();
    env.run(&["message", "send", "person", "May I delete the old tests?"]).ok();
    let desk = Desk::new(env);
    desk.env
        .run(&[
            "run",
            "wait a while",
            "--check",
            "false",
            "--agent-cmd",
            "true",
            "--min-gap",
            "1h",
            "--in-place",
            "--detach",
        ])
        .ok();
    desk.env.wait_for("the loop waits", || desk.env.run(&["status"]).stdout.contains("waiting"));
    let axe = axe();
    let mut all: Vec<(String, String)> =
        ["inbox", "board", "guard", "rhythm", "timeline", "burn", "research", "mesh", "log", "settings"]
            .iter()
            .map(|view| ((*view).to_owned(), format!("/{view}")))
            .collect();
    all.push(("now".to_owned(), "/".to_owned()));
    for part in ["", "/diff", "/prompt"] {
        all.push((format!("loop{}", part.replace('/', "-")), format!("/loop/{id}{part}")));
    }
    all.push(("turn".to_owned(), format!("/turn/{id}-1.1")));
    let mut found = Vec::new();
    for (name, path) in &all {
        for scheme in ColourScheme::ALL {
            desk.browser.prefer(scheme);
            for width in [1280, 360] {
                desk.browser.resize(width, 800);
                desk.open(path);
                assert_eq!(desk.browser.count("h1"), 1, "{name}");
                let wide = desk.browser.eval("return document.documentElement.scrollWidth - innerWidth");
                if wide.as_i64().is_none_or(|over| over > 0) {
                    found.push(format!("{name} at {width}: {wide} pixels too wide"));
                }
                let said = desk.browser.eval_text(&format!(
                    "{axe};return axe.run(document, {{resultTypes: ['violations']}}).then(r => r.violations\
                     .map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | ')).join('\\n'))"
                ));
                if !said.is_empty() {
                    found.push(format!("{name} {} {width}: {said}", scheme.label()));
                }
                desk.browser.keep_picture(&format!("ui-{name}-{width}-{}", scheme.label()));
            }
        }
        let bytes = desk.browser.eval("return document.documentElement.outerHTML.length").as_u64();
        assert!(bytes.is_some_and(|bytes| bytes < 100_000), "{name}: {bytes:?}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let complaints = desk.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    desk.browser.scripts(PageScripts::Off);
    for (name, path) in &all {
        desk.open(path);
        assert_eq!(desk.browser.count("main h1"), 1, "{name} without scripts");
    }
}
