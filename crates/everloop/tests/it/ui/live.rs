//! A loop that is watched and led from a page, with the script and without it.

use std::fs;

use everloop_testkit::browser::PageScripts;

use super::desk::{Desk, seen};
use crate::env::Env;

/// A loop whose agent works until a file of the home is there, once for each turn.
fn working() -> Desk {
    let env = Env::new().git();
    let body = "cat > \"$HOME/prompt\"\necho a line of the agent\n\
        while [ ! -e \"$HOME/end\" ]; do sleep 0.05; done\nrm \"$HOME/end\"\ndate +%N >> made.txt";
    let agent = env.script("agent.sh", body);
    let home = env.project().join("../home").canonicalize().expect("the home is there");
    env.write("everloop.toml", &format!("[isolation]\nwritable = [{:?}]\n", home.display().to_string()));
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "agent"]);
    env.run(&["trust"]).ok();
    let desk = Desk::new(env);
    desk.env
        .run(&[
            "run",
            "make lines",
            "--check",
            "test -f never",
            "--agent-cmd",
            &agent,
            "--min-gap",
            "0",
            "-n",
            "9",
            "--detach",
        ])
        .ok();
    desk
}

impl Desk {
    fn home(&self, name: &str) -> std::path::PathBuf {
        self.env.project().join("../home").join(name)
    }

    /// Lets the running turn come to its end.
    fn end_turn(&self) {
        fs::write(self.home("end"), "").expect("the home is the test's");
    }

    /// The number of turns that were started.
    fn started(&self) -> u64 {
        self.env.the_loop()["started"].as_u64().unwrap_or_default()
    }

    fn id(&self) -> String {
        self.env.the_loop()["id"].as_str().expect("there is a loop").to_owned()
    }

    fn says(&self, what: &str) -> bool {
        self.env.run(&["logs"]).ok().stdout.contains(what)
    }
}

#[test]
fn long_a_turn_and_a_ticket_arrive_live_and_an_answer_reaches_the_next_turn() {
    let desk = working();
    let browser = &desk.browser;
    // The page was opened before the loop was there; nothing loads it again but itself.
    desk.wait_for_words("turn ");
    assert_eq!(browser.count("#working .card"), 1, "{}", desk.text());
    seen("the agent's words", || desk.env.run(&["status"]).stdout.contains("running"));
    desk.env.run(&["message", "send", "person", "May I delete it?", "--about", &desk.id()]).ok();
    desk.wait_for_words("May I delete it?");
    assert!(browser.eval_text("return document.title").starts_with("(1)"));
    desk.open("/inbox");
    browser.type_into(".ticket input[name=text]", "yes, but keep <b>one</b>");
    browser.click(".ticket form[action='/do/answer'] button");
    desk.wait_for_words("answered; loop");
    desk.end_turn();
    seen("the next turn", || desk.started() >= 2);
    seen("the answer in its prompt", || {
        fs::read_to_string(desk.home("prompt")).is_ok_and(|prompt| prompt.contains("yes, but keep <b>one</b>"))
    });
    desk.open(&format!("/loop/{}", desk.id()));
    desk.end_turn();
    seen("the row of the turn", || browser.count("#turns-list tbody tr") >= 3);
    assert!(browser.count("svg.matrix path") > 0, "{}", desk.text());
    // A hidden page keeps no stream open.
    browser.eval(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});\
        document.dispatchEvent(new Event('visibilitychange'))",
    );
    let before = browser.text("#turns-list");
    let started = desk.started();
    desk.end_turn();
    seen("another turn", || desk.started() > started);
    assert_eq!(browser.text("#turns-list"), before, "it is silent");
    browser.eval(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true});\
        document.dispatchEvent(new Event('visibilitychange'))",
    );
    seen("it catches up", || browser.text("#turns-list") != before);
}

/// Everything that a person does from a page, by forms alone.
fn led(desk: &Desk) {
    let (browser, id) = (&desk.browser, desk.id());
    let page = format!("/loop/{id}");
    seen("a turn", || desk.started() >= 1);
    desk.open(&page);
    browser.type_into("#steer", "write less");
    browser.click("form[action='/do/steer'] button");
    seen("it is an instruction", || desk.says("steered by tester (dashboard): write less"));
    desk.open(&page);
    browser.click("form[action='/do/pause'] button");
    seen("it pauses", || desk.says("paused by tester (dashboard)"));
    desk.end_turn();
    seen("it is paused", || {
        desk.open(&page);
        browser.count("form[action='/do/resume'] button") == 2 && browser.count(".badge.paused") == 1
    });
    browser.click("#actions form[action='/do/resume'] button");
    seen("it goes on", || desk.says("resumed by tester (dashboard)"));
    desk.open("/guard");
    browser.click("#hold summary");
    browser.type_into("#reason", "the key leaks");
    browser.click("#hold button");
    seen("it is held", || desk.env.run(&["guard", "status"]).stdout.contains("the key leaks"));
    desk.open("/guard");
    browser.type_into("form[action='/do/release'] input[name=reason]", "it was renewed");
    browser.click("form[action='/do/release'] button");
    seen("it is released", || desk.says("was released by"));
    desk.open("/board");
    browser.click("#add summary");
    browser.type_into("#title", "a task of the page");
    browser.click("#add button");
    desk.wait_for_words("a task of the page");
    browser.click("form[action='/do/task-cancel'] button");
    seen("it is cancelled", || desk.says("was cancelled by tester (dashboard)"));
    desk.open("/board");
    browser.click("form[action='/do/task-retry'] button");
    seen("it is retried", || desk.says("was retried by tester (dashboard)"));
    desk.open(&page);
    browser.click("form[action='/do/checks'] button");
    seen("the checks ran", || {
        desk.open(&page);
        browser.count("#hand .verdict.fail") == 1
    });
    desk.env.run(&["message", "send", "person", "Really?"]).ok();
    desk.open("/inbox");
    browser.click("form[action='/do/ack'] button");
    desk.wait_for_words("acknowledged by tester (dashboard)");
    desk.open(&page);
    browser.click("form[action='/do/stop'] button");
    seen("a stop was requested", || desk.says("stop requested by tester (dashboard)"));
    desk.end_turn();
    seen("it is over", || desk.env.the_loop()["phase"]["is"] == "ended");
}

#[test]
fn long_a_loop_is_led_from_its_page() {
    led(&working());
}

#[test]
fn long_a_loop_is_led_without_scripts_by_forms() {
    let desk = working();
    desk.browser.scripts(PageScripts::Off);
    led(&desk);
}

#[test]
fn long_the_keyboard_alone_opens_views_and_presses_buttons() {
    let desk = working();
    let press = |key: &str| {
        desk.browser
            .devtools("Input.dispatchKeyEvent", &serde_json::json!({ "type": "keyDown", "key": key, "text": key }));
        desk.browser.devtools("Input.dispatchKeyEvent", &serde_json::json!({ "type": "keyUp", "key": key }));
    };
    desk.wait_for_words("turn ");
    press("b");
    seen("the board", || desk.browser.text("h1") == "board");
    press("/");
    seen("the first field", || desk.browser.eval_text("return document.activeElement.id") == "title");
    for letter in "by keys".chars() {
        press(&letter.to_string());
    }
    assert_eq!(desk.browser.eval_text("return document.activeElement.value"), "by keys", "letters are text there");
    desk.browser
        .devtools("Input.dispatchKeyEvent", &serde_json::json!({ "type": "keyDown", "key": "Enter", "text": "\r" }));
    seen("the task", || desk.env.run(&["task", "list"]).ok().stdout.contains("by keys"));
    desk.open("/");
    seen("it is loaded", || desk.browser.count("#working .card") == 1);
    press("j");
    assert_eq!(desk.browser.eval_text("return document.activeElement.tagName"), "A");
}
