//! What the commands of monitors, notifiers, mailboxes and trackers can reach. They are a person's,
//! but they read what agents wrote, and run programs that agents may have changed.

use std::collections::BTreeSet;

use everloop_agents::isolation::Means;
use everloop_core::isolation::IsolationMode;
use everloop_core::planted::VARIABLE;

use super::env::Env;
use super::reach::{self, ATTEMPTS, Loot, Reach};

/// The kinds of such commands; each makes all attempts.
const SIDES: [&str; 4] = ["monitor", "notifier", "mailbox", "tracker"];

/// The attempts that are made here: some of every area. The means are those of turns and checks, and
/// such a command has twenty seconds.
const HERE: &[&str] = &[
    "ssh",
    "aws",
    "netrc",
    "github",
    "claude",
    "codex",
    "another account",
    "a path around",
    "a reopened descriptor",
    "the supervisor's variables",
    "ledger",
    "key of the journal",
    "a file beside the ledger",
    "a new file",
    "another spelling",
    "the person's files",
    "the person's hooks",
    "home",
    "truncate",
    "profile",
    "keys that open the machine",
    "settings of a CLI",
    "signal",
    "memory map",
    "trace",
    "user namespace",
    "a task",
];

pub fn attempts() -> impl Iterator<Item = &'static Reach> {
    ATTEMPTS.iter().filter(|attempt| HERE.contains(&attempt.name))
}

/// A loop whose four commands make the wanted attempts, under a supervisor with these holes.
fn loot(mode: &str, holes: &str, wanted: &dyn Fn(&str) -> bool) -> Loot {
    let here = |name: &str| wanted(name) && HERE.contains(&name);
    let env = reach::world(&here).var(VARIABLE, holes).var("EVERLOOP_ISOLATION", mode);
    let open = reach::loot_dir(&env).canonicalize().expect("it was made").display().to_string();
    let hostile = env.project().join("hostile.sh").display().to_string();
    let keys = |side: &str| {
        format!("command = [\"{hostile}\", \"{side}\"]\nwritable = [\"{open}\"]\nisolation = \"{mode}\"\n")
    };
    env.write(
        "everloop.toml",
        &format!(
            "{account}[[notify]]\nkind = \"command\"\n{notifier}[mailbox]\nevery = 1\n{mailbox}[tracker]\n{tracker}\
             [loop.main]\ngoal = \"x\"\nchecks = [\"test -f done\"]\nagent_cmd = \"true\"\nguard = {{ min_gap = \"1h\" }}\n\
             [[loop.main.monitor]]\ncommand = \"{hostile} monitor\"\nwritable = [\"{open}\"]\nisolation = \"{mode}\"\n\
             every = \"1h\"\ntimeout = \"60s\"\n",
            account = "[account.other]\nfile = { KEY = \"~/keys/other\" }\n",
            notifier = keys("notifier"),
            mailbox = keys("mailbox"),
            tracker = keys("tracker"),
        ),
    );
    let run = env.spawn(&["run"]);
    let wait_for = |side: &str| {
        env.wait_for(&format!("the {side} ran"), || reach::loot_dir(&env).join(format!("{side}-ran")).exists());
    };
    // A tracker is sent what changes after its first look, which the report to the mailbox follows.
    wait_for("mailbox");
    env.run(&["message", "send", "person", "hello"]).ok();
    env.run(&["task", "add", "something"]).ok();
    SIDES.into_iter().for_each(wait_for);
    env.run(&["down"]).ok();
    run.wait();
    reach::taken(&env, String::new())
}

/// In a process namespace of its own no process of others has a number.
fn refused(mode: &str) {
    let is_seen = |name: &str| {
        let area = ATTEMPTS.iter().find(|attempt| attempt.name == name).map(|attempt| attempt.area);
        mode != "bubblewrap" || area != Some("processes")
    };
    assert_eq!(loot(mode, "", &is_seen).taken, BTreeSet::new(), "{mode}");
}

#[test]
fn every_attempt_of_such_a_command_is_refused() {
    if Means::of(IsolationMode::Auto).holds() {
        refused("auto");
    }
}

#[test]
fn every_attempt_of_such_a_command_is_refused_under_bubblewrap() {
    refused("bubblewrap");
}

/// Without the rules all four succeed, so a refusal proves something.
fn all_four_succeed(found: &Loot, attempts: &[&str]) {
    for side in SIDES {
        let missing: Vec<&&str> =
            attempts.iter().filter(|name| !found.taken.contains(&(side.to_owned(), (**name).to_owned()))).collect();
        assert!(missing.is_empty(), "{side} is refused {missing:?}");
    }
}

#[test]
fn the_same_attempts_succeed_without_isolation() {
    let attempts = ["ssh", "github", "another account", "ledger", "key of the journal", "home", "signal", "a task"];
    all_four_succeed(&loot("none", "", &|name| attempts.contains(&name)), &attempts);
}

#[test]
fn open_commands_of_a_person_are_found() {
    let attempts = ["ssh", "github", "another account", "ledger", "key of the journal"];
    all_four_succeed(&loot("landlock", "OwnCommandsOpen", &|name| attempts.contains(&name)), &attempts);
}

/// The folder of the socket is one that bubblewrap hides from all other commands.
#[test]
fn a_notifier_reaches_the_network_and_the_bus_of_the_session() {
    for mode in ["landlock", "bubblewrap"] {
        let runtime = super::hidden_folder();
        let _bus = std::os::unix::net::UnixListener::bind(runtime.path().join("bus")).expect("a new socket");
        let web = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let port = web.local_addr().expect("it is bound").port();
        let env = Env::new().var("XDG_RUNTIME_DIR", &runtime.path().display().to_string());
        env.write("../open/empty", "");
        let open = env.project().join("../open").canonicalize().expect("it was made").display().to_string();
        let script = format!(
            "import os, socket\nsocket.socket(socket.AF_UNIX).connect(os.environ['XDG_RUNTIME_DIR'] + '/bus')\n\
             socket.create_connection(('127.0.0.1', {port}), 5)\nopen('{open}/reached', 'w')\n"
        );
        env.write("notifier.py", &script);
        let notifier = env.project().join("notifier.py").display().to_string();
        env.write(
            "everloop.toml",
            &format!(
                "[[notify]]\nkind = \"command\"\ncommand = [\"python3\", \"{notifier}\"]\nwritable = [\"{open}\"]\n\
                 isolation = \"{mode}\"\n[loop.main]\ngoal = \"x\"\nchecks = [\"test -f done\"]\nagent_cmd = \"true\"\n\
                 guard = {{ min_gap = \"1h\" }}\n"
            ),
        );
        let run = env.spawn(&["run"]);
        env.wait_for("the supervisor", || env.state().join("bell").exists());
        env.run(&["message", "send", "person", "hello"]).ok();
        env.wait_for(&format!("it reached both under {mode}"), || env.project().join("../open/reached").exists());
        drop(run);
    }
}
