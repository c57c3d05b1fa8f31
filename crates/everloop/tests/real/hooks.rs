//! The real claude, codex and gemini in sessions of their own, with the files of `everloop init`:
//! held while a check fails, let go when it passes, at the cap and when no supervisor runs. Every
//! call of the model is counted.

use std::path::Path;
use std::process::{Command, Stdio};

use everloop_testkit::clis::CliProgram;
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::offline::offline;
use serde_json::{Value, json};

use super::env::{Background, Env};
use super::world::tell;

struct Played {
    env: Env,
    model: FakeModel,
    said: Vec<Value>,
}

/// What a person does once: trusts the project, and so its hooks.
fn trust(cli: CliProgram, env: &Env) {
    let home = env.project().join("../home");
    let project = env.project().canonicalize().expect("it is there").display().to_string();
    let put = |file: &str, text: String| {
        let path = home.join(file);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the home is ours");
        std::fs::write(path, text).expect("the home is ours");
    };
    cli.furnish(&home).expect("the home is ours");
    match cli {
        CliProgram::Codex => {
            put(".codex/config.toml", format!("[projects.{}]\ntrust_level = \"trusted\"\n", json!(project)));
        }
        CliProgram::Gemini => put(".gemini/trustedFolders.json", json!({ project: "TRUST_FOLDER" }).to_string()),
        CliProgram::Claude | CliProgram::ClaudeSubscription | CliProgram::Opencode | CliProgram::Copilot => {}
    }
}

/// The command of one headless session. Hooks find this very binary, and the state folder, as a
/// person's would.
fn session(cli: CliProgram, env: &Env, model: &FakeModel, prompt: &str) -> Command {
    let mut words = cli.arguments(&model.base_url(), prompt);
    match cli {
        // Trust in each hook is given in its own screen only.
        CliProgram::Codex => words.insert(1, "--dangerously-bypass-hook-trust".to_owned()),
        // It would leave the project's settings aside.
        CliProgram::Gemini => words.retain(|word| word != "--skip-trust"),
        CliProgram::Claude | CliProgram::ClaudeSubscription | CliProgram::Opencode | CliProgram::Copilot => {}
    }
    let ours = Path::new(env!("CARGO_BIN_EXE_everloop")).parent().expect("a program is in a folder").display();
    let mut command = Command::new(cli.program());
    command.args(words).current_dir(env.project()).env_clear().envs(cli.environment(&model.base_url()));
    command.env("PATH", format!("{ours}:{}", std::env::var("PATH").unwrap_or_default()));
    command.env("HOME", env.project().join("../home")).env("EVERLOOP_STATE_DIR", env.state());
    command.stdin(Stdio::null());
    command
}

/// One session of an agent in a project with a check that wants `made.txt`.
fn play(cli: CliProgram, script: &str, hook: &str, supervised: bool) -> Played {
    play_check(cli, script, &format!("checks = [\"test -f made.txt\"]\n{hook}"), supervised)
}

/// The same with other keys of the loop.
fn play_check(cli: CliProgram, script: &str, keys: &str, supervised: bool) -> Played {
    let model = FakeModel::start(script).expect("a free port on loopback");
    let env = Env::new().git();
    env.write("everloop.toml", &format!("[loop.main]\ngoal = \"make made.txt\"\nagent_cmd = \"true\"\n{keys}"));
    env.run(&["init", "--yes", "--agent", cli.name()]).ok();
    trust(cli, &env);
    let mut up: Option<Background> = None;
    if supervised {
        up = Some(env.spawn(&["-C", "../home", "up"]));
        env.wait_for("the supervisor", || env.state().join("bell").exists());
    }
    let out = session(cli, &env, &model, "make made.txt").output().expect("it is there");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    drop(up);
    Played { env, model, said: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
}

impl Played {
    fn result(&self) -> &Value {
        self.said.iter().rfind(|said| said["type"] == "result").expect("claude reports how it ended")
    }

    fn did(&self, what: &str) -> Vec<Value> {
        let lines = self.env.run(&["logs", "--json", "-n", "1000"]).ok().stdout;
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
        all.map(|record| record["event"]["did"].clone()).filter(|did| did["did"] == what).collect()
    }
}

#[test]
fn claude_that_is_done_too_early_is_held_until_the_check_passes() {
    offline(|| {
        let played = play(
            CliProgram::Claude,
            "text:say=done,text:say=done,edit:path=made.txt:text=hello,text:say=really",
            "",
            true,
        );
        assert!(played.env.read("made.txt").starts_with("hello"));
        assert_eq!(played.did("held").len(), 2, "it claimed twice to be done, and was not");
        assert_eq!(played.did("let_go")[0]["why"]["is"], "passes");
        assert_eq!(played.model.main_calls(), 4, "done, done, the edit, and the last word");
        assert_eq!(played.result()["result"], "really");
        assert_eq!((played.did("began").len(), played.did("prompted").len(), played.did("ended").len()), (1, 1, 1));
        tell(&format!("claude: held 2 times, {} calls", played.model.main_calls()));
    });
}

/// Words that Claude Code takes for a hook that cannot be run, when they are the reason of an exit
/// code 2: then it stops as if it had not been refused.
const TELLING: &str = "checks = [\"cat made.txt\", \"sh -c 'test -f made.txt || { echo sh: 1: x: not found; \
                       echo python3: No such file or directory; echo command not found; exit 127; }'\"]\n";

fn is_held_whatever_the_reason_says(cli: CliProgram) {
    let script = "text:say=done,text:say=done,edit:path=made.txt:text=hello,text:say=really";
    let played = play_check(cli, script, TELLING, true);
    assert!(played.env.read("made.txt").starts_with("hello"), "{} was not held", cli.name());
    assert_eq!((played.did("held").len(), played.did("not_held").len()), (2, 0));
    assert_eq!(played.model.main_calls(), 4, "done, done, the edit, and the last word");
    let asked = played.model.requests().iter().map(|request| request.body.clone()).collect::<String>();
    assert!(asked.contains("No such file or directory"), "the reason reaches the model");
}

#[test]
fn claude_is_held_whatever_the_reason_says() {
    offline(|| is_held_whatever_the_reason_says(CliProgram::Claude));
}

#[test]
fn codex_is_held_whatever_the_reason_says() {
    offline(|| is_held_whatever_the_reason_says(CliProgram::Codex));
}

#[test]
fn gemini_is_held_whatever_the_reason_says() {
    offline(|| is_held_whatever_the_reason_says(CliProgram::Gemini));
}

#[test]
fn claude_at_the_cap_ends_and_a_person_is_told() {
    offline(|| {
        let played = play(CliProgram::Claude, "text:say=done", "[hook]\nmax_holds = 3\n", true);
        assert_eq!(played.did("held").len(), 3);
        assert_eq!(played.model.main_calls(), 4, "the first word and one after each hold");
        assert_eq!(played.result()["result"], "done", "it was not cut off by its own cap");
        let status = played.env.run(&["status", "--json"]).stdout;
        assert!(status.contains(":stopped") && status.contains("was held 3 times"), "{status}");
    });
}

#[test]
fn claude_ends_normally_while_nobody_supervises() {
    offline(|| {
        let played = play(CliProgram::Claude, "text:say=done", "", false);
        assert_eq!(played.model.main_calls(), 1);
        assert_eq!(played.result()["result"], "done");
    });
}

#[test]
fn claude_is_refused_what_judges_its_work() {
    offline(|| {
        let played = play(
            CliProgram::Claude,
            "edit:path=everloop.toml:text=x,edit:path=made.txt:text=hello,text:say=done",
            "",
            true,
        );
        assert!(played.env.read("everloop.toml").starts_with("[loop.main]"));
        assert_eq!(played.did("refused").len(), 1);
        assert_eq!(played.did("let_go")[0]["why"]["is"], "passes");
    });
}

/// Codex and gemini have no common form of a last message; the journal has what happened.
fn is_held(cli: CliProgram) {
    let played = play(cli, "text:say=done,text:say=done,edit:path=made.txt:text=hello,text:say=really", "", true);
    assert!(played.env.read("made.txt").starts_with("hello"));
    assert_eq!(played.did("held").len(), 2, "it claimed twice to be done, and was not");
    assert_eq!(played.did("let_go")[0]["why"]["is"], "passes");
    assert_eq!(played.model.main_calls(), 4, "done, done, the edit, and the last word");
    assert_eq!((played.did("began").len(), played.did("prompted").len()), (1, 1), "our own reason is no prompt");
    assert_eq!(played.did("began")[0]["agent"], cli.name());
    let told = played.model.requests().first().map(|request| request.body.clone()).unwrap_or_default();
    assert!(told.contains("everloop works on this project"), "the brief reaches the model: {told}");
    tell(&format!("{}: held 2 times, {} calls", cli.name(), played.model.main_calls()));
}

fn ends_at_the_cap(cli: CliProgram) {
    let played = play(cli, "text:say=done", "[hook]\nmax_holds = 3\n", true);
    assert_eq!((played.did("held").len(), played.model.main_calls()), (3, 4), "the first word and one after each hold");
    let status = played.env.run(&["status", "--json"]).stdout;
    assert!(status.contains(":stopped") && status.contains("was held 3 times"), "{status}");
}

#[test]
fn codex_is_held_until_the_check_passes() {
    offline(|| is_held(CliProgram::Codex));
}

#[test]
fn codex_at_the_cap_ends_and_a_person_is_told() {
    offline(|| ends_at_the_cap(CliProgram::Codex));
}

#[test]
fn gemini_is_held_until_the_check_passes() {
    offline(|| is_held(CliProgram::Gemini));
}

#[test]
fn gemini_at_the_cap_ends_and_a_person_is_told() {
    offline(|| ends_at_the_cap(CliProgram::Gemini));
}

#[test]
fn codex_and_gemini_end_normally_while_nobody_supervises() {
    offline(|| {
        for cli in [CliProgram::Codex, CliProgram::Gemini] {
            assert_eq!(play(cli, "text:say=done", "", false).model.main_calls(), 1, "{}", cli.name());
        }
    });
}

#[test]
fn gemini_is_refused_what_judges_its_work() {
    offline(|| {
        let script = "edit:path=everloop.toml:text=x,edit:path=made.txt:text=hello,text:say=done";
        let played = play(CliProgram::Gemini, script, "", true);
        assert!(played.env.read("everloop.toml").starts_with("[loop.main]"));
        assert_eq!(played.did("refused").len(), 1);
    });
}

#[test]
fn codex_is_refused_what_judges_its_work() {
    offline(|| {
        let patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: everloop.toml\n@@\n-[loop.main]\n+[loop.other]\n*** End Patch\nEOF";
        let call = json!({ "cmd": patch }).to_string();
        let script = format!("tool:name=exec_command:json={call},edit:path=made.txt:text=hello,text:say=done");
        let played = play(CliProgram::Codex, &script, "", true);
        assert!(played.env.read("everloop.toml").starts_with("[loop.main]"));
        assert_eq!(played.did("refused").len(), 1);
    });
}

#[test]
fn an_agent_that_cuts_its_memory_has_it_back_within_one_hook() {
    offline(|| {
        for (cli, cut) in
            [(CliProgram::Claude, "tool:cmd=true > MEMORY.md"), (CliProgram::Codex, "tool:cmd=rm MEMORY.md")]
        {
            let model = FakeModel::start(&format!("{cut},text:say=done")).expect("a free port on loopback");
            let env = Env::new().git();
            env.write("everloop.toml", "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"true\"]\n[guardian]\nfiles = [\"MEMORY.md\"]\n");
            let memory = "what was learned\n".repeat(50);
            env.write("MEMORY.md", &memory);
            env.run(&["init", "--yes", "--agent", cli.name()]).ok();
            trust(cli, &env);
            let up = env.spawn(&["-C", "../home", "up"]);
            env.wait_for("the supervisor", || env.state().join("bell").exists());
            let out = session(cli, &env, &model, "go on").output().expect("it is there");
            drop(up);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            assert_eq!(env.read("MEMORY.md"), memory, "{}", cli.name());
            let played = Played { env, model, said: Vec::new() };
            assert_eq!(played.did("restored").len(), 1, "{}", cli.name());
        }
    });
}

#[test]
fn long_opencode_has_instructions_and_tools_instead_of_hooks() {
    offline(|| {
        let played = play(CliProgram::Opencode, "text:say=done", "", true);
        assert!(played.did("held").is_empty(), "nothing holds it");
        let asked = played.model.requests().iter().map(|request| request.body.clone()).collect::<String>();
        assert!(asked.contains("everloop check"), "AGENTS.md reaches the model");
        assert!(asked.contains("everloop_next_task"), "so do the tools of the MCP server");
    });
}
