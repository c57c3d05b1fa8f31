//! The real agent programs, as `agent-clis.sh` installs them: how each is started against a model
//! server on loopback, in an empty environment and a temporary home, with worthless keys.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The variable that names the folder of the programs.
pub const FOLDER: &str = "EVERLOOP_TEST_CLIS";
/// Poll interval for the end of a program.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An agent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CliProgram {
    /// Anthropic's Claude Code with an API key.
    Claude,
    /// Claude Code as a subscription: only then it has windows and their limits.
    ClaudeSubscription,
    Codex,
    Gemini,
    Opencode,
    Copilot,
}

/// The program that `agent-clis.sh` installed under this name. A missing one is an error, never a
/// skipped test.
pub fn installed(name: &str) -> PathBuf {
    let hint = "hint: export EVERLOOP_TEST_CLIS=<the folder that crates/testkit/agent-clis.sh prints last>";
    let folder = std::env::var_os(FOLDER).unwrap_or_else(|| panic!("`{FOLDER}` is not set\n{hint}"));
    let program = Path::new(&folder).join(name);
    assert!(program.exists(), "`{}` does not exist\n{hint}", program.display());
    program
}

impl CliProgram {
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude | Self::ClaudeSubscription => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Copilot => "copilot",
        }
    }

    pub fn program(self) -> PathBuf {
        installed(self.name())
    }

    /// The environment besides `PATH` and `HOME`.
    pub fn environment(self, base_url: &str) -> Vec<(&'static str, String)> {
        let own = |text: &str| text.to_owned();
        match self {
            Self::Claude | Self::ClaudeSubscription => {
                let key = match self {
                    Self::ClaudeSubscription => ("CLAUDE_CODE_OAUTH_TOKEN", own("sk-ant-oat01-dummy")),
                    _ => ("ANTHROPIC_API_KEY", own("sk-ant-dummy")),
                };
                vec![
                    ("ANTHROPIC_BASE_URL", own(base_url)),
                    key,
                    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", own("1")),
                    ("DISABLE_AUTOUPDATER", own("1")),
                    // Otherwise it refuses to skip permissions as root.
                    ("IS_SANDBOX", own("1")),
                ]
            }
            Self::Codex => vec![("FAKE_KEY", own("dummy"))],
            Self::Gemini => vec![
                ("GEMINI_API_KEY", own("dummy")),
                ("GOOGLE_GEMINI_BASE_URL", own(base_url)),
                // Otherwise it starts itself again, and the first process does not forward signals.
                ("GEMINI_CLI_NO_RELAUNCH", own("true")),
            ],
            Self::Opencode => vec![
                ("OPENCODE_CONFIG_CONTENT", opencode_config(base_url)),
                ("OPENCODE_DISABLE_AUTOUPDATE", own("1")),
                ("OPENCODE_DISABLE_MODELS_FETCH", own("1")),
            ],
            Self::Copilot => vec![
                ("COPILOT_OFFLINE", own("true")),
                ("COPILOT_PROVIDER_BASE_URL", format!("{base_url}/v1")),
                ("COPILOT_PROVIDER_API_KEY", own("dummy")),
                ("COPILOT_MODEL", own("fake-model")),
            ],
        }
    }

    /// The arguments for one headless turn with machine-readable output; the prompt is the last
    /// one.
    pub fn arguments(self, base_url: &str, prompt: &str) -> Vec<String> {
        let line: &[&str] = match self {
            Self::Claude | Self::ClaudeSubscription => {
                &["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "-p"]
            }
            // Metrics and plugins need the network, and would delay the end of each run by five
            // seconds.
            Self::Codex => &[
                "exec",
                "--json",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
                "--disable",
                "plugins",
                "-c",
                "otel.metrics_exporter=none",
                "-c",
                "model_provider=fake",
                "-m",
                "gpt-5.5",
                "-c",
            ],
            Self::Gemini => {
                &["-o", "stream-json", "--approval-mode", "yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p"]
            }
            Self::Opencode => &["run", "--format", "json", "-m", "fake/fake-model"],
            Self::Copilot => &["--output-format=json", "--allow-all", "--no-auto-update", "-p"],
        };
        let provider = (self == Self::Codex).then(|| codex_provider(base_url));
        line.iter().map(|word| (*word).to_owned()).chain(provider).chain([prompt.to_owned()]).collect()
    }

    /// Writes the files that the program expects into an empty home.
    pub fn furnish(self, home: &Path) -> std::io::Result<()> {
        if self == Self::Gemini {
            std::fs::create_dir_all(home.join(".gemini"))?;
            let settings =
                r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}"#;
            std::fs::write(home.join(".gemini/settings.json"), settings)?;
        }
        Ok(())
    }
}

fn codex_provider(base_url: &str) -> String {
    format!(r#"model_providers.fake={{name="fake",base_url="{base_url}/v1",env_key="FAKE_KEY",wire_api="responses"}}"#)
}

fn opencode_config(base_url: &str) -> String {
    let config = serde_json::json!({
        "autoupdate": false,
        "share": "disabled",
        "permission": { "*": "allow" },
        "provider": { "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": format!("{base_url}/v1"), "apiKey": "dummy" },
            "models": { "fake-model": { "limit": { "context": 100_000, "output": 4000 } } },
        } },
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
    });
    config.to_string()
}

/// A program with a home and a folder to work in; both are removed with it.
#[derive(Debug)]
pub struct CliHome {
    cli: CliProgram,
    base_url: String,
    scratch: TempDir,
    extra: Vec<(String, String)>,
}

/// How a program ended.
#[derive(Debug)]
pub struct ProgramRun {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl ProgramRun {
    /// The lines of stdout that are JSON.
    pub fn events(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl CliHome {
    /// An empty folder and a new home for `cli`.
    pub fn new(cli: CliProgram, base_url: &str) -> std::io::Result<Self> {
        let scratch = TempDir::with_prefix("everloop-cli-")?;
        for name in ["home", "folder", "tmp"] {
            std::fs::create_dir(scratch.path().join(name))?;
        }
        cli.furnish(&scratch.path().join("home"))?;
        Ok(Self { cli, base_url: base_url.to_owned(), scratch, extra: Vec::new() })
    }

    /// Adds one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.extra.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The working folder of the program.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("folder")
    }

    pub fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    /// The command for one turn, with only the variables named here.
    pub fn command(&self, prompt: &str) -> Command {
        let mut command = Command::new(self.cli.program());
        command
            .args(self.cli.arguments(&self.base_url, prompt))
            .current_dir(self.folder())
            .env_clear()
            // Not a secret, and the only way to find Node and git.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("TMPDIR", self.scratch.path().join("tmp"))
            .envs(self.cli.environment(&self.base_url))
            .envs(self.extra.iter().map(|(name, value)| (name, value)))
            // Some programs read more of the prompt from an open stdin.
            .stdin(Stdio::null());
        command
    }

    /// Runs one turn; a program that does not end within `patience` is killed with its group, and
    /// that is an error.
    pub fn run(&self, prompt: &str, patience: Duration) -> std::io::Result<ProgramRun> {
        let (out, err) = (self.scratch.path().join("out"), self.scratch.path().join("err"));
        let began = Instant::now();
        let mut command = self.command(prompt);
        let mut child = command.process_group(0).stdout(File::create(&out)?).stderr(File::create(&err)?).spawn()?;
        let status = wait(&mut child, began + patience)?;
        let read = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let run = ProgramRun {
            code: status.and_then(|status| status.code()),
            stdout: read(&out)?,
            stderr: read(&err)?,
            took: began.elapsed(),
        };
        match status {
            Some(_) => Ok(run),
            None => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("still running: {run:#?}"))),
        }
    }
}

/// Waits for the end of `child`; at the deadline its whole group is killed and the result is
/// `None`.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            // It may have ended since the last poll.
            killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).ok();
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
