//! Enforces an [`Isolation`] on a command: prepared by the shim, entered by the child between fork
//! and exec. What may be reached is decided in `core::isolation`.
//!
//! - [`means`]: which means this machine has, and what each does not cover
//! - [`grants`]: the trees that are opened; `landlock`: as rules of the kernel
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

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use everloop_core::isolation::{Isolation, IsolationMode, NetworkAccess};
use everloop_core::planted::{self, Bug};
use nix::errno::Errno;
use nix::libc;
use seccompiler::BpfProgram;

pub use cli_home::{MovedHome, furnish};
pub use means::{Means, concrete};

/// The command that an isolation is prepared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confined<'a> {
    pub(crate) isolation: &'a Isolation,
    pub(crate) argv: &'a [String],
    pub(crate) cwd: &'a Path,
    /// Its own folder for temporary files.
    pub(crate) tmp: &'a Path,
}

/// An isolation that is ready to be entered.
#[derive(Default)]
pub(crate) struct Confinement {
    /// The command line, with the program that isolates it in front of it.
    pub(crate) argv: Vec<String>,
    rules: Option<OwnedFd>,
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
        for folder in &of.isolation.made {
            // A folder that cannot be made is not opened, and then the CLI reports what it misses.
            std::fs::create_dir_all(folder).ok();
        }
        match of.isolation.mode {
            IsolationMode::None => Ok(Self::open(of.argv)),
            IsolationMode::Container => Ok(Self { argv: container::command_line(of)?, ..Self::default() }),
            IsolationMode::Bubblewrap => bubblewrap::confinement(of),
            IsolationMode::Auto | IsolationMode::Landlock => Ok(Self {
                argv: of.argv.to_vec(),
                rules: Some(landlock::rules(of)?),
                filter: Some(filter::filter(filter::Enclosure::Landlock)?),
                network: of.isolation.network,
                passed: Vec::new(),
            }),
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
                restrict_self(rules)?;
            }
        }
        if let Some(filter) = self.filter.as_ref().filter(|_| !planted::is(Bug::CallsNotFiltered)) {
            seccompiler::apply_filter(filter).map_err(|_| Errno::EPERM)?;
        }
        Ok(())
    }
}

#[expect(unsafe_code, reason = "the call takes a descriptor and a zero; the crate only offers it for a value it owns")]
fn restrict_self(rules: &OwnedFd) -> nix::Result<()> {
    // SAFETY: no pointers are passed, and the descriptor is open for the whole call.
    Errno::result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).map(drop)
}
