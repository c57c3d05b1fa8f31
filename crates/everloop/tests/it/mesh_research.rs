//! Research runs that several nodes share: each experiment is counted once, whatever dies, and the
//! champion is one line.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::mesh::Fleet;

/// Files with the numbers that the metric sums up; each experiment changes one of its own.
const PARTS: usize = 20;
/// The agent's beginning: `n` is the number of the task, `fence` that of its attempt.
const HEAD: &str = r#"id=${EVERLOOP_TURN%.*}; id=${id%-*}; fence=${id##*-}; id=${id%-*}; n=${id##*-}
echo "EXPERIMENT: change $n"
"#;

/// So many nodes, and a project on the remote with a sum as its metric.
fn fleet(nodes: usize) -> Fleet {
    let fleet = Fleet::new(nodes);
    for part in 0..PARTS {
        fleet.operator.write(&format!("parts/p{part}"), "10\n");
    }
    fleet.operator.write("metric.sh", "cat parts/* | awk '{ s += $1 } END { print s }'\n");
    fleet.operator.git_run(&["add", "-A"]);
    fleet.operator.git_run(&["commit", "-qm", "parts"]);
    fleet.operator.git_run(&["push", "-q", "origin", "main"]);
    fleet
}

/// Hands a run to the mesh. `$gate` in the script is a folder that the test sees, too.
#[track_caller]
fn research(fleet: &Fleet, script: &str, more: &[&str]) -> (String, std::path::PathBuf) {
    let gate = fleet.operator.project().join("../gate");
    fs::create_dir_all(&gate).expect("the folder is the test's");
    let gate = gate.canonicalize().expect("it was just made");
    let body = format!("gate={}\n{HEAD}{script}", gate.display());
    let command = format!("sh {}", fleet.operator.script("../agent.sh", &body));
    let words = ["research", "a smaller sum", "--mesh", "--detach", "--json", "--min-gap=0", "--isolation=none"];
    let metric = ["--metric", "sh metric.sh", "--direction", "lower", "--agent-cmd", &command];
    let made = fleet.operator.run(&[&words[..], &metric, more].concat()).ok().json();
    (made["loop"].as_str().expect("a run has an id").to_owned(), gate)
}

fn rows(fleet: &Fleet, id: &str) -> Vec<Value> {
    fleet.operator.run(&["research", "show", id, "--json"]).ok().json()["rows"].as_array().expect("rows").clone()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Rows are numbered without gaps, no task is counted twice, each keep stands on the one before, and
/// the remote's ref is the document's champion.
#[track_caller]
fn proved(fleet: &Fleet, id: &str, experiments: usize) -> Vec<Value> {
    let rows = rows(fleet, id);
    let numbers: Vec<u64> = rows.iter().filter_map(|row| row["number"].as_u64()).collect();
    assert_eq!(numbers, (0..=experiments as u64).collect::<Vec<_>>(), "{rows:#?}");
    let tasks: BTreeSet<&str> = rows.iter().map(|row| text(row, "task")).collect();
    assert_eq!(tasks.len(), rows.len(), "no task is counted twice: {rows:#?}");
    let mut champion = text(&rows[0], "commit").to_owned();
    for keep in rows.iter().filter(|row| row["status"] == "keep") {
        assert_eq!(text(keep, "base"), champion, "{keep:#}");
        let commit = text(keep, "commit");
        assert_eq!(fleet.git(&["rev-parse", &format!("{commit}~1")]).trim(), champion, "one line: {keep:#}");
        commit.clone_into(&mut champion);
    }
    let there = fleet.git(&["rev-parse", &format!("refs/everloop/{id}/champion")]);
    assert_eq!(there.trim(), champion, "the ref is where the document is");
    assert_eq!(fleet.show(id)["loop"]["research"]["champion"]["commit"], champion);
    assert_eq!(fleet.git(&["rev-parse", "main"]).trim(), text(&rows[0], "commit"), "the person's branch stays");
    rows
}

/// One in three is kept, one is worse, and one cheats. The first attempt at the fifth waits.
const MIXED: &str = r#"if [ "$n.$fence" = 5.1 ]; then
  : > "$gate/begun"; while [ ! -e "$gate/open" ]; do sleep 0.1; done
fi
case $((n % 3)) in
  1) echo 1 > parts/p$n ;;
  2) echo 99 > parts/p$n ;;
  0) echo 'echo 0' > metric.sh ;;
esac"#;

#[test]
fn long_three_nodes_share_a_run_and_one_is_killed_in_the_middle() {
    let mut fleet = fleet(3);
    let (id, gate) = research(&fleet, MIXED, &["-n", "12", "--width", "3"]);
    fleet.nodes.iter_mut().for_each(crate::mesh::Node::start);
    fleet.operator.wait_for("an attempt at the fifth experiment", || gate.join("begun").exists());
    let tasks = fleet.show(&id)["tasks"].clone();
    let fifth = tasks.as_array().expect("tasks").iter().find(|row| row["id"] == format!("{id}-5"));
    let holder = fifth.and_then(|row| row["state"]["node"].as_str()).expect("a node holds it").to_owned();
    let at: usize = holder.trim_start_matches('n').parse().expect("nodes are numbered");
    fleet.nodes[at - 1].up.as_ref().expect("it was started").signal(Signal::SIGKILL);
    let state = fleet.end_of(&id);
    fs::write(gate.join("open"), "").expect("the folder is the test's");
    assert_eq!(state["ended"]["bound"], "turns", "{state:#}");
    let rows = proved(&fleet, &id, 12);
    for row in &rows[1..] {
        let n: usize = text(row, "task").rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
        assert_eq!(text(row, "status"), ["refused", "keep", "discard"][n % 3], "{row:#}");
    }
    assert_eq!(state["research"]["champion"]["samples"][0], 164.0, "four of twenty parts are smaller: {state:#}");
}

/// Both begin from the baseline, whichever is first.
const BOTH: &str = r#": > "$gate/$n"; while [ ! -e "$gate/1" ] || [ ! -e "$gate/2" ]; do sleep 0.1; done
echo 1 > parts/p$n"#;

#[test]
fn a_keep_whose_champion_moved_is_replayed_and_measured_again() {
    let mut fleet = fleet(2);
    let (id, _) = research(&fleet, BOTH, &["-n", "2", "--width", "2"]);
    fleet.nodes.iter_mut().for_each(crate::mesh::Node::start);
    fleet.end_of(&id);
    let rows = proved(&fleet, &id, 2);
    assert_eq!((rows[1]["value"].as_f64(), rows[2]["value"].as_f64()), (Some(191.0), Some(182.0)), "{rows:#?}");
    assert!(text(&rows[2], "why").starts_with("replayed on the champion"), "{:#}", rows[2]);
    let best = fleet.operator.run(&["research", "best", &id]).ok().stdout;
    assert!(best.contains("182 (baseline 200)"), "{best}");
    let diff = fleet.operator.run(&["research", "diff", "2", &id]).ok().stdout;
    assert!(diff.contains("-10") && diff.contains("+1"), "{diff}");
    let table = fleet.operator.run(&["research", "export", &id]).ok().stdout;
    assert_eq!(table.lines().count(), 5, "{table}");
    let shown = fleet.operator.run(&["mesh", "show", &id]).ok().stdout;
    assert!(shown.contains("2 experiments, 2 kept, 200 -> 182"), "{shown}");
    fleet.operator.run(&["research", "report", &id, "-o", "../report.html"]).ok();
    assert!(fleet.operator.read("../report.html").contains("<svg"));
    fleet.operator.run(&["research", "apply", &id]).ok();
    assert_eq!(
        (fleet.operator.read("parts/p1"), fleet.operator.read("parts/p2")),
        ("1\n".to_owned(), "1\n".to_owned())
    );
    assert!(!fleet.operator.git_run(&["for-each-ref"]).contains("everloop"), "no ref is left in the repository");
}

#[test]
fn a_keep_that_the_leader_cannot_confirm_is_refused() {
    let mut fleet = fleet(1);
    fleet.nodes[0].start();
    // Attempts run in folders of their own, with names that begin with `m-`.
    let guard = "test ! -e parts/new || pwd | grep -q /m-";
    let (id, _) = research(&fleet, "echo 1 > parts/p1; echo 0 > parts/new", &["-n", "1", "--check", guard]);
    fleet.end_of(&id);
    let rows = proved(&fleet, &id, 1);
    assert_eq!((text(&rows[1], "status"), rows[1]["guard"].as_bool()), ("discard", Some(false)), "{:#}", rows[1]);
    assert!(text(&rows[1], "why").starts_with("on the leader: a guard does not pass"), "{:#}", rows[1]);
}

#[test]
fn a_shared_run_ends_with_its_goal_value_or_because_it_cannot_be_measured() {
    let mut fleet = fleet(1);
    fleet.nodes[0].start();
    let (id, _) = research(&fleet, "echo 1 > parts/p$n", &["--goal-value", "182", "--width", "1"]);
    let state = fleet.end_of(&id);
    assert_eq!((state["ended"]["is"].as_str(), state["ended"]["number"].as_u64()), (Some("met"), Some(2)), "{state:#}");
    proved(&fleet, &id, 2);
    let words = ["research", "x", "--mesh", "--min-gap=0", "--metric", "echo none", "--direction", "lower"];
    let out = fleet.operator.run(&[&words[..], &["--agent-cmd", "true"]].concat()).exits(1);
    assert!(out.stdout.contains("the metric cannot be read"), "{} {}", out.stdout, out.stderr);
}
