//! Private networks: each machine in a namespace, joined to the outer one by a cable that can be
//! pulled. Has to run inside of a private namespace (see [`crate::offline`]): addresses and the
//! bridge are fixed.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The hub's address for all machines.
pub const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The switch between all machines.
const BRIDGE: &str = "everloop0";
/// A namespace is ready in milliseconds.
const SOON: Duration = Duration::from_secs(10);

/// How a machine is joined to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    Whole,
    /// Nothing passes, without an error.
    Pulled,
    /// The machine can send but receives nothing.
    Deaf,
}

/// Creates the switch, with the hub's address at it.
pub fn lay_out() {
    // With a fixed address: else the bridge takes the smallest of its ports, and existing
    // connections stall for a minute after another machine joins.
    ip(&["link", "add", BRIDGE, "address", "02:00:00:00:77:01", "type", "bridge"]);
    ip(&["addr", "add", &format!("{HUB}/24"), "dev", BRIDGE]);
    ip(&["link", "set", BRIDGE, "up"]);
}

/// The network of one machine; removed when dropped, with the process that holds it.
pub struct Space {
    number: u8,
    keeper: Child,
    cable: Cable,
}

impl Space {
    /// A private network with a cable to the hub. `number` is below 100.
    pub fn new(number: u8) -> Self {
        // It waits at a pipe, so it ends with this process in any case.
        let mut command = Command::new("unshare");
        let keeper = command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let space = Self { number, keeper: keeper.expect("`unshare` of util-linux is there"), cable: Cable::Whole };
        let ours = std::fs::read_link("/proc/self/ns/net").expect("Linux has namespaces");
        let end = Instant::now() + SOON;
        while std::fs::read_link(space.file()).is_ok_and(|theirs| theirs == ours) {
            assert!(Instant::now() < end, "there is no network of its own for machine {number}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (here, there, keeper) = (space.plug(), format!("far{number}"), space.keeper.id().to_string());
        ip(&["link", "add", &here, "type", "veth", "peer", "name", &there]);
        ip(&["link", "set", &there, "netns", &keeper]);
        ip(&["link", "set", &here, "master", BRIDGE, "up"]);
        space.ip_inside(&["link", "set", "lo", "up"]);
        space.ip_inside(&["addr", "add", &format!("{}/24", space.address()), "dev", &there]);
        space.ip_inside(&["link", "set", &there, "up"]);
        space
    }

    /// A command that will run in there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.file().display())).args(["--", program]);
        command
    }

    /// Pulls the cable, or mends it.
    pub fn set(&mut self, cable: Cable) {
        let (plug, route) = (self.plug(), format!("{}/32", self.address()));
        match self.cable {
            _ if cable == self.cable => return,
            Cable::Whole => {}
            Cable::Pulled => ip(&["link", "set", &plug, "up"]),
            Cable::Deaf => ip(&["route", "del", "blackhole", &route]),
        }
        match cable {
            Cable::Whole => {}
            Cable::Pulled => ip(&["link", "set", &plug, "down"]),
            Cable::Deaf => ip(&["route", "add", "blackhole", &route]),
        }
        self.cable = cable;
    }

    fn ip_inside(&self, args: &[&str]) {
        let mut command = self.command("ip");
        said(command.args(args), args);
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }

    fn plug(&self) -> String {
        format!("near{}", self.number)
    }

    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 100 + self.number)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // The cable is removed with the namespace.
        self.keeper.kill().ok();
        self.keeper.wait().ok();
    }
}

fn ip(args: &[&str]) {
    said(Command::new("ip").args(args), args);
}

fn said(command: &mut Command, args: &[&str]) {
    // `ip` is often not in the PATH of a user.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output().expect("`ip` of iproute2 is there");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
