//! `everloop mesh nodes|drain|remove`. The work of nodes is in `mesh`.

use everloop_testkit::postgres::server;
use serde_json::Value;

use crate::env::Env;

/// A hub, and a machine that belongs to its mesh.
fn joined() -> Env {
    let env = Env::new().var("EVERLOOP_HUB_URL", &server().database());
    env.run(&["mesh", "hub", "init"]).ok();
    env.run(&["mesh", "join", "--name", "n1"]).ok();
    env
}

fn state(env: &Env) -> Value {
    env.run(&["mesh", "nodes", "--json"]).ok().json()["nodes"][0]["state"].clone()
}

#[test]
fn a_node_is_listed_drained_and_taken_off_the_list() {
    let env = joined();
    let none = env.run(&["mesh", "nodes"]).ok().stdout;
    assert!(none.contains("everloop up"), "nothing was seen yet, and the line says what to do: {none}");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the node is ready", || state(&env) == "ready");
    let listed = env.run(&["mesh", "nodes"]).ok().stdout;
    assert!(listed.contains("n1 (this)"), "{listed}");
    env.run(&["mesh", "drain", "n1"]).ok();
    assert_eq!(state(&env), "draining");
    env.run(&["mesh", "drain", "n1", "--undo"]).ok();
    assert_eq!(state(&env), "ready");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    assert_eq!(state(&env), "stopped", "a node that says goodbye is not missed");
    env.run(&["mesh", "remove", "n1"]).ok();
    assert_eq!(state(&env), Value::Null);
}

#[test]
fn an_unknown_node_and_a_machine_without_a_mesh_get_hints() {
    let unknown = joined().run(&["mesh", "drain", "n9"]).exits(2);
    assert!(unknown.stderr.contains("there is no node `n9`"), "{}", unknown.stderr);
    let none = Env::new().run(&["mesh", "nodes"]).exits(7);
    assert!(none.stderr.contains("is not a node of a mesh"), "{}", none.stderr);
}
