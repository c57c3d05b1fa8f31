//! The loop of a shim while its command runs: output, signals, deadlines. Ends soon after the
//! command ended.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use everloop_core::event::StopCause;
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use super::super::job_log::ShimLog;
use super::super::spec::Spec;
use super::super::tree::ProcessTree;
use super::super::turn_socket::TurnSocket;
use super::isolate::Signals;
use super::pump::Pump;
use super::sweep::reap;
use crate::clock;

/// A grandchild that holds the pipe open must not delay the end; the contents of the pipe are read
/// long before.
const DRAIN: Duration = Duration::from_millis(300);
/// How often a kill is repeated: new processes may have been forked meanwhile.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// A process that SIGKILL does not end hangs in the kernel (dead disk, dead network file system).
const GIVE_UP: Duration = Duration::from_secs(10);

/// How far the stopping of a command has come.
#[derive(Clone, Copy, Debug)]
enum Ladder {
    /// No stop was requested.
    Running,
    /// SIGTERM was sent.
    Asked { kill_at: Instant },
    /// SIGKILL is being repeated.
    Killing { again_at: Instant, give_up_at: Instant },
}

/// Watches one command.
#[derive(Debug)]
pub(super) struct ShimWatch<'a> {
    log: &'a ShimLog,
    spec: &'a Spec,
    signals: &'a Signals,
    tree: &'a ProcessTree,
    command: Pid,
    /// Counted with the monotonic clock: a suspended machine does not use up a turn.
    wall_at: Option<Instant>,
    ladder: Ladder,
    cause: Option<StopCause>,
    ended: Option<(WaitStatus, Time, Instant)>,
}

impl<'a> ShimWatch<'a> {
    /// Watches the process `command`, which leads its process group.
    pub(super) fn new(log: &'a ShimLog, spec: &'a Spec, job: (&'a Signals, &'a ProcessTree), command: i32) -> Self {
        Self {
            log,
            spec,
            signals: job.0,
            tree: job.1,
            command: Pid::from_raw(command),
            wall_at: Instant::now().checked_add(clock::machine_period(spec.wall)),
            ladder: Ladder::Running,
            cause: None,
            ended: None,
        }
    }

    pub(super) fn status(&self) -> Option<WaitStatus> {
        self.ended.map(|(status, _, _)| status)
    }

    pub(super) fn ended_at(&self) -> Option<Time> {
        self.ended.map(|(_, at, _)| at)
    }

    /// The cause of the stop, if the shim stopped it.
    pub(super) fn cause(&self) -> Option<StopCause> {
        self.cause
    }

    /// The grace period is over: leftovers may be killed without SIGTERM.
    pub(super) fn is_killing(&self) -> bool {
        matches!(self.ladder, Ladder::Killing { .. })
    }

    /// Returns when the command has ended and its output was read, or cannot be ended. The pipes
    /// stay open.
    pub(super) fn run(&mut self, pump: &mut Pump, socket: &mut TurnSocket) {
        // The command may have ended before the first wait for a signal.
        self.reap(socket);
        loop {
            let now = Instant::now();
            self.keep_time(now);
            if self.is_over(now, pump) {
                return;
            }
            let patience = self.next_deadline().map(|at| at.saturating_duration_since(now));
            if self.sleep(patience, pump, socket) {
                self.read_signals(socket);
            }
            socket.serve();
            pump.read();
        }
    }

    /// Waits for input or the timeout; returns whether a signal came.
    fn sleep(&self, patience: Option<Duration>, pump: &Pump, socket: &TurnSocket) -> bool {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(socket.open().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(pump.open().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // Rounded up, or the last fraction of a millisecond would be spent spinning.
        let timeout = patience.map_or(PollTimeout::NONE, |d| {
            PollTimeout::try_from(d + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        // An interrupted wait is harmless: every condition is checked again.
        poll(&mut fds, timeout).is_ok() && fds[0].any().unwrap_or(false)
    }

    fn read_signals(&mut self, socket: &mut TurnSocket) {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::SIGCHLD => self.reap(socket),
                Signal::SIGINT if self.ended.is_none() => self.to_group(Signal::SIGINT),
                Signal::SIGTERM if self.ended.is_none() => self.asked_to_stop(),
                // SIGHUP: the terminal of the parent does not concern the job.
                _ => {}
            }
        }
    }

    fn reap(&mut self, socket: &mut TurnSocket) {
        let command = self.command;
        let mut ended = None;
        reap(|status| {
            if status.pid() == Some(command) {
                ended = Some(status);
            } else {
                socket.ended(status);
            }
        });
        if let Some(status) = ended {
            self.ended = Some((status, clock::now(), Instant::now()));
        }
    }

    fn asked_to_stop(&mut self) {
        match self.ladder {
            Ladder::Running => self.terminate(self.log.stop_cause().unwrap_or(StopCause::Shutdown)),
            // A second request ends the grace period.
            Ladder::Asked { .. } => self.kill(Instant::now()),
            Ladder::Killing { .. } => {}
        }
    }

    fn terminate(&mut self, cause: StopCause) {
        self.cause = Some(cause);
        if planted::is(Bug::KillsOnlyTheParent) {
            nix::sys::signal::kill(self.command, Signal::SIGKILL).ok();
            return;
        }
        self.to_group(Signal::SIGTERM);
        // Processes in other groups as well, but each only once: many programs treat a second
        // SIGTERM differently.
        self.tree.terminate(|s| s.group != self.command.as_raw());
        self.ladder = Ladder::Asked { kill_at: Instant::now() + clock::machine_period(self.spec.grace) };
    }

    fn kill(&mut self, now: Instant) {
        self.tree.kill();
        let give_up_at = match self.ladder {
            Ladder::Killing { give_up_at, .. } => give_up_at,
            Ladder::Running | Ladder::Asked { .. } => now + GIVE_UP,
        };
        self.ladder = Ladder::Killing { again_at: now + KILL_AGAIN, give_up_at };
    }

    fn to_group(&self, signal: Signal) {
        // The group is already gone when the command just ended.
        killpg(self.command, signal).ok();
    }

    fn keep_time(&mut self, now: Instant) {
        if self.ended.is_some() {
            return;
        }
        match self.ladder {
            Ladder::Running if self.wall_at.is_some_and(|at| now >= at) => self.terminate(StopCause::Wall),
            Ladder::Asked { kill_at } if now >= kill_at => self.kill(now),
            Ladder::Killing { again_at, .. } if now >= again_at => self.kill(now),
            Ladder::Running | Ladder::Asked { .. } | Ladder::Killing { .. } => {}
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if let Some((_, _, at)) = self.ended {
            return Some(at + DRAIN);
        }
        match self.ladder {
            Ladder::Running => self.wall_at,
            Ladder::Asked { kill_at } => Some(kill_at),
            Ladder::Killing { again_at, .. } => Some(again_at),
        }
    }

    fn is_over(&self, now: Instant, pump: &Pump) -> bool {
        match (self.ended, self.ladder) {
            (Some((_, _, at)), _) => pump.open().next().is_none() || now >= at + DRAIN,
            (None, Ladder::Killing { give_up_at, .. }) => now >= give_up_at,
            (None, Ladder::Running | Ladder::Asked { .. }) => false,
        }
    }
}
