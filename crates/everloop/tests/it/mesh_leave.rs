//! `everloop mesh leave`: this installation is no longer a node.

use crate::env::Env;
use crate::mesh_join::hub;

#[test]
fn after_leaving_the_machine_knows_no_hub_and_may_join_another() {
    let env = Env::new();
    env.run(&["mesh", "join", &hub(), "--name", "a"]).ok();
    let left = env.run(&["mesh", "leave", "--json"]).ok().json();
    assert_eq!(left["node"], "a");
    assert!(!left.to_string().contains("s3cret"), "{left}");
    env.run(&["mesh", "nodes"]).exits(7);
    env.run(&["mesh", "join", &hub()]).ok();
}

#[test]
fn a_machine_without_a_mesh_has_nothing_to_leave() {
    let none = Env::new().run(&["mesh", "leave"]).exits(2);
    assert!(
        none.stderr.contains("is not a node of a mesh") && none.stderr.contains("everloop mesh join"),
        "{}",
        none.stderr
    );
}
