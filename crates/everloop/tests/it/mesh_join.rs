//! `everloop mesh join`: this installation becomes a node. The work of nodes is in `mesh`.

use std::os::unix::fs::PermissionsExt;

use everloop_testkit::postgres::server;

use crate::env::Env;

/// The address of a new hub, with a password in it.
pub fn hub() -> String {
    let url = server().database();
    Env::new().run(&["mesh", "hub", "init", "--url", &url]).ok();
    let name = url.rsplit('/').next().expect("an address ends with its database");
    server().url_as(name, "s3cret", name)
}

#[test]
fn the_address_is_kept_for_the_owner_alone_and_its_password_is_never_shown() {
    let env = Env::new().var("EVERLOOP_HUB_URL", &hub());
    let joined = env.run(&["mesh", "join", "--name", "builder-2", "--max-parallel-turns", "3"]).ok();
    assert!(joined.stdout.contains("node `builder-2` joined the hub"), "{}", joined.stdout);
    assert!(joined.stdout.contains("start it: everloop up"), "{}", joined.stdout);
    assert!(!joined.stdout.contains("s3cret") && !joined.stderr.contains("s3cret"));
    let files = std::fs::read_dir(env.state()).expect("the state folder is there");
    let with_secret: Vec<u32> = files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("s3cret")))
        .map(|path| path.metadata().expect("it was just read").permissions().mode() & 0o777)
        .collect();
    assert_eq!(with_secret, [0o600], "one file has the address, and only its owner reads it");
    let again = env.run(&["mesh", "join", "--json"]).ok().json();
    assert_eq!(
        (&again["node"], &again["max_parallel_turns"]),
        (&"builder-2".into(), &1.into()),
        "the name stays: {again}"
    );
}

#[test]
fn a_hub_that_a_person_accepted_without_verification_is_remembered_as_accepted() {
    let env = Env::new();
    // On Linux this address reaches this machine; it is not loopback all the same.
    let url = hub().replace("127.0.0.1", "0.0.0.0");
    env.run(&["mesh", "join", &url, "--name", "a"]).exits(7);
    env.run(&["mesh", "join", &url, "--name", "a", "--insecure-hub"]).ok();
    env.run(&["mesh", "nodes"]).ok();
}

#[test]
fn a_second_hub_a_bad_name_and_a_bad_address_are_refused() {
    let (env, url) = (Env::new(), hub());
    env.run(&["mesh", "join", &url, "--name", "a"]).ok();
    let other = env.run(&["mesh", "join", &hub()]).exits(1);
    assert!(other.stderr.contains("hint: leave it first: everloop mesh leave"), "{}", other.stderr);
    let env = Env::new();
    assert!(env.run(&["mesh", "join", &url, "--name", "a b"]).exits(2).stderr.contains("invalid node name"));
    assert!(env.run(&["mesh", "join", "mysql://h/d"]).exits(7).stderr.contains("hint: write `postgres://"));
    env.run(&["mesh", "join", &url, "--max-parallel-turns", "0"]).exits(2);
    assert_ne!(env.run(&["mesh", "join"]).code, 0, "without an address there is nothing to join");
    assert!(env.run(&["mesh", "leave"]).exits(2).stderr.contains("is not a node of a mesh"), "none of this joined one");
}
