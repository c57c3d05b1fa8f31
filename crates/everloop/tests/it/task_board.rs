//! `everloop task board`: the board as a file, its inbox folder, and git's merge of two boards.

use std::fs;

use serde_json::{Value, json};

use crate::env::Env;

fn board(env: &Env) -> Vec<Value> {
    let board: Value = serde_json::from_str(&env.read("tasks/board.json")).expect("a board is JSON");
    board["tasks"].as_array().expect("it has tasks").clone()
}

#[test]
fn the_file_shows_the_ledger_and_changes_only_with_it() {
    let env = Env::new();
    env.run(&["task", "add", "first", "--prompt", "two\nlines"]).ok();
    env.run(&["task", "add", "second", "--priority", "5"]).ok();
    let said = env.run(&["task", "board", "write", "--json"]).ok().json();
    assert_eq!((&said["tasks"], &said["written"]), (&json!(2), &json!(true)));
    let text = env.read("tasks/board.json");
    env.run(&["task", "next", "--lease", "10m"]).ok();
    env.run(&["task", "board", "write"]).ok();
    let after = env.read("tasks/board.json");
    let changed: Vec<&str> = after.lines().filter(|line| !text.lines().any(|old| old == *line)).collect();
    assert_eq!(changed.len(), 3, "its holder, its fence and its status: {changed:?}");
    assert_eq!(env.run(&["task", "board", "write", "--json"]).ok().json()["written"], false);
    assert_eq!(env.run(&["task", "board", "export"]).ok().stdout, after);
    env.write("tasks/board.json", &after.replace("first", "another"));
    let titles = env.run(&["task", "list"]).ok().stdout;
    assert!(titles.contains("first") && !titles.contains("another"), "it is a view: {titles}");
    env.run(&["task", "board", "write"]).ok();
    assert_eq!(env.read("tasks/board.json"), after);
}

#[test]
fn a_board_of_another_tool_is_imported_once() {
    let env = Env::new();
    let text = r#"{"tasks":[
        {"id":"T-2","description":"build it","status":"pending","priority":"high","depends":["T-1"],"estimate":"2d"},
        {"id":"T-1","description":"plan it","status":"done"}]}"#;
    env.write("old.json", text);
    assert_eq!(
        env.run(&["task", "board", "import", "old.json", "--json"]).ok().json()["imported"],
        json!(["T-1", "T-2"])
    );
    assert_eq!(env.run(&["task", "board", "import", "old.json", "--json"]).ok().json()["imported"], json!([]));
    let next = env.run(&["task", "next", "--json"]).ok().json()["task"].clone();
    assert_eq!((&next["id"], &next["priority"], &next["prompt"]), (&json!("T-2"), &json!(10), &json!("estimate: 2d")));
    env.write("ring.json", r#"[{"id":"a","title":"a","depends":["b"]},{"id":"b","title":"b","depends":["a"]}]"#);
    let ring = env.run(&["task", "board", "import", "ring.json"]).exits(2);
    assert!(ring.stderr.contains("in a circle: a → b → a"), "{}", ring.stderr);
    env.run(&["task", "show", "a"]).exits(2);
}

#[test]
fn what_is_exported_can_be_imported_elsewhere() {
    let env = Env::new();
    let first = env.run(&["task", "add", "first", "--prompt", "with text", "--json"]).ok().json()["task"].clone();
    env.run(&["task", "add", "second", "--after", first.as_str().unwrap(), "--priority", "-3"]).ok();
    env.run(&["task", "claim", first.as_str().unwrap()]).ok();
    env.run(&["task", "done", first.as_str().unwrap(), "--fence", "1", "--result", "fine"]).ok();
    let text = env.run(&["task", "board", "export"]).ok().stdout;
    let other = Env::new();
    other.write("b.json", &text);
    other.run(&["task", "board", "import", "b.json"]).ok();
    let tasks = |env: &Env| -> Vec<Value> {
        let board: Value = serde_json::from_str(&env.run(&["task", "board", "export"]).ok().stdout).expect("a board");
        let mut tasks = board["tasks"].as_array().expect("it has tasks").clone();
        tasks.sort_by_key(|task| task["title"].to_string());
        tasks
    };
    for (here, there) in tasks(&env).iter().zip(tasks(&other)) {
        for field in ["id", "title", "status", "priority", "depends", "prompt", "result"] {
            assert_eq!(here[field], there[field], "{field}");
        }
    }
}

#[test]
fn the_supervisor_keeps_the_file_and_takes_wishes() {
    let env = Env::new();
    env.write("everloop.toml", "[board]\nfile = \"tasks/board.json\"\n\n[loop.x]\ngoal = \"x\"\nchecks = [\"test -f done\"]\nagent_cmd = \"true\"\n");
    let run = env.spawn(&["run"]);
    env.wait_for("the board is there", || env.project().join("tasks/board.json").exists());
    env.write("tasks/inbox/bad.json", r#"{"intent":"add","title":"x","checks":["true"]}"#);
    env.write("tasks/inbox/new.tmp", r#"{"intent":"add","title":"a wish","by":"ann"}"#);
    let inbox = env.project().join("tasks/inbox");
    fs::rename(inbox.join("new.tmp"), inbox.join("new.json")).expect("it was just written");
    env.run(&["task", "add", "a person's"]).ok();
    env.wait_for("the intent is on the board", || board(&env).len() == 2);
    let titles: Vec<Value> = board(&env).iter().map(|t| t["title"].clone()).collect();
    assert!(titles.contains(&json!("a wish")) && titles.contains(&json!("a person's")), "{titles:?}");
    env.wait_for("the bad one is away", || inbox.join("rejected/bad.json").exists());
    assert!(env.read("tasks/inbox/rejected/bad.json.reason.txt").contains("unknown field `checks`"));
    drop(run);
    env.run(&["replay"]).ok();
}

#[test]
fn a_board_that_git_tracks_does_not_keep_work_from_landing() {
    let env = Env::new().git();
    env.write("everloop.toml", "[board]\nfile = \"tasks/board.json\"\n");
    env.run(&["task", "add", "later"]).ok();
    env.run(&["task", "board", "write"]).ok();
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "board"]);
    env.run(&["task", "add", "another"]).ok();
    env.run(&["run", "x", "--check", "test -f made", "--agent-cmd", "touch made", "--min-gap", "0"]).ok();
    assert!(env.project().join("made").exists(), "it landed");
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
    assert_eq!(board(&env).len(), 1);
}

#[test]
fn git_merges_two_boards_without_conflicts() {
    let env = Env::new().git();
    let driver = env.run(&["task", "board", "driver"]).ok().stdout;
    let exe = env!("CARGO_BIN_EXE_everloop");
    for line in driver.lines().filter(|line| line.starts_with("git config")) {
        assert!(line.contains("merge.everloop"), "{line}");
    }
    env.git_run(&["config", "merge.everloop.driver", &format!("'{exe}' task board merge %O %A %B")]);
    env.write(".gitattributes", "tasks/board.json merge=everloop\n");
    env.run(&["task", "add", "shared"]).ok();
    env.run(&["task", "board", "write"]).ok();
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "board"]);
    // Two branches, each with a ledger of its own.
    for (branch, state) in [("left", "state-l"), ("right", "state-r")] {
        env.git_run(&["checkout", "-q", "-b", branch, "main"]);
        let state = env.project().join("..").join(state).display().to_string();
        let on = |args: &[&str]| env.run(&[&["--state-dir", state.as_str()], args].concat()).ok();
        on(&["task", "board", "import", "tasks/board.json"]);
        for n in 0..10 {
            on(&["task", "add", &format!("{branch} {n}")]);
        }
        if branch == "left" {
            let task = on(&["task", "next", "--json"]).json()["task"]["id"].clone();
            on(&["task", "done", task.as_str().unwrap(), "--fence", "1", "--result", "left did it"]);
        }
        on(&["task", "board", "write"]);
        env.git_run(&["commit", "-q", "-am", branch]);
    }
    env.git_run(&["merge", "-q", "--no-edit", "left"]);
    let text = env.read("tasks/board.json");
    assert!(!text.contains("<<<<"), "{text}");
    let merged = board(&env);
    assert_eq!(merged.len(), 21);
    assert_eq!(merged.iter().filter(|t| t["status"] == "done" && t["title"] == "shared").count(), 1);
}

#[test]
fn the_prompt_says_what_an_agent_has_to_know() {
    let env = Env::new();
    let text = env.run(&["task", "board", "prompt"]).ok().stdout;
    for word in
        ["fence", "task done", "Off-limits", "Budget", "task block", "no-op", "task add", "Git", "are data", "inbox"]
    {
        assert!(text.contains(word), "{word} is missing");
    }
}

#[test]
fn no_view_says_done_for_a_turn_that_changed_nothing() {
    let env = Env::new().git();
    let words = ["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"];
    env.run(&words).exits(3);
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    env.run(&["task", "add", "write it down", "--loop", &id]).ok();
    // One more turn, which takes the task.
    env.run(&[&words[..6], &["-n", "2", "--min-gap", "0"]].concat()).exits(3);
    let tasks = env.run(&["task", "list", "--all", "--json"]).ok().json()["tasks"].clone();
    let tasks = tasks.as_array().expect("a list");
    assert!(tasks.len() == 2 && tasks.iter().all(|task| task["status"] == "no-op"), "{tasks:?}");
    let board: Value = serde_json::from_str(&env.run(&["task", "board", "export"]).ok().stdout).expect("a board");
    assert_eq!(board["tasks"][0]["status"], "no-op", "{board}");
    let task = board["tasks"][0]["id"].as_str().expect("an id");
    for words in [&["task", "list", "--all"][..], &["show", task]] {
        let text = env.run(words).ok().stdout;
        assert!(text.contains("no-op") && !text.contains("done ") && !text.contains("{\"is\""), "{text}");
    }
}

#[test]
fn each_project_has_its_own_board() {
    let env = Env::new();
    let other = env.project().join("../other").display().to_string();
    fs::create_dir(&other).expect("a folder");
    let words = ["run", "x", "--check", "true", "--agent-cmd", "true", "--in-place"];
    env.run(&words).ok();
    env.run(&[&words[..], &["-C", &other]].concat()).ok();
    let loops = env.run(&["status", "--json"]).ok().json()["loops"].clone();
    for n in 0..2 {
        env.run(&["task", "add", &format!("task {n}"), "--loop", loops[n]["id"].as_str().expect("an id")]).ok();
    }
    env.run(&["task", "add", "for anybody"]).ok();
    let titles = |words: &[&str]| {
        let board: Value = serde_json::from_str(&env.run(words).ok().stdout).expect("a board");
        let tasks = board["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().filter_map(|task| task["title"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(titles(&["task", "board", "export"]), ["task 0", "for anybody"]);
    assert_eq!(titles(&["task", "board", "export", "-C", &other]), ["task 1", "for anybody"]);
    assert_eq!(titles(&["task", "board", "export", "--all"]), ["task 0", "task 1", "for anybody"]);
}

/// The file of the board, notifiers and plugins are the project's and the person's, not a turn's.
#[test]
fn a_turn_may_use_tasks_and_tickets_and_not_what_else_stands_below_these_verbs() {
    let env = Env::new();
    let said = env.project().join("said").display().to_string();
    let everloop = format!("{} --state-dir '{}'", env!("CARGO_BIN_EXE_everloop"), env.state().display());
    let refused = [
        "task board write",
        "ticket notifiers --test",
        "agents plugin install out",
        "guard quarantine",
        "forget --ended",
    ];
    let lines: Vec<String> = ["task list", "ticket list", "agents"]
        .iter()
        .chain(&refused)
        .map(|words| format!("{everloop} {words} >> '{said}.text' 2>&1; echo \"{words}: $?\" >> '{said}'"))
        .collect();
    let agent = env.script("agent", &lines.join("\n"));
    env.run(&["run", "x", "--check", "false", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let (codes, text) = (env.read("said"), env.read("said.text"));
    for words in ["task list", "ticket list", "agents"] {
        assert!(codes.contains(&format!("{words}: 0")), "{codes}\n{text}");
    }
    for words in refused {
        assert!(codes.contains(&format!("{words}: 2")), "{codes}\n{text}");
    }
    assert_eq!(text.matches("a turn may not do this").count(), refused.len(), "{text}");
}
