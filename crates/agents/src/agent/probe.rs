//! Which agent CLIs are installed on this machine, and whether they appear to be logged in.
//!
//! Only checks whether variables are set and files exist. No credential is ever read.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_core::spec::AgentKind;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A program that needs longer to print its version is broken; the slowest takes four seconds on a
/// busy machine.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);

/// Poll interval for the end of the started program.
const POLL: Duration = Duration::from_millis(10);

/// Longer than every known version line.
const VERSION_BYTES: u64 = 4096;

/// The state of one CLI on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Path of the program; `None` when it is not installed.
    pub path: Option<PathBuf>,
    /// As the program prints it.
    pub version: Option<String>,
    pub login: LoginState,
    pub billing: Billing,
    /// The next step, if anything is missing.
    pub hint: Option<&'static str>,
}

/// Whether a CLI appears to be logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// A credential exists; whether it is still valid is not known.
    LoggedIn,
    /// No credential was found.
    NotLoggedIn,
    /// Cannot be determined for this kind of agent.
    Unknown,
}

/// How the use of a CLI is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Billing {
    /// A plan with allowances.
    Subscription,
    Key,
    Unknown,
}

/// The value of an environment variable, as the agent would see it.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A credential of a CLI.
enum Proof {
    Variable(&'static str),
    /// A folder named by a variable, else one in the home folder, and a file in it.
    File(&'static str, &'static str, &'static str),
}

use Billing::{Key, Subscription};
use Proof::{File, Variable};

type Proofs = &'static [(Proof, Billing)];

/// In the order in which the CLIs themselves prefer them.
const CLAUDE: Proofs = &[
    (Variable("ANTHROPIC_API_KEY"), Key),
    (Variable("ANTHROPIC_AUTH_TOKEN"), Key),
    (Variable("CLAUDE_CODE_USE_BEDROCK"), Key),
    (Variable("CLAUDE_CODE_USE_VERTEX"), Key),
    (Variable("CLAUDE_CODE_OAUTH_TOKEN"), Subscription),
    (File("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"), Subscription),
];
const CODEX: Proofs =
    &[(Variable("CODEX_API_KEY"), Key), (File("CODEX_HOME", ".codex", "auth.json"), Billing::Unknown)];
const GEMINI: Proofs = &[
    (Variable("GEMINI_API_KEY"), Key),
    (Variable("GOOGLE_API_KEY"), Key),
    (Variable("GOOGLE_GENAI_USE_VERTEXAI"), Key),
    (Variable("GOOGLE_GENAI_USE_GCA"), Subscription),
    (File("GEMINI_CLI_HOME", ".gemini", "oauth_creds.json"), Subscription),
];
const OPENCODE: Proofs = &[
    (File("XDG_DATA_HOME", ".local/share", "opencode/auth.json"), Billing::Unknown),
    (Variable("ANTHROPIC_API_KEY"), Key),
    (Variable("OPENAI_API_KEY"), Key),
    (Variable("GEMINI_API_KEY"), Key),
    (Variable("OPENROUTER_API_KEY"), Key),
];
const COPILOT: Proofs = &[
    (Variable("COPILOT_PROVIDER_BASE_URL"), Key),
    (Variable("COPILOT_GITHUB_TOKEN"), Subscription),
    (Variable("GH_TOKEN"), Subscription),
    (Variable("GITHUB_TOKEN"), Subscription),
    (File("COPILOT_HOME", ".copilot", "config.json"), Subscription),
    (File("GH_CONFIG_DIR", ".config/gh", "hosts.yml"), Subscription),
];
const API: Proofs = &[(Variable("ANTHROPIC_API_KEY"), Key), (Variable("OPENAI_API_KEY"), Key)];

/// Searches for a program and its credentials, and runs it for its version.
pub fn look(kind: AgentKind, program: &str, env: Lookup<'_>) -> Installed {
    let found = find_installed(kind, program, env);
    let version = match (&found.path, kind) {
        (
            Some(path),
            AgentKind::Claude | AgentKind::Codex | AgentKind::Gemini | AgentKind::Opencode | AgentKind::Copilot,
        ) => version(path, env),
        _ => None,
    };
    Installed { version, ..found }
}

/// Searches for a program and its credentials; starts nothing.
pub fn find_installed(kind: AgentKind, program: &str, env: Lookup<'_>) -> Installed {
    let path = if kind == AgentKind::Api { None } else { find(program, env) };
    let (login, billing) = login(kind, env);
    let hint = match (kind, &path, login) {
        (AgentKind::Api, _, LoginState::NotLoggedIn) | (_, Some(_), LoginState::NotLoggedIn) => login_hint(kind),
        (AgentKind::Api, ..) | (_, Some(_), LoginState::LoggedIn | LoginState::Unknown) => None,
        (_, None, _) => install_hint(kind),
    };
    Installed { path, version: None, login, billing, hint }
}

fn login(kind: AgentKind, env: Lookup<'_>) -> (LoginState, Billing) {
    let proofs = match kind {
        AgentKind::Claude => CLAUDE,
        AgentKind::Codex => CODEX,
        AgentKind::Gemini => GEMINI,
        AgentKind::Opencode => OPENCODE,
        AgentKind::Copilot => COPILOT,
        AgentKind::Api => API,
        AgentKind::Command | AgentKind::Acp | AgentKind::Pane => return (LoginState::Unknown, Billing::Unknown),
    };
    let there = |proof: &Proof| match proof {
        Variable(name) => env(name).is_some_and(|v| !v.is_empty()),
        File(variable, at_home, file) => {
            let named = env(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
            let folder = named.or_else(|| Some(Path::new(&env("HOME")?).join(at_home)));
            folder.is_some_and(|f| f.join(file).is_file())
        }
    };
    match proofs.iter().find(|(proof, _)| there(proof)) {
        Some((_, billing)) => (LoginState::LoggedIn, *billing),
        None => (LoginState::NotLoggedIn, Billing::Unknown),
    }
}

fn install_hint(kind: AgentKind) -> Option<&'static str> {
    match kind {
        AgentKind::Claude => Some("npm install -g @anthropic-ai/claude-code"),
        AgentKind::Codex => Some("npm install -g @openai/codex"),
        AgentKind::Gemini => Some("npm install -g @google/gemini-cli"),
        AgentKind::Opencode => Some("npm install -g opencode-ai"),
        AgentKind::Copilot => Some("npm install -g @github/copilot"),
        AgentKind::Command | AgentKind::Acp | AgentKind::Api | AgentKind::Pane => None,
    }
}

fn login_hint(kind: AgentKind) -> Option<&'static str> {
    match kind {
        AgentKind::Claude => Some("run `claude` once and log in, or `claude setup-token` for CLAUDE_CODE_OAUTH_TOKEN"),
        AgentKind::Codex => Some("codex login"),
        AgentKind::Gemini => Some("run `gemini` once and log in, or set GEMINI_API_KEY"),
        AgentKind::Opencode => Some("opencode auth login"),
        AgentKind::Copilot => Some("run `copilot login`, or set COPILOT_GITHUB_TOKEN"),
        AgentKind::Api => Some("set ANTHROPIC_API_KEY or OPENAI_API_KEY for the account"),
        AgentKind::Command | AgentKind::Acp | AgentKind::Pane => None,
    }
}

/// Resolves the name as a shell would.
fn find(program: &str, env: Lookup<'_>) -> Option<PathBuf> {
    let runs = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|p| runs(p));
    }
    let path = env("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| runs(p))
}

/// Runs the program with an empty temporary home and no variable but the path, so that it has no
/// credentials and no files of the user to change.
fn version(program: &Path, env: Lookup<'_>) -> Option<String> {
    let home =
        std::env::temp_dir().join(format!("everloop-look-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::DirBuilder::new().mode(0o700).create(&home).ok()?;
    let said = ask(program, &home, env);
    // What may remain is an empty folder in the temporary folder, which the system clears.
    fs::remove_dir_all(&home).ok();
    let said = said.ok()?;
    let numbered = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    said.split_whitespace().map(|w| w.trim_start_matches('v')).find(numbered).map(super::record::name)
}

fn ask(program: &Path, home: &Path, env: Lookup<'_>) -> io::Result<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .env("PATH", env("PATH").unwrap_or_default())
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let ended = wait(&mut child);
    if !ended {
        // The whole process group.
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        killpg(group, Signal::SIGKILL)?;
        child.wait()?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        // The process has ended and its output fits into a pipe, so this blocks only if a child of
        // it still writes.
        out.take(VERSION_BYTES).read_to_end(&mut said)?;
    }
    Ok(crate::job::plain(&said))
}

fn wait(child: &mut Child) -> bool {
    let deadline = Instant::now() + VERSION_DEADLINE;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) => std::thread::sleep(POLL),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn existence_is_enough_and_content_is_never_read() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "claude", "echo \"2.1.325 (Claude Code) $ANTHROPIC_API_KEY\"");
        let home = dir.path().display().to_string();
        let mut vars: BTreeMap<&str, String> =
            BTreeMap::from([("HOME", home.clone()), ("PATH", format!("{home}:/bin"))]);
        let seen = look(AgentKind::Claude, "claude", &|n| vars.get(n).cloned());
        assert_eq!(seen.version.as_deref(), Some("2.1.325"));
        assert_eq!((seen.login, seen.billing), (LoginState::NotLoggedIn, Billing::Unknown));
        assert!(seen.hint.is_some());

        fs::create_dir(dir.path().join(".claude")).unwrap();
        let credentials = dir.path().join(".claude/.credentials.json");
        fs::write(&credentials, "unreadable").unwrap();
        fs::set_permissions(&credentials, fs::Permissions::from_mode(0o000)).unwrap();
        let seen = look(AgentKind::Claude, "claude", &|n| vars.get(n).cloned());
        assert_eq!((seen.login, seen.billing, seen.hint), (LoginState::LoggedIn, Subscription, None));

        vars.insert("ANTHROPIC_API_KEY", "x".to_owned());
        let seen = look(AgentKind::Claude, "claude", &|n| vars.get(n).cloned());
        assert_eq!((seen.login, seen.billing), (LoginState::LoggedIn, Key));
    }

    #[test]
    fn what_is_not_there_has_a_hint() {
        let seen = look(AgentKind::Codex, "codex", &|_| None);
        assert_eq!((seen.path, seen.version), (None, None));
        assert_eq!(seen.hint, Some("npm install -g @openai/codex"));
    }
}
