//! Enforces an [`Isolation`] on a command: prepared by the shim, entered by the child between fork
//! and exec. What may be reached is decided in `core::isolation`.
//!
//! - [`means`]: which means this machine has, and what each does not cover
//! - [`grants`]: the trees that are opened; `landlock`: as rules of the kernel; `shared`: those of
//!   many commands
//! - `bubblewrap`: the same as a mount namespace; `container`: the person's command line
//! - `cli_home`: the folders of a CLI before a turn
//! - `filter`: system calls that neither covers; `capabilities`: powers of root; `network`: a
//!   network of its own

mod bubblewrap;
mod capabilities;
mod cli_home;
mod container;
mod filter;
mod grants;
mod landlock;
pub mod means;
mod network;
mod shared;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use everloop_core::isolation::{Isolation, IsolationMode, NetworkAccess};
use everloop_core::planted::{self, Bug};
use nix::errno::Errno;
use nix::libc;
use seccompiler::BpfProgram;

pub use cli_home::{MovedHome, furnish};
pub use means::{Means, concrete};
pub(crate) use shared::SharedRules;

/// The command that an isolation is prepared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confined<'a> {
    pub(crate) isolation: &'a Isolation,
    pub(crate) argv: &'a [String],
    pub(crate) cwd: &'a Path,
    /// Its own folder for temporary files.
    pub(crate) tmp: &'a Path,
    /// Rules that it enters before its own.
    pub(crate) shared: Option<&'a SharedRules>,
}

/// An isolation that is ready to be entered.
#[derive(Default)]
pub(crate) struct Confinement {
    /// The command line, with the program that isolates it in front of it.
    pub(crate) argv: Vec<String>,
    rules: Option<OwnedFd>,
    shared: Option<Arc<OwnedFd>>,
    filter: Option<BpfProgram>,
    network: NetworkAccess,
    /// Descriptors that the program in front of the command reads; the others are closed by exec.
    passed: Vec<OwnedFd>,
}

impl Confinement {
    /// None at all.
    pub(crate) fn open(argv: &[String]) -> Self {
        Self { argv: argv.to_vec(), ..Self::default() }
    }

    /// Opens everything that entering needs. An error means that the command must not be started.
    pub(crate) fn prepare(of: Confined<'_>) -> Result<Self, String> {
        make_folders(of.isolation);
        match of.isolation.mode {
            IsolationMode::None => Ok(Self::open(of.argv)),
            IsolationMode::Container => Ok(Self { argv: container::command_line(of)?, ..Self::default() }),
            IsolationMode::Bubblewrap => bubblewrap::confinement(of),
            IsolationMode::Auto | IsolationMode::Landlock => {
                let shared = of.shared.and_then(|shared| Some((shared, shared.closed_for(of.tmp)?)));
                let closed = shared.map_or(&[][..], |(_, closed)| closed);
                Ok(Self {
                    argv: of.argv.to_vec(),
                    rules: Some(landlock::rules(of, closed)?),
                    shared: shared.map(|(shared, _)| shared.rules.clone()),
                    filter: Some(filter::filter(filter::Enclosure::Landlock)?),
                    network: of.isolation.network,
                    passed: Vec::new(),
                })
            }
        }
    }

    /// Puts the calling process into it, for good. Only for a forked child with one thread.
    pub(crate) fn enter(&self) -> nix::Result<()> {
        if self.network != NetworkAccess::Open {
            network::leave(self.network)?;
        }
        for fd in &self.passed {
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        if let Some(rules) = &self.rules {
            nix::sys::prctl::set_no_new_privs()?;
            capabilities::drop_all();
            if !planted::is(Bug::RulesNotEntered) {
                if let Some(shared) = &self.shared {
                    restrict_self(shared)?;
                }
                restrict_self(rules)?;
            }
        }
        if let Some(filter) = self.filter.as_ref().filter(|_| !planted::is(Bug::CallsNotFiltered)) {
            seccompiler::apply_filter(filter).map_err(|_| Errno::EPERM)?;
        }
        Ok(())
    }
}

/// Makes the folders that a command needs. One that cannot be made is not opened, and then the CLI
/// reports what it misses.
fn make_folders(isolation: &Isolation) {
    for folder in &isolation.made {
        std::fs::create_dir_all(folder).ok();
    }
}

#[expect(unsafe_code, reason = "the call takes a descriptor and a zero; the crate only offers it for a value it owns")]
fn restrict_self(rules: &OwnedFd) -> nix::Result<()> {
    // SAFETY: no pointers are passed, and the descriptor is open for the whole call.
    Errno::result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).map(drop)
}

/// The isolation of a short command whose state folder and home folder are below `world`.
#[cfg(test)]
pub(crate) fn for_tests(mode: IsolationMode, world: &Path) -> Isolation {
    use everloop_core::isolation::{CommandKind, IsolationSpec, Places};
    let (home, state) = (world.join("home"), world.join("state"));
    let at = Places {
        home: &home,
        state: &state,
        folder: world,
        env: &|_| None,
        secret_files: Vec::new(),
        own: Vec::new(),
        own_writable: Vec::new(),
    };
    let spec = IsolationSpec { caches: false, ..IsolationSpec::default() };
    let mut isolation = Isolation::of(&CommandKind::Probe, &spec, &at);
    isolation.mode = concrete(mode);
    isolation
}
