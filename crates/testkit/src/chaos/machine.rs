//! One machine of a mesh: a state folder, a network and the node that runs there. Owns its
//! processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_agents::clock::TIME_SCALE;
use everloop_core::ids::NodeId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::net::{Cable, HUB, Space};
use crate::processes::processes_of;
use crate::proxy::{Proxy, ProxyMode};

/// A command of everloop that takes longer hangs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval of the waits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Configuration shared by all machines.
#[derive(Clone, Debug)]
pub struct Make {
    pub everloop: PathBuf,
    /// Where its folders are created.
    pub dir: PathBuf,
    /// Factor by which leases run faster than in production.
    pub time_scale: u32,
}

/// One node of the fleet: its state folder, its supervisor and its cable to the hub.
pub struct Machine {
    pub name: NodeId,
    root: PathBuf,
    make: Make,
    space: Option<Space>,
    proxy: Option<Proxy>,
    up: Option<Child>,
    /// How often its node was started.
    pub starts: u32,
}

impl Machine {
    /// The person's machine: without a network of its own, and without a node.
    pub fn sender(make: &Make, url: &str) -> Self {
        let sender = Self::new(make, "desk", (None, None));
        sender.everloop(&["mesh", "hub", "init", "--url", url]);
        sender.everloop(&["mesh", "join", url, "--name", "desk"]);
        sender
    }

    /// A machine that belongs to the mesh of the hub at `url`, in the network of this process.
    pub fn plain(make: &Make, name: &str, url: &str) -> Self {
        let machine = Self::new(make, name, (None, None));
        machine.everloop(&["mesh", "join", url, "--name", name]);
        machine
    }

    /// A machine that belongs to the mesh of the hub at `url`, in a network of its own; the hub
    /// listens on local `port`.
    pub fn node(make: &Make, number: u8, (url, port): (&str, u16)) -> Self {
        let (space, proxy) = (Space::new(number), Proxy::at(HUB, port));
        let through = url.replace(&format!("127.0.0.1:{port}/"), &format!("{HUB}:{}/", proxy.port()));
        let name = format!("n{number}");
        let machine = Self::new(make, &name, (Some(space), Some(proxy)));
        machine.everloop(&["mesh", "join", &through, "--name", &name, "--insecure-hub"]);
        machine
    }

    /// Trusts the keys of all machines that joined so far.
    pub fn trust_all(&self) {
        self.everloop(&["mesh", "trust", "--all"]);
    }

    fn new(make: &Make, name: &str, (space, proxy): (Option<Space>, Option<Proxy>)) -> Self {
        let root = make.dir.join(name);
        for folder in ["home", "tmp", "project"] {
            std::fs::create_dir_all(root.join(folder)).expect("the folder is ours");
        }
        let (name, make) = (NodeId::new(name), make.clone());
        Self { name, root, make, space, proxy, up: None, starts: 0 }
    }

    /// A file or folder of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Its state folder.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A program on it, in its project, with a cleared environment.
    pub fn command(&self, program: &Path) -> Command {
        let program = program.to_str().expect("a plain path");
        let mut command = self.space.as_ref().map_or_else(|| Command::new(program), |space| space.command(program));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").current_dir(self.path("project"));
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("EVERLOOP_STATE_DIR", self.state()).env(TIME_SCALE, self.make.time_scale.to_string());
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Chaos").env(format!("GIT_{who}_EMAIL"), "chaos@localhost");
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs everloop, which must succeed, and returns its output.
    pub fn everloop(&self, args: &[&str]) -> String {
        let program = self.make.everloop.clone();
        self.finish(&program, args)
    }

    /// Runs git, which must succeed.
    pub fn git(&self, args: &[&str]) -> String {
        self.finish(Path::new("git"), args)
    }

    fn finish(&self, program: &Path, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().expect("the program is there");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{} {args:?} on {}: {out}{err}", program.display(), self.name);
        out.into_owned()
    }

    /// Starts its node, unless it runs.
    pub fn start(&mut self) {
        if self.up.is_some() {
            return;
        }
        let log = File::options().create(true).append(true).open(self.path("log")).expect("the folder is ours");
        let twin = log.try_clone().expect("a file can be opened twice");
        let mut command = self.command(&self.make.everloop);
        let up = command.args(["up", "--listen", "off"]).stdout(log).stderr(twin).spawn();
        self.up = Some(up.expect("the program is there"));
        self.starts += 1;
    }

    /// Kills its node alone; agents go on.
    pub fn kill(&mut self) {
        if let Some(mut up) = self.up.take() {
            // Stopped or not; an error means that it is already gone.
            up.kill().ok();
            up.wait().ok();
        }
    }

    /// Pulls its plug: all its processes are killed.
    pub fn pull_the_plug(&mut self) {
        self.kill();
        let end = Instant::now() + WAIT_TIMEOUT;
        while !processes_of(&self.state()).is_empty() && Instant::now() < end {
            self.signal_all(Signal::SIGKILL);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal to the node alone.
    pub fn signal(&self, signal: Signal) {
        if let Some(up) = &self.up {
            // It may have ended by itself.
            kill(Pid::from_raw(up.id().cast_signed()), signal).ok();
        }
    }

    /// Sends a signal to all its processes.
    pub fn signal_all(&self, signal: Signal) {
        for pid in processes_of(&self.state()) {
            kill(Pid::from_raw(pid), signal).ok();
        }
    }

    /// Sends SIGTERM to the node and waits for its end; false when it does not end.
    pub fn down(&mut self, within: Duration) -> bool {
        self.signal(Signal::SIGTERM);
        self.is_gone(within)
    }

    /// Waits for the end of a node that was stopped or killed; false when it does not end.
    pub fn is_gone(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        let Some(up) = &mut self.up else { return true };
        while up.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.up = None;
        true
    }

    /// Whether its node ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.up.as_mut().is_some_and(|up| up.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Sets how its traffic to the hub is treated.
    pub fn line(&self, mode: ProxyMode) {
        if let Some(proxy) = &self.proxy {
            proxy.set(mode);
        }
    }

    pub fn cable(&mut self, cable: Cable) {
        if let Some(space) = &mut self.space {
            space.set(cable);
        }
    }

    /// The last log lines of its node.
    pub fn last_words(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.pull_the_plug();
    }
}
