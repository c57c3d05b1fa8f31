//! Where secrets, caches and the folders of the CLIs are, as data. Paths with `~/` are in the home
//! folder, others in the folder that a variable may move.

use std::path::PathBuf;

use super::{Places, at_home};
use crate::spec::AgentKind;

/// Secrets of a person: no command needs them to work on a project.
pub const SECRETS: &[&str] = &[
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/doctl",
    "~/.config/rclone",
    "~/.config/op",
    "~/.kube",
    "~/.docker/config.json",
    "~/.terraform.d/credentials.tfrc.json",
    "~/.fly",
    "~/.netrc",
    "~/.npmrc",
    "~/.yarnrc.yml",
    "~/.pypirc",
    "~/.pgpass",
    "~/.my.cnf",
    "~/.vault-token",
    "~/.cargo/credentials",
    "~/.cargo/credentials.toml",
    "~/.gem/credentials",
    "~/.m2/settings.xml",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh",
    "~/.config/hub",
    "~/.config/glab-cli",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.mozilla",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/Library/Keychains",
    "/run/secrets",
    "/var/run/secrets",
    "/etc/shadow",
    "/etc/gshadow",
];

/// Logins of CLIs that everloop does not drive.
pub const OTHER_LOGINS: &[&str] = &[
    "~/.copilot",
    "~/.config/github-copilot",
    "~/.qwen/oauth_creds.json",
    "~/.local/share/amp",
    "~/.config/amp",
    "~/.aider.conf.yml",
];

/// The folder of a CLI: what holds its login, and what it writes in the course of a turn. Its
/// settings, hooks, MCP servers, plugins and trust are in none of these lists.
#[derive(Clone, Copy, Debug)]
pub struct CliFolder {
    pub kind: AgentKind,
    /// The variable that moves the folder.
    pub variable: Option<&'static str>,
    pub default: &'static str,
    /// Files that hold a login.
    pub logins: &'static [&'static str],
    /// Existing files that it rewrites in place.
    pub files: &'static [&'static str],
    /// Folders that it fills.
    pub folders: &'static [&'static str],
    /// Folders that have to exist, though it writes nothing there.
    pub needed: &'static [&'static str],
    /// A folder of its own for turns, where new files would stand beside its settings: a rule about
    /// a folder holds for both.
    pub private: Option<PrivateHome>,
}

/// A folder that a CLI uses in turns instead of the person's.
#[derive(Clone, Copy, Debug)]
pub struct PrivateHome {
    /// The variable that names it.
    pub variable: &'static str,
    /// Where in it the CLI has its files.
    pub inside: &'static str,
    /// Files of the person's folder that are linked into it: login, settings, instructions.
    pub linked: &'static [&'static str],
    /// Beginnings of the names that stay between turns. All else is removed: it was planted.
    pub kept: &'static [&'static str],
}

impl CliFolder {
    /// A path in the folder; `~/` stays in the home folder.
    pub fn path(&self, path: &str, at: &Places<'_>) -> PathBuf {
        if path.starts_with("~/") {
            return at_home(path, at.home);
        }
        let moved = self.variable.and_then(|name| (at.env)(name)).filter(|dir| dir.is_absolute());
        let folder = moved.unwrap_or_else(|| at_home(self.default, at.home));
        if path == "." { folder } else { folder.join(path) }
    }
}

/// The CLIs that everloop drives.
pub const CLIS: &[CliFolder] = &[
    CliFolder {
        kind: AgentKind::Claude,
        variable: Some("CLAUDE_CONFIG_DIR"),
        default: "~/.claude",
        logins: &[".credentials.json"],
        files: &[".credentials.json"],
        folders: &["projects", "sessions", "session-env", "shell-snapshots", "todos", "tasks", "file-history", "debug"],
        needed: &[],
        private: None,
    },
    CliFolder {
        kind: AgentKind::Codex,
        variable: Some("CODEX_HOME"),
        default: "~/.codex",
        logins: &["auth.json"],
        files: &["auth.json"],
        folders: &[],
        needed: &[],
        private: Some(PrivateHome {
            variable: "CODEX_HOME",
            inside: "",
            linked: &["auth.json", "config.toml", "AGENTS.md", "AGENTS.override.md", "hooks.json", "prompts", "rules"],
            kept: &[
                "sessions",
                "session_index",
                "archived_sessions",
                "state_",
                "logs_",
                "log",
                "history.jsonl",
                "models_cache.json",
                "installation_id",
                "version.json",
            ],
        }),
    },
    CliFolder {
        kind: AgentKind::Gemini,
        variable: None,
        default: "~/.gemini",
        logins: &["oauth_creds.json", "google_accounts.json", ".env"],
        files: &["oauth_creds.json", "google_accounts.json"],
        folders: &[],
        needed: &[],
        private: Some(PrivateHome {
            variable: "GEMINI_CLI_HOME",
            inside: ".gemini",
            linked: &[
                "oauth_creds.json",
                "google_accounts.json",
                ".env",
                "settings.json",
                "GEMINI.md",
                "trustedFolders.json",
                "extensions",
                "commands",
                "policies",
            ],
            kept: &["tmp", "history", "projects.json", "installation_id", "state.json"],
        }),
    },
    CliFolder {
        kind: AgentKind::Opencode,
        variable: None,
        default: "~/.local/share/opencode",
        logins: &["auth.json"],
        files: &[],
        folders: &[".", "~/.local/state/opencode", "~/.cache/opencode"],
        needed: &["~/.config/opencode"],
        private: None,
    },
    CliFolder {
        kind: AgentKind::Copilot,
        variable: Some("COPILOT_HOME"),
        default: "~/.copilot",
        logins: &["config.json"],
        files: &["config.json"],
        // The program unpacks itself there.
        folders: &["~/.cache/copilot"],
        needed: &[],
        private: Some(PrivateHome {
            variable: "COPILOT_HOME",
            inside: "",
            linked: &["config.json", "settings.json", "mcp-config.json", "copilot-instructions.md", "agents", "skills"],
            kept: &["session-state", "session-store.db", "logs"],
        }),
    },
];

/// A cache of a build tool, and the variable that moves it.
#[derive(Clone, Copy, Debug)]
pub struct ToolCache {
    pub variable: Option<&'static str>,
    pub default: &'static str,
    /// The part of it that is written.
    pub part: &'static str,
}

impl ToolCache {
    pub(super) fn path(&self, at: &Places<'_>) -> PathBuf {
        let moved = self.variable.and_then(|name| (at.env)(name)).filter(|dir| dir.is_absolute());
        let base = moved.unwrap_or_else(|| at_home(self.default, at.home));
        if self.part.is_empty() { base } else { base.join(self.part) }
    }
}

const fn cache(variable: Option<&'static str>, default: &'static str, part: &'static str) -> ToolCache {
    ToolCache { variable, default, part }
}

/// Caches that build tools cannot work without once a dependency is added.
pub const CACHES: &[ToolCache] = &[
    cache(Some("CARGO_HOME"), "~/.cargo", "registry"),
    cache(Some("CARGO_HOME"), "~/.cargo", "git"),
    cache(Some("CARGO_HOME"), "~/.cargo", ".package-cache"),
    cache(Some("CARGO_HOME"), "~/.cargo", ".package-cache-mutate"),
    cache(Some("npm_config_cache"), "~/.npm", ""),
    cache(None, "~/.cache/yarn", ""),
    cache(None, "~/.cache/pnpm", ""),
    cache(None, "~/.local/share/pnpm/store", ""),
    cache(None, "~/.cache/node-gyp", ""),
    cache(Some("PIP_CACHE_DIR"), "~/.cache/pip", ""),
    cache(Some("UV_CACHE_DIR"), "~/.cache/uv", ""),
    cache(Some("GOCACHE"), "~/.cache/go-build", ""),
    cache(Some("GOMODCACHE"), "~/go/pkg/mod", ""),
    cache(None, "~/.m2/repository", ""),
    cache(Some("GRADLE_USER_HOME"), "~/.gradle", "caches"),
    cache(None, "~/.cache/ccache", ""),
    cache(None, "~/.cache/sccache", ""),
];

/// Caches without which a program fails rather than works more slowly, by the runners of checks.
const NEEDED: &[(&[&str], &[&str])] =
    &[(&["go", "go test"], &["~/.cache/go-build", "~/go/pkg/mod"]), (&["npm"], &["~/.npm"])];

/// The caches that runners cannot do without. An isolated command cannot make them where they are
/// missing.
pub fn needed_caches(runners: &[&str], at: &Places<'_>) -> Vec<PathBuf> {
    let rows = NEEDED.iter().filter(|(programs, _)| runners.iter().any(|runner| programs.contains(runner)));
    let defaults: Vec<&str> = rows.flat_map(|(_, defaults)| *defaults).copied().collect();
    CACHES.iter().filter(|cache| defaults.contains(&cache.default)).map(|cache| cache.path(at)).collect()
}

/// Sockets through which a command would act outside of its isolation. A mount namespace hides
/// them; Landlock does not restrict connecting to them.
pub const SOCKETS: &[&str] = &[
    "/run/user",
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/run/dbus",
    "/run/systemd/private",
    "/tmp/.X11-unix",
];
