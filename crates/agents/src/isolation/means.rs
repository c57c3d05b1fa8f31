//! Which means of isolation this machine has, and what each of them does not cover.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use everloop_core::isolation::IsolationMode;
use everloop_core::planted::{self, Bug};
use nix::libc;

/// Below this, Landlock does not restrict truncating files or moving them between folders.
pub const LANDLOCK_LEAST: i32 = 3;

/// From here on Landlock keeps signals among a command's own processes.
pub const LANDLOCK_SIGNALS: i32 = 6;

/// The means that isolate a loop's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means {
    Landlock {
        /// Version of the kernel's interface.
        abi: i32,
    },
    Bubblewrap,
    Container,
    /// By the person's word.
    SwitchedOff,
    /// Nothing can be enforced here.
    Missing,
}

impl Means {
    /// The means for a mode on this machine.
    pub fn of(mode: IsolationMode) -> Self {
        match concrete(mode) {
            IsolationMode::Landlock => Means::Landlock { abi: landlock_abi() },
            IsolationMode::Bubblewrap => Means::Bubblewrap,
            IsolationMode::Container => Means::Container,
            IsolationMode::None if mode == IsolationMode::None => Means::SwitchedOff,
            IsolationMode::None | IsolationMode::Auto => Means::Missing,
        }
    }

    /// In a few words.
    pub fn describe(&self) -> String {
        match self {
            Means::Landlock { abi } => format!("Landlock (version {abi}) and seccomp"),
            Means::Bubblewrap => "bubblewrap: namespaces for mounts and processes, and seccomp".to_owned(),
            Means::Container => "the container of [isolation] container".to_owned(),
            Means::SwitchedOff => "none: commands run as you, with all that you can reach".to_owned(),
            Means::Missing => "none: this machine has neither Landlock nor a working bubblewrap".to_owned(),
        }
    }

    /// What it does not cover; lower-case fragments.
    pub fn gaps(&self) -> Vec<&'static str> {
        match self {
            Means::Landlock { abi } => {
                let mut gaps = vec![
                    "names in hidden folders can be listed (their contents cannot be read)",
                    "modes and times of your files can be changed",
                    "sockets of other programs (D-Bus, tmux, docker) can be connected to",
                ];
                if *abi < LANDLOCK_SIGNALS {
                    gaps.push("signals reach other processes of yours, except everloop's");
                }
                gaps
            }
            Means::Bubblewrap => vec!["sockets outside of the usual folders can be connected to"],
            Means::Container => vec!["everything that the container's own command line opens"],
            Means::SwitchedOff | Means::Missing => {
                vec!["your files, keys and processes, everloop's state, and the other accounts"]
            }
        }
    }

    /// Whether commands are isolated at all.
    pub fn holds(&self) -> bool {
        !matches!(self, Means::SwitchedOff | Means::Missing)
    }
}

/// The mode that `auto` stands for on this machine; `None` where nothing can be enforced. Looked up
/// once per process.
pub fn concrete(mode: IsolationMode) -> IsolationMode {
    static AUTO: OnceLock<IsolationMode> = OnceLock::new();
    match mode {
        IsolationMode::Auto => *AUTO.get_or_init(|| automatic(landlock_abi(), bubblewrap_works)),
        chosen => chosen,
    }
}

fn automatic(landlock_abi: i32, bubblewrap_works: impl FnOnce() -> bool) -> IsolationMode {
    if landlock_abi >= LANDLOCK_LEAST {
        IsolationMode::Landlock
    } else if bubblewrap_works() {
        IsolationMode::Bubblewrap
    } else {
        IsolationMode::None
    }
}

/// Version of the kernel's Landlock; 0 without it.
#[expect(unsafe_code, reason = "the crate hides the version of the kernel")]
pub fn landlock_abi() -> i32 {
    const VERSION: libc::c_uint = 1;
    let none: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the kernel reads no memory and opens nothing.
    let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    if planted::is(Bug::MeansMissing) { 0 } else { i32::try_from(found).unwrap_or(0).max(0) }
}

/// The program, if it is installed.
pub fn bubblewrap() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join("bwrap")).find(|file| file.is_file());
    found.filter(|_| !planted::is(Bug::MeansMissing))
}

/// Whether it is installed and may make namespaces here.
pub fn bubblewrap_works() -> bool {
    let Some(program) = bubblewrap() else { return false };
    let trial = ["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--", "true"];
    let mut command = Command::new(program);
    command.args(trial).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_landlock_else_bubblewrap_else_nothing() {
        assert_eq!(automatic(LANDLOCK_LEAST, || unreachable!("it is not tried")), IsolationMode::Landlock);
        assert_eq!(automatic(LANDLOCK_LEAST - 1, || true), IsolationMode::Bubblewrap);
        assert_eq!(automatic(0, || false), IsolationMode::None);
    }

    #[test]
    fn signals_are_a_gap_of_older_kernels() {
        let gaps = |abi| Means::Landlock { abi }.gaps().join("; ");
        assert!(gaps(LANDLOCK_SIGNALS - 1).contains("signals") && !gaps(LANDLOCK_SIGNALS).contains("signals"));
    }
}
