//! What is installed on this machine, and whether it seems to be logged in.
//!
//! Looks only whether variables are set and files exist. No credential is ever read.

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

/// A program that needs longer to say its version is broken; the slowest takes four seconds on a busy machine.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);

/// How often a started program is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Longer than every version line.
const VERSION_BYTES: u64 = 4096;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Where the program is; `None` when it is not there.
    pub path: Option<PathBuf>,
    /// As it says itself.
    pub version: Option<String>,
    /// Whether it seems to be logged in.
    pub login: LoginState,
    /// What its use is paid with.
    pub billing: Billing,
    /// What to do next, if anything is missing.
    pub hint: Option<&'static str>,
}

/// Whether a CLI seems to be logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// Something that it logs in with is there; whether it is still good is not known.
    LoggedIn,
    /// Nothing is there.
    NotLoggedIn,
    /// Not known for such an agent.
    Unknown,
}

/// What the use of a CLI is paid with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Billing {
    /// A plan with allowances.
    Subscription,
    /// By use.
    Key,
    /// Not known.
    Unknown,
}

/// The value of an environment variable, as the agent would see it.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Something that a CLI logs in with.
enum Proof {
    Variable(&'static str),
    /// A folder that a variable names, else one in the home folder, and a file in it.
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
const API: Proofs = &[(Variable("ANTHROPIC_API_KEY"), Key), (Variable("OPENAI_API_KEY"), Key)];

/// Looks for a program and for what it would log in with.
pub fn look(kind: AgentKind, program: &str, env: Lookup<'_>) -> Installed {
    let path = if kind == AgentKind::Api { None } else { find(program, env) };
    let version = match (&path, kind) {
        (Some(path), AgentKind::Claude | AgentKind::Codex | AgentKind::Gemini | AgentKind::Opencode) => {
            version(path, env)
        }
        _ => None,
    };
    let (login, billing) = login(kind, env);
    let hint = match (kind, &path, login) {
        (AgentKind::Api, _, LoginState::NotLoggedIn) | (_, Some(_), LoginState::NotLoggedIn) => login_hint(kind),
        (AgentKind::Api, ..) | (_, Some(_), LoginState::LoggedIn | LoginState::Unknown) => None,
        (_, None, _) => install_hint(kind),
    };
    Installed { path, version, login, billing, hint }
}

fn login(kind: AgentKind, env: Lookup<'_>) -> (LoginState, Billing) {
    let proofs = match kind {
        AgentKind::Claude => CLAUDE,
        AgentKind::Codex => CODEX,
        AgentKind::Gemini => GEMINI,
        AgentKind::Opencode => OPENCODE,
        AgentKind::Api => API,
        AgentKind::Command | AgentKind::Pane => return (LoginState::Unknown, Billing::Unknown),
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
        AgentKind::Command | AgentKind::Api | AgentKind::Pane => None,
    }
}

fn login_hint(kind: AgentKind) -> Option<&'static str> {
    match kind {
        AgentKind::Claude => Some("run `claude` once and log in, or `claude setup-token` for CLAUDE_CODE_OAUTH_TOKEN"),
        AgentKind::Codex => Some("codex login"),
        AgentKind::Gemini => Some("run `gemini` once and log in, or set GEMINI_API_KEY"),
        AgentKind::Opencode => Some("opencode auth login"),
        AgentKind::Api => Some("set ANTHROPIC_API_KEY or OPENAI_API_KEY for the account"),
        AgentKind::Command | AgentKind::Pane => None,
    }
}

/// As a shell would find it.
fn find(program: &str, env: Lookup<'_>) -> Option<PathBuf> {
    let runs = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|p| runs(p));
    }
    let path = env("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| runs(p))
}

/// Asks the program, in a throw-away home and without any variable but the path: it has nothing to log in with and
/// nothing of the operator's to change.
fn version(program: &Path, env: Lookup<'_>) -> Option<String> {
    let home =
        std::env::temp_dir().join(format!("everloop-look-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::DirBuilder::new().mode(0o700).create(&home).ok()?;
    let said = ask(program, &home, env);
    // What stays behind is an empty home in the folder for temporary files, which the system clears.
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
        // The program and whatever it started.
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        killpg(group, Signal::SIGKILL)?;
        child.wait()?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        // It has ended and what it wrote fits into a pipe, so this does not wait unless a child of it still writes.
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
