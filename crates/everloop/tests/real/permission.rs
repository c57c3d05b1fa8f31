//! What a CLI may not do by itself is a ticket, and its answer is the CLI's.

use everloop_testkit::clis::{CliProgram, installed};
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::offline::offline;

use super::env::Env;
use super::world::World;

/// A command that no CLI takes for a mere change of files.
const SCRIPT: &str = "tool:cmd=bash -c 'touch made.txt',text:say=done";

/// Waits for the request of the running turn and answers it.
fn answer(env: &Env, word: &str) {
    let asked = || env.run(&["ticket", "list"]).stdout.contains("may not do this by itself");
    env.wait_for("the request is a ticket", asked);
    env.run(&["ticket", "answer", "permission", word]).ok();
}

/// In an isolated turn: the request goes through the turn's shim.
#[test]
fn claude_goes_on_with_a_persons_answer() {
    offline(|| {
        let world = World::new(CliProgram::Claude, SCRIPT);
        let running = world.env.spawn(&world.words(&["-n", "1"]));
        answer(&world.env, "allow");
        let out = running.wait();
        assert_eq!(out.code, 0, "{}\n{}", out.stdout, out.stderr);
        assert_eq!(world.calls().len(), 2, "one turn: the call and a last word");
    });
}

#[test]
fn claude_is_refused_what_a_person_denies() {
    offline(|| {
        let world = World::new(CliProgram::Claude, SCRIPT);
        let running = world.env.spawn(&world.words(&["-n", "1"]));
        answer(&world.env, "deny");
        assert_eq!(running.wait().code, 3);
        assert!(!world.env.project().join("made.txt").exists());
    });
}

/// A CLI that everloop has no adapter for, over the Agent Client Protocol.
#[test]
fn qwen_asks_over_the_agent_client_protocol() {
    offline(|| {
        let model = FakeModel::start(SCRIPT).expect("a free port on loopback");
        let env = Env::new()
            .var("DUMMY_KEY", "sk-dummy-0123456789")
            .var("MODEL_BASE", &format!("{}/v1", model.base_url()))
            .var("MODEL_NAME", "fake-model")
            .git();
        let toml = format!(
            "[defaults.guard]\nmin_gap = \"0\"\n\n[agent.qwen]\nkind = \"acp\"\ncommand = [\"{}\", \"--acp\", \
             \"--auth-type\", \"openai\"]\naccount = \"fake\"\n\n[account.fake]\nenv = {{ OPENAI_API_KEY = \"DUMMY_KEY\", \
             OPENAI_BASE_URL = \"MODEL_BASE\", OPENAI_MODEL = \"MODEL_NAME\" }}\n",
            installed("qwen").display()
        );
        env.write("everloop.toml", &toml);
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "everloop.toml"]);
        let goal = ["run", "make made.txt", "--check", "test -f made.txt", "--agent", "qwen", "-n", "1"];
        let running = env.spawn(&[&goal[..], &["--isolation", "none"]].concat());
        answer(&env, "always");
        let out = running.wait();
        assert_eq!(out.code, 0, "{}\n{}", out.stdout, out.stderr);
        let turn = format!("{}-1.1", env.the_loop()["id"].as_str().expect("a loop has an id"));
        let said = env.run(&["logs", "--turn", &turn]).ok().stdout;
        assert!(said.contains("touch made.txt") && said.contains("= done"), "{said}");
    });
}
