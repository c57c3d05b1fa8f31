//! A project, a model server and one of the real programs.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::fake_model::log::{RequestKind, RequestRecord};
use serde_json::Value;

use super::env::{Env, Output};

/// Shows a figure in the output of the tests.
#[expect(clippy::print_stdout, reason = "a test has no other way to show what it measured")]
pub fn tell(figure: &str) {
    println!("{figure}");
}

/// A project with a goal that is reached when `made.txt` is there.
pub struct World {
    pub env: Env,
    pub model: FakeModel,
    pub cli: CliProgram,
}

impl World {
    /// With the minimum gap lifted: the limits are what is looked at.
    pub fn new(cli: CliProgram, script: &str) -> Self {
        Self::with(cli, script, "min_gap = \"0\"")
    }

    /// With other settings in `[defaults.guard]`.
    pub fn with(cli: CliProgram, script: &str, guard: &str) -> Self {
        let model = FakeModel::start(script).expect("a free port on loopback");
        let base = model.base_url();
        let (variable, api_base, name) = match cli {
            CliProgram::Claude => ("ANTHROPIC_API_KEY", base.clone(), ""),
            CliProgram::ClaudeSubscription => ("CLAUDE_CODE_OAUTH_TOKEN", base.clone(), ""),
            CliProgram::Codex => ("OPENAI_API_KEY", format!("{base}/v1"), "model = \"gpt-5.5\""),
            CliProgram::Gemini => ("GEMINI_API_KEY", base.clone(), "model = \"gemini-2.5-flash\""),
            CliProgram::Copilot => ("COPILOT_PROVIDER_API_KEY", format!("{base}/v1"), "model = \"fake-model\""),
            CliProgram::Opencode => ("OPENAI_API_KEY", format!("{base}/v1"), "model = \"fake/fake-model\""),
        };
        let program = cli.program();
        let kind = cli.name();
        let toml = format!(
            "[defaults.guard]\n{guard}\n\n[agent.{kind}]\ncommand = [\"{}\"]\napi_base = \"{api_base}\"\n{name}\n\
             account = \"fake\"\n\n[account.fake]\nenv = {{ {variable} = \"DUMMY_KEY\" }}\n",
            program.display()
        );
        let env = Env::new().var("DUMMY_KEY", "sk-ant-dummy-0123456789").git();
        env.write("everloop.toml", &toml);
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "everloop.toml"]);
        cli.furnish(&env.project().join("../home")).expect("the home is ours");
        Self { env, model, cli }
    }

    /// Everything that everloop waits for passes so many times faster.
    pub fn fast(mut self, scale: u32) -> Self {
        self.env = self.env.fast(scale);
        self
    }

    /// The words of a run that works on the goal.
    pub fn words<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["run", "make made.txt", "--check", "test -f made.txt", "--agent", self.cli.name()];
        words.extend(more);
        words
    }

    /// Works on the goal to the end.
    #[track_caller]
    pub fn run(&self, more: &[&str]) -> Output {
        self.env.run(&self.words(more))
    }

    /// The requests that are turns of the model.
    pub fn calls(&self) -> Vec<RequestRecord> {
        self.model.requests().into_iter().filter(|r| r.kind == RequestKind::Main).collect()
    }

    /// The journal's events of one kind, with their times in milliseconds.
    pub fn events(&self, kind: &str) -> Vec<(i64, Value)> {
        let lines = self.env.run(&["logs", "--json"]).ok().stdout;
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
        let wanted = all.filter(|record| record["event"]["event"] == kind);
        wanted.map(|record| (record["at"].as_i64().unwrap_or_default(), record["event"].clone())).collect()
    }

    /// Waits until the loop waits for this rule.
    #[track_caller]
    pub fn wait_for_rule(&self, rule: &str) {
        self.env.wait_for(rule, || {
            let shown = self.env.run(&["show", "--json"]);
            shown.code == 0 && shown.json()["loop"]["phase"]["reason"]["rule"] == rule
        });
    }
}
