//! `everloop up` as a service of the user: a unit for systemd, a plist for launchd. Only texts;
//! `services::up` and `services::down` install and remove the files. They never hold a secret: the
//! environment passes a short allow list.

use std::path::{Path, PathBuf};

use crate::error::Failure;

/// The marker of our own files; any other file is never overwritten or removed.
const OURS: &str = "Written by everloop itself";
/// Variables that a service needs to find programs and to use the user's language. Keys of accounts
/// are not among them: those come from files, or from the user's own settings of the service
/// manager.
const ALLOWED: [&str; 7] = ["PATH", "LANG", "LC_ALL", "TZ", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"];
/// The label in launchd.
const LABEL: &str = "dev.everloop.up";

/// The service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// A user unit of systemd
    Systemd,
    /// A launch agent of launchd
    Launchd,
}

impl Manager {
    /// Name of this system's service manager.
    pub const HERE: &str = if cfg!(target_os = "macos") { "launchd" } else { "systemd" };

    /// This system's service manager.
    pub fn here() -> Self {
        if cfg!(target_os = "macos") { Manager::Launchd } else { Manager::Systemd }
    }

    /// Where the manager expects the file.
    pub fn path(self) -> Result<PathBuf, Failure> {
        let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = of("HOME").ok_or_else(|| Failure::usage("`HOME` is not set").hint("set it to your own folder"))?;
        Ok(match self {
            Manager::Systemd => {
                let config = of("XDG_CONFIG_HOME").filter(|p| p.is_absolute()).unwrap_or(home.join(".config"));
                config.join("systemd/user/everloop.service")
            }
            Manager::Launchd => home.join("Library/LaunchAgents").join(format!("{LABEL}.plist")),
        })
    }

    /// Commands to run after the file was written.
    pub fn begin(self, path: &Path) -> Vec<Vec<String>> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self {
            Manager::Systemd => {
                vec![words("systemctl --user daemon-reload"), words("systemctl --user enable --now everloop.service")]
            }
            Manager::Launchd => vec![[words("launchctl load -w"), vec![path.display().to_string()]].concat()],
        }
    }

    /// Commands to run before the file is removed.
    pub fn end(self, path: &Path) -> Vec<Vec<String>> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self {
            Manager::Systemd => vec![words("systemctl --user disable --now everloop.service")],
            Manager::Launchd => vec![[words("launchctl unload -w"), vec![path.display().to_string()]].concat()],
        }
    }
}

/// Whether everloop wrote this unit, so that it may be replaced or removed.
pub fn is_ours(text: &str) -> bool {
    text.contains(OURS)
}

/// The data of a service definition.
#[derive(Clone, Debug)]
pub struct Unit {
    pub program: PathBuf,
    pub state: PathBuf,
    /// The log file, where the manager keeps no log itself.
    pub log: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Unit {
    /// Takes the allowed variables from the current environment.
    pub fn new(program: PathBuf, state: PathBuf, log: PathBuf) -> Result<Self, Failure> {
        let environment: Vec<(&'static str, String)> =
            ALLOWED.into_iter().filter_map(|name| std::env::var(name).ok().map(|value| (name, value))).collect();
        let unit = Self { program, state, log, environment };
        let paths = [&unit.program, &unit.state, &unit.log].map(|path| path.display().to_string());
        let bad =
            paths.iter().chain(unit.environment.iter().map(|(_, value)| value)).find(|t| t.contains(['\n', '\0']));
        match bad {
            Some(text) => Err(Failure::usage(format!("`{}` cannot be written into a unit", text.escape_debug()))
                .hint("name another --state-dir, or change the variable")),
            None => Ok(unit),
        }
    }

    /// The service definition in the format of `manager`.
    pub fn text(&self, manager: Manager) -> String {
        match manager {
            Manager::Systemd => self.systemd(),
            Manager::Launchd => self.launchd(),
        }
    }

    /// The supervisor reports readiness and liveness itself. On SIGTERM it ends its turns by its
    /// own stop ladder; when it is killed the turns live on and are adopted later, so nothing else
    /// is killed with it.
    fn systemd(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"));
        let argument = |path: &Path| quoted(&path.display().to_string()).replace('$', "$$");
        let lines = self.environment.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
        let environment = lines.map(|line| format!("Environment={line}\n")).collect::<Vec<_>>().concat();
        format!(
            "# {OURS}; `everloop down --uninstall` removes it.\n\
             [Unit]\n\
             Description=everloop, the supervisor of coding agents\n\
             StartLimitIntervalSec=600\n\
             StartLimitBurst=10\n\
             \n\
             [Service]\n\
             Type=notify\n\
             NotifyAccess=main\n\
             ExecStart={} --state-dir {} up\n\
             WorkingDirectory=/\n\
             {environment}\
             WatchdogSec=120\n\
             Restart=on-failure\n\
             RestartSec=5\n\
             RestartPreventExitStatus=2 7\n\
             SuccessExitStatus=143\n\
             KillMode=process\n\
             TimeoutStartSec=120\n\
             TimeoutStopSec=60\n\
             OOMPolicy=continue\n\
             Delegate=yes\n\
             NoNewPrivileges=yes\n\
             RestrictRealtime=yes\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n",
            argument(&self.program),
            argument(&self.state),
        )
    }

    fn launchd(&self) -> String {
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let string = |text: &str| format!("<string>{}</string>", escaped(text));
        let path = |path: &Path| string(&path.display().to_string());
        let lines = self.environment.iter().map(|(name, value)| (name, string(value)));
        let lines = lines.map(|(name, value)| format!("    <key>{name}</key>{value}\n"));
        let environment = lines.collect::<Vec<_>>().concat();
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!-- {OURS}, which can remove it again. -->\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n<dict>\n  \
             <key>Label</key>{}\n  \
             <key>ProgramArguments</key>\n  <array>\n    {}\n    {}\n    {}\n    {}\n  </array>\n  \
             <key>EnvironmentVariables</key>\n  <dict>\n{environment}  </dict>\n  \
             <key>WorkingDirectory</key><string>/</string>\n  \
             <key>StandardErrorPath</key>{}\n  \
             <key>RunAtLoad</key><true/>\n  \
             <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key><false/>\n  </dict>\n  \
             <key>ThrottleInterval</key><integer>10</integer>\n  \
             <key>ExitTimeOut</key><integer>60</integer>\n  \
             <key>AbandonProcessGroup</key><true/>\n  \
             <key>ProcessType</key><string>Background</string>\n\
             </dict>\n</plist>\n",
            string(LABEL),
            path(&self.program),
            string("--state-dir"),
            path(&self.state),
            string("up"),
            path(&self.log),
        )
    }
}
