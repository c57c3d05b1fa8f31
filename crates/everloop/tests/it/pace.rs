//! Pacing: a loop with `pace` makes its account's allowance last; one without is never slowed down.

use crate::env::Env;

/// An agent that reports in everloop's own format that 80 % of a window are used of which 20 % of
/// the time have gone.
fn world() -> Env {
    let env = Env::new();
    env.script(
        "bin/agent",
        r#"reset=$(( ($(date +%s) + 14400) * 1000 ))
echo '{"said":"session","id":"s1","model":null}'
echo '{"said":"quota","window":"five_hour","used_permille":800,"reset_at":'$reset',"length_ms":null}'
echo x >> done
echo '{"said":"result","ok":true,"text":"on it"}'"#,
    );
    env
}

const RUN: [&str; 10] = [
    "run",
    "g",
    "--check",
    "test $(wc -l < done) -ge 3",
    "--agent-cmd",
    "bin/agent",
    "--in-place",
    "--min-gap",
    "0",
    "--new",
];

#[test]
fn a_paced_loop_waits_for_the_line_and_everybody_can_see_why() {
    let env = world();
    env.run(&[&RUN[..], &["--pace", "--detach"]].concat()).ok();
    env.wait_for("the guard holds it", || env.run(&["why"]).ok().stdout.contains("[guard.pace]"));
    assert_eq!(env.read("done"), "x\n", "after its first turn, for hours");
    for verb in ["why", "status"] {
        let said = env.run(&[verb]).ok().stdout;
        assert!(said.contains("80 % of the window `five_hour` of the account `default/agent-"), "{verb}: {said}");
    }
    let said = env.run(&["why"]).ok().stdout;
    assert!(said.contains("20 % of its time gone (at this pace 400 % by its reset)"), "{said}");
    let said = env.run(&["guard", "status"]).ok().stdout;
    assert!(said.contains("five_hour: 80 % used"), "{said}");
    let data = env.run(&["guard", "status", "--json"]).ok().json();
    let windows = data["scopes"].as_array().unwrap().iter().filter_map(|s| s["windows"][0].as_object()).count();
    assert_eq!(windows, 1, "{data}");
    let said = env.run(&["usage"]).ok().stdout;
    assert!(said.contains("paced: its next start is in 2h"), "{said}");
    assert!(env.run(&["usage", "--json"]).ok().json()["windows"][0]["paced_until"].is_i64());
    assert!(env.run(&["show"]).ok().stdout.contains(", paced"));
    env.run(&["down"]).ok();
    env.run(&["replay"]).ok();
}

#[test]
fn without_being_asked_nobody_is_slowed_down() {
    let env = world();
    env.run(&RUN).ok();
    assert_eq!(env.read("done"), "x\nx\nx\n");
    let said = env.run(&["usage"]).ok().stdout;
    assert!(said.contains("five_hour: 80 % used") && !said.contains("paced"), "{said}");
}
