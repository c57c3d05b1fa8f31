//! `everloop diff`: what the work of a loop changes, for people, agents and programs.

use serde_json::{Value, json};

use crate::env::{Env, raw};
use crate::mcp::Client;

/// A repository with an agent, and the words that run it once until `done` is there.
fn project(agent: &str) -> (Env, Vec<String>) {
    let env = Env::new().git();
    let agent = env.script("agent", agent);
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "agent"]);
    let words = ["run", "the goal", "--check", "test -f done", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0"];
    (env, words.map(str::to_owned).to_vec())
}

fn run(env: &Env, words: &[String], code: i32) -> Value {
    env.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).exits(code);
    env.the_loop()
}

fn paths(data: &Value) -> Vec<&str> {
    data["files"].as_array().into_iter().flatten().filter_map(|file| file["path"].as_str()).collect()
}

#[test]
fn the_work_of_a_loop_that_is_over_is_shown_as_patch_files_and_data() {
    let (env, words) = project("printf 'a\\tb\\nc\\n' > done; echo more >> README; printf '\\000\\001' > blob");
    let base = env.git_run(&["rev-parse", "HEAD"]).trim().to_owned();
    run(&env, &words, 0);
    let head = env.git_run(&["rev-parse", "HEAD"]).trim().to_owned();
    let patch = env.run(&["diff"]).ok().stdout;
    for line in ["diff --git a/done b/done", "+a\tb", "+c", "+more", "Binary files /dev/null and b/blob differ"] {
        assert!(patch.lines().any(|l| l == line), "{line}\n{patch}");
    }
    let stat = env.run(&["diff", "--stat"]).ok().stdout;
    let rows: Vec<Vec<&str>> = stat.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["FILE", "ADDED", "REMOVED"],
            vec!["README", "1", "0"],
            vec!["blob", "binary", "binary"],
            vec!["done", "2", "0"],
            vec!["3", "in", "all", "3", "0"]
        ]
    );
    let data = env.run(&["diff", "--json"]).ok().json();
    assert_eq!((&data["base"], &data["head"]), (&json!(base), &json!(head)), "{data}");
    let readme = json!({ "path": "README", "kind": "modified", "added": 1, "removed": 0 });
    let blob = json!({ "path": "blob", "kind": "added", "added": null, "removed": null });
    assert_eq!((&data["files"][0], &data["files"][1]), (&readme, &blob), "{data}");
    assert_eq!((paths(&data), &data["patch"]), (vec!["README", "blob", "done"], &Value::Null));
    // What comes later on the branch is not the work of the loop.
    env.write("later", "x\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "later"]);
    assert_eq!(env.run(&["diff", "--json"]).ok().json(), data);
}

#[test]
fn while_a_turn_runs_only_kept_work_is_shown() {
    let (env, _) = project("if test -f one; then touch two working; exec sleep 600; else touch one; fi");
    let agent = env.project().join("agent").display().to_string();
    let checks = ["--check", "test -f one", "--check", "test -f done"];
    let _run = env.spawn(&[&["run", "x"], &checks[..], &["--agent-cmd", &agent, "--min-gap", "0"]].concat());
    env.wait_for("the second turn runs", || {
        let known: Value = serde_json::from_str(&env.run(&["status", "--json"]).stdout).unwrap_or_default();
        known["loops"][0]["turns"] == 1 && known["loops"][0]["phase"] == "running"
    });
    let data = env.run(&["diff", "--json"]).ok().json();
    assert_eq!(paths(&data), ["one"], "{data}");
}

#[test]
fn commits_of_the_person_that_were_merged_in_between_are_part_of_it() {
    let (env, mut words) = project("if test -f one; then touch done; else touch one; fi");
    words.extend(["--check", "test -f one"].map(str::to_owned));
    run(&env, &words, 3);
    env.write("mine", "x\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "mine"]);
    run(&env, &words, 0);
    let data = env.run(&["diff", "--json"]).ok().json();
    assert_eq!(paths(&data), ["done", "mine", "one"], "{data}");
}

#[test]
fn a_loop_without_change_says_so() {
    let (env, words) = project("true");
    run(&env, &words, 3);
    for args in [&["diff"][..], &["diff", "--stat"]] {
        let text = env.run(args).ok().stdout;
        assert!(text.ends_with("has changed nothing.\n") && text.lines().count() == 1, "{text}");
    }
    let data = env.run(&["diff", "--json"]).ok().json();
    assert!(data["base"].is_string() && data["base"] == data["head"] && data["files"] == json!([]), "{data}");
}

#[test]
fn of_two_loops_with_one_name_each_is_found_by_its_id() {
    let (env, mut words) = project("if test -f first; then touch second; else touch first; fi; touch done");
    words.extend(["--check", "test -f second"].map(str::to_owned));
    let first = run(&env, &words, 3)["id"].as_str().expect("an id").to_owned();
    words.push("--new".to_owned());
    run(&env, &words, 0);
    let loops = env.run(&["status", "--json"]).ok().json()["loops"].clone();
    let ids: Vec<&str> = loops.as_array().into_iter().flatten().filter_map(|l| l["id"].as_str()).collect();
    let second = *ids.iter().find(|id| **id != first).expect("there are two loops");
    assert_eq!(loops[0]["name"], loops[1]["name"], "{loops}");
    let of = |word: &str| env.run(&["diff", word, "--json"]).ok().json();
    assert_eq!(paths(&of(&first)), ["done", "first"]);
    assert_eq!(paths(&of(second)), ["second"]);
    assert_eq!(of(loops[0]["name"].as_str().expect("a name"))["loop"], second, "the name means the newest");
}

#[test]
fn what_cannot_be_compared_is_an_error_with_a_hint() {
    let env = Env::new();
    let none = env.run(&["diff"]).exits(2).stderr;
    assert!(none.contains("there is no loop yet") && none.contains("hint: start one: everloop run"), "{none}");
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let unknown = env.run(&["diff", "nothing"]).exits(2).stderr;
    assert!(unknown.contains("there is no loop `nothing`") && unknown.contains("hint: there are: "), "{unknown}");
    let in_place = env.run(&["diff"]).exits(2).stderr;
    assert!(in_place.contains("works in place") && in_place.contains("everloop show"), "{in_place}");
    let (env, words) = project("touch done");
    run(&env, &words, 0);
    env.git_run(&["update-ref", "-d", &format!("refs/everloop/{}/start", env.the_loop()["id"].as_str().unwrap())]);
    std::fs::remove_dir_all(env.project().join(".git")).expect("the repository is there");
    let gone = env.run(&["diff"]).exits(1).stderr;
    assert!(gone.contains("cannot compare the work of loop") && gone.contains("cause: "), "{gone}");
}

#[test]
fn names_and_content_of_files_cannot_reach_the_terminal() {
    let (env, words) =
        project("printf 'x\\033]0;title\\007y\\n' > done; touch \"$(printf 'bad\\033[31m\\377\\nname')\"");
    run(&env, &words, 0);
    for args in [&["diff"][..], &["diff", "--stat"]] {
        let text = env.run(args).ok().stdout;
        let unsafe_char = text.chars().find(|c| c.is_control() && *c != '\n');
        assert!(unsafe_char.is_none() && text.contains("name"), "{text:?}");
    }
    assert!(env.run(&["diff"]).ok().stdout.contains("\n+xy\n"));
    let data = env.run(&["diff", "--json"]).ok().json();
    assert_eq!(paths(&data), ["bad\u{1b}[31m\u{fffd}\nname", "done"], "{data}");
}

#[test]
fn agents_and_programs_get_the_same_answer() {
    let (env, words) = project("touch done");
    let id = run(&env, &words, 0)["id"].as_str().expect("an id").to_owned();
    let data = env.run(&["diff", "--json"]).ok().json();
    let mut client = Client::new(&env, &[]);
    assert_eq!(client.ok("diff", &json!({ "loop": id })), data);
    client.end();
    let _up = env.spawn(&["up", "--listen", "127.0.0.1:0"]);
    let address = env.port();
    let token = std::fs::read_to_string(env.state().join("token")).expect("the supervisor drew one");
    let get = |path: &str, token: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        let (status, text) = raw(address, head.as_bytes());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (status, serde_json::from_str::<Value>(&body).unwrap_or_default())
    };
    assert_eq!(get(&format!("/api/diff/{id}"), token.trim()), (200, data));
    assert_eq!(get("/api/diff", "wrong").0, 401);
}
