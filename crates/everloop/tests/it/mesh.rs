//! Several nodes and one hub: real processes, a real PostgreSQL and a git remote between them.
//! `chaos` adds faults.

use std::time::Duration;

use everloop_testkit::postgres::{PostgresServer, ServerSetup, server};
use everloop_testkit::wait::{DEADLINE, try_wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::env::{Background, Env, get};

/// The work of an agent: writes the file that the check of its task wants.
pub const WORKER: &str = r#"file=$(sed -n 's/^Make the check .*\(done\/[a-z0-9]*\).*/\1/p' "$EVERLOOP_PROMPT_FILE" | head -1)
mkdir -p done && echo "$EVERLOOP_TURN" > "$file""#;

/// A person's machine, a hub, a remote and nodes.
pub struct Fleet {
    /// Name of the hub's database.
    pub database: String,
    pub operator: Env,
    pub nodes: Vec<Node>,
}

pub struct Node {
    pub env: Env,
    pub up: Option<Background>,
}

impl Node {
    fn new(name: &str, url: &str) -> Self {
        // Leases and all waits are a fifth as long as in real life.
        let env = Env::new().var("EVERLOOP_HUB_URL", url).fast(5);
        env.run(&["mesh", "join", "--name", name]).ok();
        Self { env, up: None }
    }

    pub fn start(&mut self) {
        self.up = Some(self.env.spawn(&["up", "--listen", "off"]));
    }
}

impl Fleet {
    /// A hub, a remote with one commit, and so many nodes that are not started yet. All trust each
    /// other.
    pub fn new(nodes: usize) -> Self {
        let fleet = Self::strangers(nodes);
        let all = fleet.nodes.iter().map(|node| &node.env).chain([&fleet.operator]);
        all.for_each(|env| drop(env.run(&["mesh", "trust", "--all"]).ok()));
        fleet
    }

    /// The same; each trusts only itself.
    pub fn strangers(nodes: usize) -> Self {
        Self::at(&server().database(), nodes)
    }

    /// The same, with its hub in this database.
    fn at(url: &str, nodes: usize) -> Self {
        let operator = Env::new().git().var("EVERLOOP_HUB_URL", url);
        operator.run(&["mesh", "hub", "init"]).ok();
        operator.git_run(&["clone", "-q", "--bare", ".", "../shared.git"]);
        operator.git_run(&["remote", "add", "origin", "../shared.git"]);
        operator.run(&["mesh", "join", "--name", "desk"]).ok();
        let nodes = (1..=nodes).map(|i| Node::new(&format!("n{i}"), url)).collect();
        let database = url.rsplit('/').next().expect("an address ends with its database").to_owned();
        Self { database, operator, nodes }
    }

    fn start(mut self) -> Self {
        self.nodes.iter_mut().for_each(Node::start);
        self
    }

    /// Hands a loop with these checks to the mesh.
    #[track_caller]
    pub fn run(&self, agent: &str, checks: &[String]) -> String {
        let script = self.operator.script("../agent.sh", agent);
        let command = format!("sh {script}");
        let mut args =
            vec!["run", "write them all", "--mesh", "--detach", "--json", "--min-gap=0", "--agent-cmd", &command];
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

    /// Waits until the loop is over, and returns its end.
    #[track_caller]
    pub fn end_of(&self, id: &str) -> Value {
        let over = || Some(self.show(id)["loop"].clone()).filter(|state| !state["ended"].is_null());
        let ended = try_wait_for(Duration::from_secs(120), over);
        ended.unwrap_or_else(|| panic!("it does not end: {:#}\n{}", self.show(id), self.logs()))
    }

    /// The trailers on the branch.
    fn trailers(&self, id: &str) -> Vec<String> {
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

    /// Every task that landed is on the branch once, and every check's file is there.
    #[track_caller]
    pub fn proved(&self, id: &str, checks: usize) {
        let state = self.end_of(id);
        assert_eq!(state["ended"]["is"], "reached", "{state:#}");
        let mut trailers = self.trailers(id);
        trailers.sort();
        let all = trailers.len();
        trailers.dedup();
        assert_eq!(trailers.len(), all, "nothing is there twice");
        assert_eq!(Some(all as u64), state["landed_count"].as_u64(), "{state:#}");
        for i in 0..checks {
            self.git(&["cat-file", "-e", &format!("main:done/{i}")]);
        }
    }

    pub fn logs(&self) -> String {
        let log = |node: &Node| std::fs::read_to_string(node.env.state().join("everloop.log")).unwrap_or_default();
        self.nodes.iter().map(log).collect()
    }
}

/// Checks that want so many files.
pub fn files(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("test -f done/{i}")).collect()
}

#[test]
fn three_machines_reach_a_goal_together() {
    let fleet = Fleet::new(3).start();
    let id = fleet.run(WORKER, &files(6));
    fleet.proved(&id, 6);
    let state = fleet.end_of(&id);
    assert_eq!(state["landed_count"], 6, "one task for each check");
    let nodes: std::collections::BTreeSet<&str> =
        state["landed"].as_array().unwrap().iter().map(|l| l["node"].as_str().unwrap()).collect();
    assert!(nodes.len() >= 2, "the work was shared: {nodes:?}");
    let list = fleet.operator.run(&["mesh", "nodes", "--json"]).ok().json();
    let leaders = list["nodes"].as_array().unwrap().iter().filter(|n| n["leads"] == true).count();
    assert_eq!(leaders, 1, "{list:#}");
    assert_eq!(fleet.operator.read("README"), "a project\n", "the desk was not touched");
    assert_eq!(fleet.operator.git_run(&["status", "--porcelain"]), "");
    assert!(!fleet.operator.git_run(&["for-each-ref"]).contains("everloop"), "and nothing is left in its repository");
}

#[test]
fn a_node_that_goes_leaves_its_task_and_the_lead_at_once() {
    let mut fleet = Fleet::new(1);
    fleet.nodes[0].start();
    let id = fleet.run("sleep 600", &files(1));
    fleet.nodes[0].env.wait_for_agent();
    assert_eq!(fleet.show(&id)["tasks"][0]["state"]["node"], "n1");
    fleet.nodes[0].env.run(&["down"]).ok();
    assert_eq!(fleet.show(&id)["tasks"][0]["state"]["is"], "queued");
    let list = fleet.operator.run(&["mesh", "nodes", "--json"]).ok().json();
    assert!(list["nodes"].as_array().expect("a list").iter().all(|node| node["leads"] != true), "{list:#}");
}

#[test]
fn a_limit_of_a_shared_account_is_known_to_all_nodes() {
    let mut fleet = Fleet::new(2);
    let agent = fleet.operator.script("../agent.sh", "echo 'no more today, try again in 3h'; exit 1");
    let file = format!(
        "[account.team]\nset = {{ TEAM = \"1\" }}\n[agent.worker]\ncommand = [\"sh\", \"{agent}\"]\naccount = \"team\"\n\
         limit_rules = [\"window: no more today\"]\n[loop.main]\ngoal = \"g\"\nagent = \"worker\"\nchecks = [\"false\"]\n"
    );
    fleet.operator.write("everloop.toml", &file);
    let made = fleet.operator.run(&["run", "--mesh", "--detach", "--json"]).ok().json();
    let id = made["loop"].as_str().expect("a loop has an id").to_owned();
    fleet.nodes[0].start();
    fleet.operator.wait_for_words(&["mesh", "show", &id], &["account team"]);
    fleet.nodes[1].start();
    fleet.nodes[1].env.wait_for_words(&["guard", "status"], &["account:team"]);
}

#[test]
fn a_limit_that_is_used_up_ends_the_loop_and_its_run() {
    let mut fleet = Fleet::new(1);
    fleet.nodes[0].start();
    let words = ["run", "x", "--mesh", "--min-gap=0", "--max-calls", "1", "--check", "false", "--agent-cmd", "true"];
    fleet.operator.run(&words).exits(3);
    let id = fleet.operator.run(&["mesh", "list", "--json"]).ok().json()["loops"][0]["id"].clone();
    let id = id.as_str().expect("a loop has an id");
    let shown = fleet.operator.run(&["mesh", "show", id]).ok().stdout;
    assert!(shown.contains("Used      1 call") && shown.contains("Ticket"), "{shown}");
}

#[test]
fn a_branch_that_the_remote_lacks_is_refused() {
    let fleet = Fleet::strangers(0);
    fleet.operator.git_run(&["checkout", "-q", "-b", "aside"]);
    let words = ["run", "x", "--mesh", "--detach", "--check", "false", "--agent-cmd", "true"];
    let refused = fleet.operator.run(&words).exits(2).stderr;
    assert!(refused.contains("has no branch `aside`") && refused.contains("git push origin aside"), "{refused}");
}

#[test]
fn long_what_a_sleeper_did_is_kept_and_does_not_count() {
    let mut fleet = Fleet::new(2);
    let flag = fleet.operator.project().join("../flag");
    fleet.nodes[0].start();
    let id = fleet.run(&format!("while [ ! -e {} ]; do sleep 0.1; done\n{WORKER}", flag.display()), &files(1));
    fleet.nodes[0].env.wait_for_agent();
    fleet.nodes[0].up.as_ref().expect("it was started").signal(Signal::SIGSTOP);
    fleet.nodes[1].start();
    let holder = || fleet.show(&id)["tasks"][0]["state"]["node"].as_str().unwrap_or_default().to_owned();
    fleet.operator.wait_for("another node has the task", || holder() == "n2");
    // Both agents finish: the sleeper's, which was never stopped, and the other one.
    std::fs::write(&flag, "").expect("the folder is the test's");
    fleet.proved(&id, 1);
    assert_eq!(fleet.trailers(&id), [format!("{id}-1")]);
    fleet.nodes[0].up.as_ref().expect("it was started").signal(Signal::SIGCONT);
    let task = || fleet.operator.run(&["task", "show", &format!("{id}-1"), "--json"]).ok().json();
    fleet.operator.wait_for("the sleeper's result is a late result", || task()["shelf"][0]["result"].is_string());
    let task = task();
    let late: Value = serde_json::from_str(task["shelf"][0]["result"].as_str().unwrap()).unwrap();
    assert_eq!((&late["node"], &task["task"]["state"]["is"]), (&"n1".into(), &"done".into()), "{task:#}");
    assert_eq!(fleet.trailers(&id), [format!("{id}-1")], "it does not count");
    let said: Value = serde_json::from_str(task["task"]["result"].as_str().unwrap()).unwrap();
    assert_eq!(said["node"], "n2");
}

#[test]
fn a_machine_that_can_begin_nothing_leaves_the_work_to_others_and_all_know_why() {
    let mut fleet = Fleet::new(3);
    // The git of the first node looks for the remote elsewhere.
    let home = fleet.nodes[0].env.project().join("../home/.gitconfig");
    std::fs::write(home, "[url \"/nowhere/\"]\n\tinsteadOf = /\n").expect("the folder is the test's");
    let list = |fleet: &Fleet| fleet.operator.run(&["mesh", "nodes", "--json"]).ok().json();
    let leads = |fleet: &Fleet| list(fleet)["nodes"].as_array().unwrap().iter().any(|node| node["leads"] == true);
    // It is the leader at first, and steps down when it cannot even run the checks.
    fleet.nodes[0].start();
    fleet.operator.wait_for("a supervisor", || leads(&fleet));
    fleet.nodes[1..].iter_mut().for_each(Node::start);
    // The others are busy with one each, until the first one has shown what it does with the rest.
    let flag = fleet.operator.project().join("../flag");
    let id = fleet.run(&format!("while [ ! -e {} ]; do sleep 0.1; done\n{WORKER}", flag.display()), &files(6));
    let record =
        |fleet: &Fleet| fleet.nodes[1].env.run(&["guard", "quarantine", "list", "--json"]).json()["mesh"].clone();
    let failed = |fleet: &Fleet| record(fleet)["seen"]["node:n1"]["failed"].as_u64().unwrap_or(0);
    fleet.operator.wait_for("its failure is in the record", || failed(&fleet) >= 1);
    std::fs::write(&flag, "").expect("the folder is the test's");
    fleet.proved(&id, 6);
    let state = fleet.end_of(&id);
    let by: Vec<&str> = state["landed"].as_array().unwrap().iter().map(|l| l["node"].as_str().unwrap()).collect();
    assert!(!by.contains(&"n1"), "{by:?}");
    let told = server().psql(&fleet.database, "select text, answer from everloop.tickets where key like 'remote:%'");
    assert!(told.contains("n1 cannot merge or run the checks") && told.contains("it went well"), "{told}");
    let seen = record(&fleet)["seen"].clone();
    let good = |node: &str| seen[node]["outcomes"].as_u64().unwrap_or(0) - seen[node]["failed"].as_u64().unwrap_or(0);
    assert_eq!(good("node:n2") + good("node:n3"), 6, "what went well is there, too: {seen:#}");
    let rule = ["guard", "quarantine", "add", "node:n1", "--mesh", "--why", "its git is broken"];
    fleet.operator.run(&rule).ok();
    assert_eq!(record(&fleet)["rules"][0]["why"], "its git is broken");
    let shown = fleet.operator.run(&["mesh", "show", &id]).ok().stdout;
    assert!(shown.contains("node:n1 is not used"), "{shown}");
    fleet.operator.run(&["guard", "quarantine", "lift", "node:n1", "--mesh", "--why", "it is mended"]).ok();
}

#[test]
fn long_a_machine_that_is_held_gives_back_what_it_has() {
    let mut fleet = Fleet::new(2);
    let (idle, flag) = (fleet.operator.project().join("../idle"), fleet.operator.project().join("../flag"));
    std::fs::write(&idle, "").expect("the folder is the test's");
    fleet.nodes[0].start();
    let agent =
        format!("while [ ! -e {} ]; do sleep 0.1; done\n[ -e {} ] && exit 0\n{WORKER}", flag.display(), idle.display());
    let id = fleet.run(&agent, &files(1));
    fleet.nodes[0].env.wait_for_agent();
    fleet.nodes[0].env.run(&["guard", "hold", "--reason", "its fan is loud"]).ok();
    // The turn ends, the check still fails, and nothing may start.
    std::fs::write(&flag, "").expect("the folder is the test's");
    let state = || fleet.show(&id)["tasks"][0]["state"]["is"].as_str().unwrap_or_default().to_owned();
    fleet.operator.wait_for("the task is given back", || state() == "queued");
    std::fs::remove_file(&idle).expect("it was made above");
    assert_eq!(state(), "queued", "and not taken again by a node that cannot work on it");
    fleet.nodes[1].start();
    fleet.proved(&id, 1);
    assert_eq!(fleet.end_of(&id)["landed"][0]["node"], "n2");
}

/// Waits until the hub's journal has this note about the mesh itself, and returns all notes.
#[track_caller]
fn noted(database: &str, text: &str) -> String {
    let notes = || server().psql(database, "select body from everloop.journal where owner is null order by seq");
    let found = try_wait_for(DEADLINE, || Some(notes()).filter(|notes| notes.contains(text)));
    found.unwrap_or_else(|| panic!("the journal does not say `{text}`: {}", notes()))
}

#[test]
fn long_the_supervisor_sets_right_what_no_loop_looks_after_and_says_who_is_silent() {
    let url = server().database();
    let database = url.rsplit('/').next().expect("an address ends with its database");
    let sender = Env::new().var("EVERLOOP_HUB_URL", &url);
    sender.run(&["mesh", "hub", "init"]).ok();
    // The amnesty is over after nine seconds, and a node is missed after five.
    let scaled = |name: &str| Node::new(name, &url).env.fast(10);
    let (one, two) = (scaled("n1"), scaled("n2"));
    let _up = one.spawn(&["up", "--listen", "127.0.0.1:0"]);
    let address = one.port();
    let page = || get(address, "/metrics").1;
    one.wait_for("it supervises", || page().contains("everloop_mesh_supervisor 1"));
    let sleeper = two.spawn(&["up", "--listen", "off"]);
    // A claim of an unknown node for an unknown loop.
    server().psql(
        database,
        "insert into everloop.tasks values ('lost', 'gone', 'batch', 't', '', 0, '[]', 'me', 'operator', 0, 'leased', 'n9', 1, 3,
         0, null, 0, 0)",
    );
    noted(database, "1 tasks ended that no loop wants");
    let row = server().psql(database, "select state, fence, result from everloop.tasks where id = 'lost'");
    assert!(row.starts_with("dead|4|") && row.contains("the hub knows no such loop"), "{row}");
    one.wait_for("both are members", || page().contains("everloop_mesh_members 2"));
    let seen = page();
    for line in ["everloop_mesh_hub_up 1", "everloop_mesh_tasks_held 0"] {
        assert!(seen.lines().any(|l| l == line), "{line}: {seen}");
    }
    // Heartbeats come every few seconds, later on a busy machine.
    one.wait_for("the hub answered just now", || page().lines().any(|l| l == "everloop_mesh_hub_answered_seconds 0"));
    assert!(seen.contains("\neverloop_mesh_replica_age_seconds "), "{seen}");
    let health: Value = serde_json::from_str(&get(address, "/health").1).expect("health is JSON");
    let mesh = &health["mesh"];
    assert_eq!((&mesh["node"], &mesh["role"], &mesh["members"]), (&"n1".into(), &"supervisor".into(), &2.into()));
    assert_eq!((&mesh["holds"], &mesh["hub_away_since"]), (&0.into(), &Value::Null), "{mesh}");
    assert!(mesh["hub_answered_s"].is_u64(), "{mesh}");
    sleeper.signal(Signal::SIGSTOP);
    noted(database, "node n2 is silent for ");
    sleeper.signal(Signal::SIGCONT);
    let notes = noted(database, "node n2 is back, after ");
    assert_eq!(notes.matches("n2 is silent").count(), 1, "once for each silence: {notes}");
    // A node that announces its end is not missed.
    two.run(&["down"]).ok();
    let list = two.run(&["mesh", "nodes", "--json"]).ok().json();
    let gone = list["nodes"].as_array().expect("a list").iter().find(|node| node["node"] == "n2").cloned();
    let gone = gone.expect("it is still listed");
    assert_eq!((&gone["state"], &gone["next_beat"]), (&"stopped".into(), &Value::Null), "{gone}");
}

#[test]
fn why_explains_a_loop_of_the_mesh_and_a_node_shows_its_copy_while_the_hub_is_away() {
    let server = PostgresServer::start(ServerSetup::default());
    let mut fleet = Fleet::at(&server.database(), 1);
    fleet.nodes[0].env.run(&["mesh", "trust", "desk"]).ok();
    fleet.nodes[0].start();
    let flag = fleet.operator.project().join("../flag");
    let id = fleet.run(&format!("while [ ! -e {} ]; do sleep 0.1; done\n{WORKER}", flag.display()), &files(1));
    let node = &fleet.nodes[0].env;
    node.wait_for_agent();
    let task = format!("{id}-1");
    let why = node.run(&["why", &id]).ok().stdout;
    for words in ["[mesh.works]", "Leader    n1 under term 1", &format!("{task} is held by n1 under fence 1")] {
        assert!(why.contains(words), "no `{words}` in: {why}");
    }
    let told = node.run(&["why", &id, "--json"]).ok().json();
    assert_eq!((&told["reason"]["rule"], &told["copy"]), (&"mesh.works".into(), &Value::Null), "{told:#}");
    // The desk does not trust the node, which wrote the loop last.
    let why = fleet.operator.run(&["why", &id]).ok().stdout;
    assert!(why.contains("Refused   this node runs and believes nothing of it"), "{why}");
    assert!(node.run(&["why", "nothing"]).exits(2).stderr.contains("there is no loop `nothing`"));
    let held = node.state().join("mirror/hub/queue/claimed").join(format!("{task}.json"));
    node.wait_for("the copy has the claim", || held.exists());
    drop(server);
    let contact = node.state().join("mesh/contact.json");
    let away = || std::fs::read_to_string(&contact).is_ok_and(|text| !text.contains("\"away_since\":null"));
    node.wait_for("the node found the hub away", away);
    for args in [&["mesh", "show", &id][..], &["mesh", "list"], &["mesh", "nodes"]] {
        let shown = node.run(args).exits(6).stdout;
        assert!(
            shown.contains("The hub is away (") && shown.contains("This is this node's copy of it, as of "),
            "{shown}"
        );
        assert!(
            shown.contains("goes on with one task") && shown.contains(&format!("task {task} of loop {id}")),
            "{shown}"
        );
        let told = node.run(&[args, &["--json"]].concat()).exits(6).json();
        assert_eq!(told["copy"]["held"][0]["task"], task, "{told:#}");
        assert!(told["copy"]["age_s"].is_u64(), "{told:#}");
    }
    let why = node.run(&["why", &id]).ok().stdout;
    assert!(why.contains("The hub is away (") && why.contains("[mesh.works]"), "{why}");
    assert!(node.run(&["mesh", "stop", &id]).exits(6).stderr.contains("the hub cannot be reached"));
    std::fs::write(&flag, "").expect("the folder is the test's");
    let done = || node.run(&["mesh", "list"]).stdout.contains("done and pushed, to be reported when the hub is back");
    node.wait_for("the work is done without the hub", done);
}

#[test]
fn finished_tasks_are_grouped_under_their_loop_and_gone_after_a_day() {
    let mut fleet = Fleet::new(1);
    fleet.nodes[0].start();
    let id = fleet.run(WORKER, &files(2));
    fleet.proved(&id, 2);
    let status = |env: &Env| env.run(&["status", "--json"]).ok().json();
    let node = &fleet.nodes[0].env;
    node.wait_for("both are over here", || status(node)["mesh"][0]["reached"] == 2);
    let seen = status(node);
    assert_eq!(seen["loops"], serde_json::json!([]), "{seen:#}");
    assert_eq!((&seen["mesh"][0]["loop"], &seen["mesh"][0]["open"]), (&id.as_str().into(), &0.into()), "{seen:#}");
    let text = node.run(&["status"]).ok().stdout;
    assert!(text.contains(&format!("mesh {id}: 0 tasks in work here, 2 over (2 reached)")), "{text}");
    assert_eq!(node.run(&["status", &id, "--json"]).ok().json()["mesh"][0]["reached"], 2);
    let local = format!("m-{id}-1-1");
    assert_eq!(node.run(&["status", &local, "--json"]).ok().json()["loops"][0]["phase"], "reached", "by its own id");
    let repo = node.state().join("mesh").join(&id).join("repo");
    let refs = || fleet.operator.git_run(&["-C", repo.to_str().expect("a plain path"), "for-each-ref"]);
    assert!(refs().contains(&local), "{}", refs());
    fleet.nodes[0].env.run(&["down"]).ok();
    drop(fleet.nodes[0].up.take());
    // By a clock that is ten times as fast, days have passed since.
    let env = std::mem::replace(&mut fleet.nodes[0].env, Env::new());
    fleet.nodes[0].env = env.fast(10);
    fleet.nodes[0].start();
    let node = &fleet.nodes[0].env;
    node.wait_for("it is pruned", || status(node)["mesh"] == serde_json::json!([]));
    let left = |dir: &str| {
        let entries = std::fs::read_dir(node.state().join(dir)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("m-")).count()
    };
    node.wait_for("its folders and refs are gone", || left("work") + left("turns") == 0 && !refs().contains(&local));
    node.run(&["replay"]).ok();
    assert!(node.run(&["logs", "--json"]).ok().stdout.contains("forgotten"));
    // The clone goes with the last of its tasks, once nothing was written to it for a day.
    let clone = node.state().join("mesh").join(&id);
    assert!(repo.exists(), "it was written to just now");
    node.run(&["down"]).ok();
    drop(fleet.nodes[0].up.take());
    for part in ["repo/.git", "lead/.git", "."] {
        let Ok(folder) = std::fs::File::open(clone.join(part)) else { continue };
        let before = std::time::SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
        folder.set_modified(before).expect("the folder is the test's");
    }
    fleet.nodes[0].start();
    let node = &fleet.nodes[0].env;
    node.wait_for("the clone is gone", || !clone.exists() && !node.state().join("work").join(&id).exists());
}
