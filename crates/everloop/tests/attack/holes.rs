//! Holes in the isolation, planted one by one: the attempts that a defence refuses succeed without
//! it. Where two defences refuse the same, both are taken away.

use std::os::unix::net::UnixListener;

use everloop_core::planted::{Bug, VARIABLE};

use super::env::Env;
use super::reach::{has_disk, try_some};

/// All of these attempts succeed with these holes.
fn opens(mode: &str, holes: &[Bug], attempts: &[&str]) {
    let names: Vec<String> = holes.iter().map(|bug| format!("{bug:?}")).collect();
    let loot = try_some(mode, &names.join(","), &|name| attempts.contains(&name));
    let missing: Vec<&&str> = attempts.iter().filter(|name| !loot.names().contains(*name)).collect();
    assert!(missing.is_empty(), "{mode} with {holes:?} still refuses {missing:?}");
}

#[test]
fn a_readable_state_folder_is_found() {
    let attempts = ["ledger", "key of the journal", "a file beside the ledger", "jobs", "rows of the ledger"];
    for mode in ["landlock", "bubblewrap"] {
        opens(mode, &[Bug::StateReadable], &attempts);
    }
}

#[test]
fn readable_secrets_are_found() {
    let attempts = ["ssh", "aws", "claude", "another account", "copy", "archive", "a reopened descriptor"];
    for mode in ["landlock", "bubblewrap"] {
        opens(mode, &[Bug::SecretsReadable], &attempts);
    }
}

#[test]
fn writing_outside_is_found() {
    let attempts = ["profile", "truncate", "the person's files", "the person's hooks", "the person's refs"];
    for mode in ["landlock", "bubblewrap"] {
        opens(mode, &[Bug::WritableEverywhere], &attempts);
    }
}

#[test]
fn signals_to_others_are_found() {
    opens("landlock", &[Bug::SignalsUnscoped], &["signal"]);
}

#[test]
fn rules_that_are_not_entered_are_found() {
    opens("landlock", &[Bug::RulesNotEntered], &["ledger", "ssh", "home", "signal", "settings of everloop's git"]);
}

/// The memory of shims is hidden three times: by the rules, from other users' processes, and from
/// root by taking its powers.
#[test]
fn memory_that_is_shown_is_found() {
    let attempts = ["memory map", "trace", "descriptors"];
    let second = if is_root() { Bug::PowersKept } else { Bug::MemoryShown };
    opens("landlock", &[Bug::RulesNotEntered, second], &attempts);
    let loot = try_some("landlock", "RulesNotEntered", &|name| attempts.contains(&name));
    assert!(loot.taken.is_empty(), "the second defence did not hold: {:?}", loot.taken);
}

#[test]
fn a_missing_filter_of_calls_is_found() {
    opens("landlock", &[Bug::CallsNotFiltered], &["user namespace"]);
    if is_root() {
        opens("landlock", &[Bug::CallsNotFiltered], &["root folder"]);
    }
}

#[test]
fn devices_that_are_open_are_found() {
    if has_disk() {
        for mode in ["landlock", "bubblewrap"] {
            opens(mode, &[Bug::DevicesOpened], &["a disk"]);
        }
    }
    if is_root() {
        opens("landlock", &[Bug::DevicesOpened, Bug::PowersKept], &["a device"]);
    }
}

/// Whether a check of a loop passes; the supervisor and its shims have this hole.
fn passes(check: &str, options: &[&str], hole: Option<Bug>, config: &str) -> bool {
    let holes = hole.map_or_else(String::new, |bug| format!("{bug:?}"));
    let env = Env::new().var(VARIABLE, &holes);
    env.write("everloop.toml", config);
    let run = ["run", "x", "--check", check, "--agent-cmd", "true", "--min-gap", "0", "-n", "1"];
    env.run(&[&run[..], options].concat()).code == 0
}

#[test]
fn sockets_that_are_shown_are_found() {
    let folder = super::hidden_folder();
    let path = folder.path().join("default");
    let _listener = UnixListener::bind(&path).expect("a new socket");
    let python = format!("import socket; socket.socket(socket.AF_UNIX).connect('{}')", path.display());
    let check = format!("python3 -c \"{python}\"");
    let options = ["--isolation", "bubblewrap"];
    assert!(!passes(&check, &options, None, ""));
    assert!(passes(&check, &options, Some(Bug::SocketsShown), ""), "the hole opens nothing");
}

#[test]
fn a_network_that_stays_open_is_found() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("it is bound").port();
    let check = format!("python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\"");
    let config = "[isolation]\ncheck_network = \"none\"\n";
    for mode in ["landlock", "bubblewrap"] {
        let options = ["--isolation", mode];
        assert!(!passes(&check, &options, None, config), "{mode}");
        assert!(passes(&check, &options, Some(Bug::NetworkOpen), config), "{mode}: the hole opens nothing");
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
