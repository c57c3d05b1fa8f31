//! `everloop config`: show, check, schema.

use crate::env::Env;

const GOOD: &str = "[agent.default]\ncommand = [\"my-agent\"]\n\n[loop.main]\ngoal = \"be good\"\nagent = \"default\"\n\
max_turns = 3\n[[loop.main.check]]\nname = \"unit\"\nrun = \"true\"\n";

#[test]
fn a_mistake_is_shown_in_its_place_and_exits_with_7() {
    let env = Env::new();
    env.write("everloop.toml", &GOOD.replace("max_turns", "max_turn"));
    let bad = env.run(&["config", "check"]).exits(7);
    assert!(bad.stderr.contains("everloop.toml:7") && bad.stderr.contains("max_turns"), "{}", bad.stderr);
    let data = env.run(&["config", "check", "--json"]).exits(7).json();
    assert_eq!(data["error"]["code"], 7);
    env.run(&["config", "show"]).exits(7);
}

#[test]
fn values_are_shown_with_their_origin() {
    let env = Env::new().var("EVERLOOP_MAX_TIME", "2h");
    env.write("everloop.toml", GOOD);
    env.run(&["config", "check"]).ok();
    let shown = env.run(&["config", "show", "--origin"]).ok().stdout;
    assert!(shown.lines().any(|l| l.starts_with("max_turns = 3") && l.ends_with("# everloop.toml:7")), "{shown}");
    assert!(shown.lines().any(|l| l.starts_with("max_time") && l.ends_with("# EVERLOOP_MAX_TIME")), "{shown}");
    assert!(shown.contains("# built-in"), "{shown}");
    let plain = env.run(&["config", "show", "main"]).ok().stdout;
    assert!(!plain.contains("# built-in"), "{plain}");
    env.run(&["config", "show", "mian"]).exits(7);
}

#[test]
fn the_schema_is_a_schema() {
    let env = Env::new();
    let text = env.run(&["config", "schema"]).ok().stdout;
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(schema["$schema"].as_str().is_some_and(|s| s.contains("json-schema.org")), "{text}");
}

#[test]
fn without_a_file_the_built_in_values_hold() {
    let env = Env::new();
    let said = env.run(&["config", "check"]).ok().stdout;
    assert!(said.contains("built-in values hold"), "{said}");
    let none = env.run(&["config", "show"]).exits(7);
    assert!(none.stderr.contains("everloop init"), "{}", none.stderr);
}

#[test]
fn a_changed_file_is_put_in_force_and_a_wrong_one_changes_nothing() {
    let env = Env::new();
    let file = |check: &str| format!("[loop.a]\ngoal = \"g\"\nagent_cmd = \"true\"\nchecks = [\"{check}\"]\n");
    env.write("everloop.toml", &file("test -f never"));
    let run = env.spawn(&["run"]);
    env.wait_for("it waits", || env.run(&["status"]).stdout.contains("waiting"));
    env.write("everloop.toml", "[loop.a]\ngaol = \"g\"\n");
    env.run(&["config", "apply"]).exits(7);
    assert_eq!(env.the_loop()["spec"]["checks"][0]["run"], "test -f never", "the last good one stays");
    env.write("everloop.toml", &file("test -d ."));
    let said = env.run(&["config", "apply"]).ok().stdout;
    assert!(said.contains("changed: a"), "{said}");
    run.wait().ok();
    env.run(&["replay"]).ok();
}

#[test]
fn agents_and_accounts_are_checked_and_shown_with_their_origin() {
    let env = Env::new();
    let toml = "[account.work]\nenv = { ANTHROPIC_API_KEY = \"MY_WORK_KEY\" }\n\
        [loop.a]\ngoal = \"g\"\nchecks = [\"true\"]\nagents = [\"claude@work\", \"codex\"]\npermission = \"full\"\n";
    env.write("everloop.toml", toml);
    let shown = env.run(&["config", "show", "--origin"]).ok().stdout;
    assert!(
        shown.contains("[account.work]") && shown.contains("env = { ANTHROPIC_API_KEY = \"MY_WORK_KEY\" }"),
        "{shown}"
    );
    assert!(
        shown.lines().any(|l| l.starts_with("permission = \"full\"") && l.ends_with("# everloop.toml:7")),
        "{shown}"
    );
    env.write("everloop.toml", &toml.replace("claude@work", "claude@wrok"));
    let bad = env.run(&["config", "check"]).exits(7).stderr;
    assert!(bad.contains("there is no account `wrok`") && bad.contains("everloop.toml:6:1"), "{bad}");
    assert!(bad.contains("hint: did you mean `work`?"), "{bad}");
    env.write("everloop.toml", &toml.replace("permission", "permision"));
    let bad = env.run(&["config", "check"]).exits(7).stderr;
    assert!(bad.contains("unknown key `permision`") && bad.contains("did you mean `permission`?"), "{bad}");
}

const RESEARCH: &str = "[research.sum]\ngoal = \"a smaller sum\"\nagent_cmd = \"sed -i 1d numbers\"\n\
metric = \"sh metric.sh\"\ndirection = \"lower\"\nmax_turns = 2\npatience = 7\nguard = { min_gap = \"0\" }\n";

/// A project with the metric of `RESEARCH`: the sum of the lines of a file.
fn with_research(toml: &str) -> Env {
    let env = Env::new().git();
    env.write("numbers", "50\n30\n20\n");
    env.write("metric.sh", "awk '{ s += $1 } END { print s + 0 }' numbers\n");
    env.write("everloop.toml", toml);
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "numbers"]);
    env
}

#[test]
fn a_research_run_of_the_file_has_origins_and_its_mistakes_have_places() {
    let env = with_research(RESEARCH);
    env.run(&["config", "check"]).ok();
    let shown = env.run(&["config", "show", "--origin"]).ok().stdout;
    assert!(shown.contains("[research.sum]") && !shown.contains("[loop.sum]"), "{shown}");
    for (key, origin) in [
        ("direction = \"lower\"", "everloop.toml:5"),
        ("patience = 7", "everloop.toml:7"),
        ("rule = \"race\"", "built-in"),
    ] {
        assert!(shown.lines().any(|l| l.starts_with(key) && l.ends_with(&format!("# {origin}"))), "{key}: {shown}");
    }
    for (wrong, instead, place, words) in [
        ("direction", "direcion", "everloop.toml:5", "did you mean `direction`?"),
        ("\"lower\"", "\"down\"", "everloop.toml:5", "`\"lower\"`, `\"higher\"`"),
        ("patience = 7", "goal_value = \"x\"", "everloop.toml:7", "expected a number"),
        ("metric = \"sh metric.sh\"\n", "", "everloop.toml:1", "has no `metric`"),
        ("patience = 7", "plan = \"nowhere.md\"", "everloop.toml:7", "there is no plan"),
        ("patience = 7", "pareto = [\"size:down\"]", "everloop.toml:7", "`down` in `size:down` is no direction"),
        ("patience = 7", "history = \"metric.sh\"", "everloop.toml:7", "no column is named `metric`"),
        (
            "[research.sum]",
            "[loop.sum]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"true\"]\n[research.sum]",
            "everloop.toml:5",
            "the name of a loop, too",
        ),
    ] {
        env.write("everloop.toml", &RESEARCH.replace(wrong, instead));
        let said = env.run(&["config", "check"]).exits(7).stderr;
        assert!(said.contains(place) && said.contains(words), "{instead}: {said}");
    }
}

#[test]
fn a_research_run_of_the_file_is_started_by_name_and_flags_change_it() {
    let env = with_research(RESEARCH);
    let out = env.run(&["research", "-n", "1"]).exits(3);
    assert!(out.stdout.contains("Baseline: 100 -> Final: 50"), "{}", out.stdout);
    assert_eq!(env.the_loop()["spec"]["research"]["patience"], 7);
    let none = env.run(&["research", "--loop", "smu"]).exits(2).stderr;
    assert!(none.contains("there is no loop `smu`") && none.contains("did you mean `sum`?"), "{none}");
    let other = with_research(RESEARCH);
    let out = other.run(&["research", "--loop", "sum", "--goal-value", "50"]).ok();
    assert!(out.stdout.contains("(1/2 iterations)"), "{}", out.stdout);
    let empty = Env::new().git();
    let said = empty.run(&["research"]).exits(2).stderr;
    assert!(said.contains("there is no goal") && said.contains("--metric"), "{said}");
}

#[test]
fn up_runs_a_research_run_of_a_trusted_file() {
    let env = with_research(RESEARCH);
    let said = env.run(&["trust"]).ok();
    assert!(said.stdout.contains("sh metric.sh"), "what it would run is shown: {}", said.stdout);
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the run is over", || env.run(&["research", "list"]).stdout.contains("2 experiments, 100 -> 20"));
    drop(up);
}
