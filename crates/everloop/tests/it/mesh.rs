//! Several machines and one hub: real processes, a real PostgreSQL and a git remote between them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everloop_testkit::postgres::server;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::env::{Background, Env};

/// What an agent does: writes the file that the check of its task wants.
const WORKER: &str = r#"file=$(sed -n 's/^Make the check .*\(done\/[a-z0-9]*\).*/\1/p' "$EVERLOOP_PROMPT_FILE" | head -1)
mkdir -p done && echo "$EVERLOOP_TURN" > "$file""#;

/// An operator, a hub, a remote and nodes.
pub struct Fleet {
    pub operator: Env,
    pub nodes: Vec<Node>,
    pub url: String,
}

/// A machine.
pub struct Node {
    pub name: String,
    pub env: Env,
    pub up: Option<Background>,
}

impl Node {
    fn new(name: &str, url: &str) -> Self {
        let env = Env::new().var("EVERLOOP_HUB_URL", url);
        env.run(&["join", "--name", name]).ok();
        Self { name: name.to_owned(), env, up: None }
    }

    /// Starts it.
    pub fn start(&mut self) {
        self.up = Some(self.env.spawn(&["up", "--listen", "off"]));
    }

    /// Pulls its plug; what it had started goes too.
    pub fn kill(&mut self) {
        self.up = None;
        for pid in crate::env::processes_of(&self.env.state()) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

impl Fleet {
    /// A hub, a remote with one commit, and so many nodes that are not started yet.
    pub fn new(nodes: usize) -> Self {
        let url = server().database();
        let operator = Env::new().git().var("EVERLOOP_HUB_URL", &url);
        operator.run(&["hub", "init"]).ok();
        operator.git_run(&["clone", "-q", "--bare", ".", "../shared.git"]);
        operator.git_run(&["remote", "add", "origin", "../shared.git"]);
        operator.run(&["join", "--name", "desk"]).ok();
        let nodes = (1..=nodes).map(|i| Node::new(&format!("n{i}"), &url)).collect();
        Self { operator, nodes, url }
    }

    /// Starts them all.
    pub fn start(mut self) -> Self {
        self.nodes.iter_mut().for_each(Node::start);
        self
    }

    /// Hands a loop with these checks to the mesh.
    #[track_caller]
    pub fn run(&self, agent: &str, checks: &[String]) -> String {
        let script = self.operator.script("../agent.sh", agent);
        let command = format!("sh {script}");
        let mut args =
            vec!["run", "write them all", "--mesh", "--detach", "--json", "--gap=0", "--agent-cmd", &command];
        for check in checks {
            args.extend(["--check", check]);
        }
        let made = self.operator.run(&args).ok().json();
        made["loop"].as_str().expect("a loop has an id").to_owned()
    }

    /// The loop as the hub knows it.
    #[track_caller]
    pub fn show(&self, id: &str) -> Value {
        self.operator.run(&["mesh", "show", id, "--json"]).ok().json()
    }

    /// Waits until the loop is over, and tells how.
    #[track_caller]
    pub fn end_of(&self, id: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let state = self.show(id);
            if !state["loop"]["ended"].is_null() {
                return state["loop"].clone();
            }
            assert!(Instant::now() < end, "it does not end: {state:#}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What stands in the trailers of the branch.
    pub fn trailers(&self, id: &str) -> Vec<String> {
        let log = self.git(&["log", "--format=%(trailers:key=Task-Id,valueonly)", "main"]);
        log.lines().filter(|line| line.starts_with(&format!("{id}-"))).map(str::to_owned).collect()
    }

    /// Runs git in the shared repository.
    pub fn git(&self, args: &[&str]) -> String {
        let bare = self.operator.project().join("../shared.git");
        let all: Vec<&str> =
            ["-C", bare.to_str().expect("a plain path")].into_iter().chain(args.iter().copied()).collect();
        self.operator.git_run(&all)
    }

    fn logs(&self) -> String {
        let log = |node: &Node| std::fs::read_to_string(node.env.state().join("everloop.log")).unwrap_or_default();
        self.nodes.iter().map(log).collect()
    }
}

fn files(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("test -f done/{i}")).collect()
}

#[test]
fn three_machines_reach_a_goal_together() {
    let fleet = Fleet::new(3).start();
    let id = fleet.run(WORKER, &files(6));
    let state = fleet.end_of(&id);
    assert_eq!(state["ended"]["is"], "reached", "{state:#}");
    let mut trailers = fleet.trailers(&id);
    trailers.sort();
    let mut wanted: Vec<String> = (1..=6).map(|i| format!("{id}-{i}")).collect();
    wanted.sort();
    assert_eq!(trailers, wanted, "every task once");
    let nodes: std::collections::BTreeSet<&str> =
        state["landed"].as_array().unwrap().iter().map(|l| l["node"].as_str().unwrap()).collect();
    assert!(nodes.len() >= 2, "the work was shared: {nodes:?}");
    for i in 0..6 {
        fleet.git(&["cat-file", "-e", &format!("main:done/{i}")]);
    }
    let list = fleet.operator.run(&["node", "list", "--json"]).ok().json();
    let leaders = list["nodes"].as_array().unwrap().iter().filter(|n| n["leads"] == true).count();
    assert_eq!(leaders, 1, "{list:#}");
    assert_eq!(PathBuf::from(fleet.operator.read("README")).as_os_str(), "a project\n", "the desk was not touched");
    assert_eq!(fleet.operator.git_run(&["status", "--porcelain"]), "");
    assert!(!fleet.operator.git_run(&["for-each-ref"]).contains("everloop"), "and nothing is left in its repository");
}
