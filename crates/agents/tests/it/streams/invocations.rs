//! Command lines. Those of the four programs, fresh and resumed, were run with the versions of the
//! recordings; configured extra arguments were not. A change here must be tried with the real
//! program.

use std::path::Path;
use std::time::Duration;

use everloop_agents::agent::{Invocation, Order, Receiver, invocation};
use everloop_core::spec::{AgentKind, AgentSpec, Permission, Telemetry};

fn agent(kind: AgentKind, permission: Permission) -> AgentSpec {
    AgentSpec {
        kind,
        argv: vec![format!("/opt/{}", kind.label()), "--extra".to_owned()],
        permission,
        allow: vec!["cargo test".to_owned(), "make".to_owned()],
        model: Some("vendor/model".to_owned()),
        api_base: Some("http://127.0.0.1:9/v1".to_owned()),
        ..AgentSpec::default()
    }
}

fn call(agent: &AgentSpec, resume: Option<&str>) -> Invocation {
    invocation(&Order {
        agent,
        prompt: "do it",
        prompt_file: Path::new("/turn/prompt.md"),
        resume,
        left_microusd: Some(1_500_000),
        left_tokens: Some(20_000),
        ours: Path::new("/bin/everloop"),
        state_dir: Path::new("/state"),
        answer_within: Duration::from_secs(60),
        telemetry: Some(Receiver { endpoint: "http://127.0.0.1:9300", header: "x-turn=k3f9-1.1" }),
        env: &[("HOME".to_owned(), "/nowhere".to_owned())],
    })
}

fn value<'a>(call: &'a Invocation, name: &str) -> Option<&'a str> {
    call.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

#[test]
fn claude() {
    let edits = call(&agent(AgentKind::Claude, Permission::Edits), Some("id"));
    assert_eq!(
        edits.argv.join(" "),
        "/opt/claude -p --output-format stream-json --model=vendor/model --resume=id --max-budget-usd=1.500000 \
         --max-turns=21 --permission-mode acceptEdits --allowedTools Bash(cargo test:*) Bash(make:*) \
         --mcp-config={\"mcpServers\":{\"everloop\":{\"args\":[\"--state-dir\",\"/state\",\"mcp\",\"--permission-within=60000ms\"],\
         \"command\":\"/bin/everloop\",\"type\":\"stdio\"}}} --permission-prompt-tool=mcp__everloop__permission \
         --setting-sources user --strict-mcp-config --verbose --extra"
    );
    assert_eq!(value(&edits, "ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:9/v1"));
    assert_eq!(value(&edits, "CLAUDE_CODE_MAX_RETRIES"), Some("2"));
    assert_eq!(value(&edits, "IS_SANDBOX"), None);
    assert_eq!(value(&edits, "MCP_TOOL_TIMEOUT"), Some("120000"));
    assert_eq!(edits.stdin.as_deref(), Some(Path::new("/turn/prompt.md")));
    let full = call(&agent(AgentKind::Claude, Permission::Full), None);
    assert!(full.argv.contains(&"--dangerously-skip-permissions".to_owned()));
    assert_eq!(value(&full, "IS_SANDBOX").is_some(), is_root());
}

#[test]
fn claude_sends_figures_to_us_and_contents_to_nobody() {
    let named = |call: &Invocation, prefix: &str| call.env.iter().filter(|(n, _)| n.starts_with(prefix)).count();
    let mut spec = agent(AgentKind::Claude, Permission::Edits);
    let sends = call(&spec, None);
    assert_eq!(value(&sends, "CLAUDE_CODE_ENABLE_TELEMETRY"), Some("1"));
    assert_eq!(value(&sends, "OTEL_EXPORTER_OTLP_ENDPOINT"), Some("http://127.0.0.1:9300"));
    assert_eq!(value(&sends, "OTEL_EXPORTER_OTLP_HEADERS"), Some("x-turn=k3f9-1.1"));
    assert_eq!(named(&sends, "OTEL_LOG_"), 0, "{:?}", sends.env);
    spec.pass_env = vec!["OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()];
    assert_eq!(named(&call(&spec, None), "OTEL_"), 0, "a receiver is already configured");
    spec.pass_env.clear();
    spec.telemetry = Telemetry::Off;
    assert_eq!(named(&call(&spec, None), "OTEL_"), 0);
    assert_eq!(named(&call(&agent(AgentKind::Codex, Permission::Full), None), "OTEL_"), 0);
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

#[test]
fn codex() {
    let edits = call(&agent(AgentKind::Codex, Permission::Edits), Some("id"));
    assert_eq!(
        edits.argv.join(" "),
        "/opt/codex exec --json --skip-git-repo-check -c otel.metrics_exporter=none --disable plugins \
         --sandbox workspace-write -c approval_policy=never -c model_provider=everloop -c \
         model_providers.everloop={name=\"everloop\",base_url=\"http://127.0.0.1:9/v1\",env_key=\"OPENAI_API_KEY\",\
         wire_api=\"responses\",request_max_retries=0,stream_max_retries=2} --model=vendor/model --extra resume id -"
    );
    let full = call(&agent(AgentKind::Codex, Permission::Full), None);
    assert!(full.argv.contains(&"--dangerously-bypass-approvals-and-sandbox".to_owned()));
    assert!(!full.argv.contains(&"resume".to_owned()));
    let plain = AgentSpec { api_base: None, ..agent(AgentKind::Codex, Permission::Full) };
    let twin = "model_providers.everloop={name=\"OpenAI\",requires_openai_auth=true,wire_api=\"responses\",\
                request_max_retries=0,stream_max_retries=2}";
    assert!(call(&plain, None).argv.contains(&twin.to_owned()));
    let chosen = AgentSpec { argv: vec!["codex".to_owned(), "--oss".to_owned()], ..plain };
    assert!(!call(&chosen, None).argv.join(" ").contains("model_provider"));
}

#[test]
fn gemini() {
    let edits = call(&agent(AgentKind::Gemini, Permission::Edits), Some("id"));
    assert_eq!(
        edits.argv.join(" "),
        "/opt/gemini -o stream-json --skip-trust --approval-mode auto_edit --allowed-tools=run_shell_command(cargo test) \
         --allowed-tools=run_shell_command(make) --model=vendor/model --resume=id --extra"
    );
    assert_eq!(value(&edits, "GOOGLE_GEMINI_BASE_URL"), Some("http://127.0.0.1:9/v1"));
    assert_eq!(value(&edits, "GEMINI_CLI_NO_RELAUNCH"), Some("true"));
    let full = call(&agent(AgentKind::Gemini, Permission::Full), None);
    assert!(full.argv.join(" ").contains("--approval-mode yolo"));
}

#[test]
fn copilot() {
    let edits = call(&agent(AgentKind::Copilot, Permission::Edits), Some("id"));
    assert_eq!(
        edits.argv.join(" "),
        "/opt/copilot --output-format=json --no-ask-user --no-color --no-auto-update --disable-builtin-mcps --model=vendor/model \
         --resume=id --allow-tool=write --allow-tool=shell(cargo test:*) --allow-tool=shell(make:*) --extra"
    );
    assert_eq!(value(&edits, "COPILOT_PROVIDER_BASE_URL"), Some("http://127.0.0.1:9/v1"));
    let full = call(&agent(AgentKind::Copilot, Permission::Full), None);
    assert!(full.argv.contains(&"--allow-all".to_owned()) && full.stdin.is_some());
}

#[test]
fn a_cli_with_the_agent_client_protocol_is_driven_by_everloop() {
    let mut spec = agent(AgentKind::Acp, Permission::Edits);
    spec.argv = vec!["qwen".to_owned(), "--acp".to_owned()];
    assert_eq!(
        call(&spec, Some("id")).argv.join(" "),
        "/bin/everloop __acp --state /state --model vendor/model --resume id --permission edits --allow cargo test \
         --allow make --answer-within=60000ms -- qwen --acp"
    );
}

#[test]
fn opencode() {
    let edits = call(&agent(AgentKind::Opencode, Permission::Edits), Some("id"));
    assert_eq!(edits.argv.join(" "), "/opt/opencode run --format json --model=vendor/model --session=id --extra");
    assert_eq!(value(&edits, "OPENCODE_DISABLE_PROJECT_CONFIG"), Some("1"));
    let settings: serde_json::Value = serde_json::from_str(value(&edits, "OPENCODE_CONFIG_CONTENT").unwrap()).unwrap();
    assert_eq!(settings["permission"]["*"], "deny");
    assert_eq!(settings["permission"]["edit"], "allow");
    let bash = settings["permission"]["bash"].as_object().unwrap();
    let rules: Vec<_> = bash.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(rules[0], "*=\"deny\"", "the last matching rule wins");
    assert!(rules.contains(&"cargo test *=\"allow\"".to_owned()));
    assert_eq!(settings["provider"]["vendor"]["options"]["baseURL"], "http://127.0.0.1:9/v1");
    assert_eq!(settings["provider"]["vendor"]["options"]["apiKey"], "{env:OPENAI_API_KEY}");
    let full = call(&agent(AgentKind::Opencode, Permission::Full), None);
    assert!(value(&full, "OPENCODE_CONFIG_CONTENT").unwrap().contains(r#""permission":{"*":"allow"}"#));
    let plugin = Path::new("/turn/opencode-status.js");
    assert_eq!(settings["plugin"], serde_json::json!([plugin]));
    let (file, text) = &full.files[0];
    assert_eq!(file, plugin);
    for name in ["npm_config_fetch_retries", "npm_config_fetch_timeout"] {
        assert!(value(&full, name).is_some() && text.contains(&format!("delete process.env.{name}\n")), "{name}");
    }
    let mut pure = agent(AgentKind::Opencode, Permission::Full);
    pure.argv.push("--pure".to_owned());
    let pure = call(&pure, None);
    assert!(pure.files.is_empty() && value(&pure, "npm_config_fetch_retries").is_none());
    assert!(!value(&pure, "OPENCODE_CONFIG_CONTENT").unwrap().contains("plugin"));
}

#[test]
fn any_command() {
    let by_argument = |argv: &[&str]| {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        call(&AgentSpec { argv, ..AgentSpec::default() }, None)
    };
    let both = by_argument(&["bot", "{prompt}", "--file={prompt_file}"]);
    assert_eq!(both.argv, ["bot", "do it", "--file=/turn/prompt.md"]);
    assert_eq!(both.stdin, None);
    assert_eq!(by_argument(&["bot"]).stdin.as_deref(), Some(Path::new("/turn/prompt.md")));
}

#[test]
fn our_own() {
    let mut api = agent(AgentKind::Api, Permission::Edits);
    api.argv = ["api", "--wire", "messages"].map(str::to_owned).to_vec();
    assert_eq!(
        call(&api, Some("id")).argv.join(" "),
        "/bin/everloop __api --state /state --model vendor/model --resume id --base http://127.0.0.1:9/v1 \
         --left-microusd 1500000 --left-tokens 20000 --permission edits --allow cargo test --allow make --wire messages"
    );
    let mut pane = agent(AgentKind::Pane, Permission::Edits);
    pane.argv = ["pane", "writer"].map(str::to_owned).to_vec();
    let call = call(&pane, None);
    assert_eq!(
        call.argv.join(" "),
        "/bin/everloop pane __turn --state-dir=/state --pane=writer --prompt-file=/turn/prompt.md \
         --answer-within=60000ms"
    );
    assert_eq!(call.stdin, None);
}
