//! The rules of the mesh one by one; all of them together are simulated elsewhere.

use std::time::Duration;

use super::lead::{self, Step};
use super::seat::{ACT, AMNESTY, Seat};
use super::work::{self, Held, Local, Stage, Standing};
use super::*;
use crate::board::{CheckResult, Verdict};
use crate::op::{Amendment, TaskEnd, TaskRow, TaskState, Trust};
use crate::spec::{AgentSpec, Bounds, CheckSpec, GuardSpec, Integrate, WorkspaceMode, WorkspaceSpec};

const NOW: Time = Time(1_000);

fn board(passing: &[&str]) -> Board {
    let row = |name: &str| CheckResult {
        name: name.to_owned(),
        verdict: if passing.contains(&name) { Verdict::Pass } else { Verdict::Fail },
        weight: 1,
        millis: 1,
        output: format!("{name} says no"),
        fingerprint: 0,
    };
    Board(["a", "b", "c"].into_iter().map(row).collect())
}

fn state() -> MeshLoop {
    let check = |name: &str| CheckSpec {
        name: name.to_owned(),
        run: format!("test -f {name}"),
        timeout: Duration::from_secs(60),
        weight: 1,
        pin: String::new(),
    };
    let wanted = LoopSpec {
        goal: "all of them".to_owned(),
        checks: ["a", "b", "c"].map(check).to_vec(),
        agent: AgentSpec::default(),
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: "/nowhere".to_owned(),
            mode: WorkspaceMode::Git { target: "refs/heads/main".to_owned() },
            integrate: Integrate::Reached,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
        },
        bounds: Bounds::default(),
        guard: GuardSpec::default(),
        watch: crate::watch::WatchSpec::default(),
    };
    let spec = MeshSpec {
        wanted,
        remote: "/remote".to_owned(),
        branch: "refs/heads/main".to_owned(),
        below: String::new(),
        width: 2,
        attempts: 2,
        task_turns: 3,
    };
    MeshLoop::new(LoopId::new("k3f9"), "all".to_owned(), spec, NOW)
}

fn row(task: &NewTask, state: TaskState, report: Option<&Report>) -> TaskRow {
    TaskRow {
        task: task.clone(),
        state,
        fence: Fence(1),
        failures: 0,
        result: report.map(|r| serde_json::to_string(r).unwrap()),
        created_at: NOW,
        updated_at: NOW,
    }
}

fn said(commit: Option<&str>) -> Report {
    Report {
        node: NodeId::new("n1"),
        reached: commit.is_some(),
        commit: commit.map(str::to_owned),
        reference: None,
        turns: 1,
        microusd: 0,
        why: "it did not".to_owned(),
    }
}

/// Takes the steps that need nobody else; gives the tasks it made.
fn perform(state: &mut MeshLoop, rows: &[TaskRow]) -> Vec<NewTask> {
    let made = |op| if let Op::Enqueue(task) = op { Some(task) } else { None };
    lead::plan(state, rows, false, NOW).ops.into_iter().filter_map(made).collect()
}

#[test]
fn failing_checks_become_tasks_as_far_as_the_width_goes_and_each_has_one() {
    let mut state = state();
    assert_eq!(lead::next(&state, &[], false, NOW), [Step::Judge]);
    assert_eq!(lead::next(&state, &[], true, NOW), []);
    state.judge("c0".to_owned(), board(&["b"]));
    let made = perform(&mut state, &[]);
    assert_eq!(made.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["k3f9-1", "k3f9-2"]);
    assert!(made[0].prompt.contains("> a says no") && made[0].trust == Trust::Operator, "{}", made[0].prompt);
    assert_eq!(lead::next(&state, &[], false, NOW), [], "both checks have their task");
    assert_eq!(state.check_of(&made[1].id), Some("c"));
}

#[test]
fn one_result_at_a_time_is_merged_and_what_came_to_nothing_is_told_to_the_next() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&["b"]));
    let made = perform(&mut state, &[]);
    let done = [0, 1].map(|i| row(&made[i], TaskState::Done, Some(&said(Some("c1")))));
    let steps = lead::next(&state, &done, false, NOW);
    assert!(matches!(&steps[..], [Step::Integrate { task, .. }] if *task == made[0].id), "{steps:?}");
    assert_eq!(lead::next(&state, &done, true, NOW), [], "one at a time");
    let landed = Landed {
        task: made[0].id.clone(),
        check: "a".to_owned(),
        node: NodeId::new("n1"),
        fence: Fence(1),
        commit: "m1".to_owned(),
    };
    state.land(landed, Some(board(&["a", "b"])));
    let dead = row(&made[1], TaskState::Dead, Some(&said(None)));
    let again = perform(&mut state, std::slice::from_ref(&dead));
    assert!(again.is_empty(), "first it is written down");
    let again = perform(&mut state, &[dead]);
    assert!(again[0].id.as_str() == "k3f9-3" && again[0].prompt.contains("> it did not"), "{}", again[0].prompt);
    let dead = row(&again[0], TaskState::Dead, None);
    perform(&mut state, std::slice::from_ref(&dead));
    let end = lead::next(&state, &[dead], false, NOW);
    assert_eq!(end, [Step::End(End::GivenUp { checks: vec!["c".to_owned()] })], "two attempts were allowed");
    state.judge("m2".to_owned(), board(&["a", "b", "c"]));
    assert_eq!(lead::next(&state, &[], false, NOW), [Step::End(End::Reached)]);
    state.stop = true;
    assert_eq!(lead::next(&state, &[], false, NOW), [Step::End(End::Stopped)]);
    state.ended = Some(End::Stopped);
    assert_eq!(lead::next(&state, &[], false, NOW), []);
}

#[test]
fn a_loop_that_ends_leaves_nobody_at_work_and_is_written_under_its_epoch() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let leased = TaskState::Leased { node: NodeId::new("n2"), until: Time(0) };
    let rows = [row(&tasks[0], leased, None), row(&tasks[1], TaskState::Done, Some(&said(Some("c1"))))];
    state.stop = true;
    let plan = lead::plan(&mut state, &rows, false, NOW);
    assert_eq!(plan.ops, [Op::Amend { task: tasks[0].id.clone(), change: Amendment::Cancel }], "what is done is done");
    assert_eq!((plan.notes, plan.errand), (vec!["ended: it was stopped".to_owned()], None));
    let office = lead::Office { node: NodeId::new("n1"), epoch: 7 };
    let batch = office.batch(state.save(3, &[]));
    assert!(matches!(&batch[..], [Op::Lead { epoch: 7, .. }, Op::SaveDoc { version: 3, .. }, Op::Append { .. }]));
    let [Op::Lead { .. }, Op::Take { fence: Fence(5), .. }, Op::Release { fence: Fence(5), failed: false, .. }] =
        &office.take_back(&tasks[0].id, Fence(4))[..]
    else {
        panic!("taken and given away in one batch")
    };
    let Op::SaveDoc { body, .. } = &batch[1] else { unreachable!("it was just seen") };
    assert_eq!(MeshLoop::read(body), Ok(state));
    assert!(
        MeshLoop::read(&body.replacen("\"version\":1", "\"version\":2", 1)).is_err_and(|why| why.contains("newer"))
    );
}

#[test]
fn only_work_that_helps_and_breaks_nothing_is_accepted() {
    assert_eq!(accept(&board(&["b"]), &board(&["a", "b"]), "a"), Ok(()));
    assert!(accept(&board(&["b"]), &board(&["a"]), "a").is_err_and(|why| why.ends_with("before: b")));
    assert!(accept(&board(&["b"]), &board(&["b"]), "a").is_err_and(|why| why.contains("`a` says: fail")));
    assert!(accept(&board(&[]), &board(&["a"]), "x").is_err());
}

#[test]
fn a_node_takes_what_is_free_and_nothing_else() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let leased = TaskState::Leased { node: NodeId::new("n2"), until: Time(0) };
    let rows = [row(&tasks[0], TaskState::Queued, None), row(&tasks[1], leased, None)];
    let node = NodeId::new("n1");
    assert_eq!(work::pick(&node, &rows, 5, NOW), [(tasks[0].id.clone(), Fence(2))], "an old lease is not its business");
    assert_eq!(work::pick(&node, &rows, 0, NOW), []);
    assert_eq!(work::pick(&node, &rows, 5, Time(0)), [], "it is not due yet");
    assert_eq!(lead::overdue(&rows, Time(0)), [(tasks[1].id.clone(), Fence(1))]);
    let spec = work::local_spec(&state, &rows[0]).unwrap();
    assert_eq!(spec.checks.len(), 1, "its own check; none passes yet");
    assert_eq!(spec.bounds.max_turns, Some(3));
    state.judge("c1".to_owned(), board(&["c"]));
    assert_eq!(work::local_spec(&state, &rows[0]).unwrap().checks.len(), 2, "and what passes must not break");
}

#[test]
fn what_a_node_does_depends_on_what_the_hub_says() {
    let held = Held { task: TaskId::new("k3f9-1"), fence: Fence(2), owner: LoopId::new("k3f9"), stage: Stage::Working };
    let pushed =
        |reached| Held { stage: Stage::Pushed { report: Report { reached, ..said(Some("c1")) } }, ..held.clone() };
    let reached = Local::Over { reached: true };
    let next = |held: &Held, standing, local: &Local| work::next(held, standing, local, 0, NOW);
    assert_eq!(next(&held, Standing::Mine, &Local::Missing), work::Step::Begin);
    assert_eq!(next(&held, Standing::Unknown, &Local::Missing), work::Step::Wait, "nothing begins on a guess");
    assert_eq!(next(&held, Standing::Unknown, &Local::Running), work::Step::Wait, "a turn is not stopped on a guess");
    assert_eq!(next(&held, Standing::Lost, &Local::Running), work::Step::Stop);
    assert_eq!(next(&held, Standing::Lost, &Local::Missing), work::Step::Forget);
    assert_eq!(next(&held, Standing::Lost, &reached), work::Step::Push { reached: true }, "work is never thrown away");
    let told = |held: &Held, standing, failures| match work::next(held, standing, &reached, failures, NOW) {
        work::Step::Tell(ops) => ops,
        other => panic!("{other:?}"),
    };
    let [Op::Finish { state: TaskEnd::Done, .. }] = told(&pushed(true), Standing::Mine, 0)[..] else {
        panic!("it counts")
    };
    let [Op::Shelve { .. }] = told(&pushed(true), Standing::Lost, 0)[..] else { panic!("it does not count") };
    assert_eq!(next(&pushed(true), Standing::Unknown, &reached), work::Step::Wait);
    let dead = |failures| match &told(&pushed(false), Standing::Mine, failures)[..] {
        [Op::Shelve { .. }, Op::Release { failed: true, ready_at: NOW, .. }] => false,
        [Op::Shelve { .. }, Op::Finish { state: TaskEnd::Dead, .. }, Op::OpenTicket { .. }] => true,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 2, 3].map(dead), [false, false, true, true]);
    let node = NodeId::new("n1");
    let one = perform_one();
    let mine = Held { task: one.id.clone(), fence: Fence(1), ..pushed(true) };
    let task = row(&one, TaskState::Leased { node: node.clone(), until: Time(0) }, None);
    assert_eq!(work::standing(&mine, Some(&task), &node), Standing::Mine, "also past its end, while nobody took it");
    assert_eq!(work::standing(&held, Some(&task), &node), Standing::Lost, "another fence");
    assert_eq!(work::standing(&mine, None, &node), Standing::Lost);
    let Stage::Pushed { report } = &mine.stage else { unreachable!("it was just pushed") };
    let told = row(&one, TaskState::Done, Some(report));
    assert_eq!(work::standing(&mine, Some(&told), &node), Standing::Settled, "the answer was lost, not the word");
    assert_eq!(next(&mine, Standing::Settled, &reached), work::Step::Forget);
    let other = row(&one, TaskState::Done, Some(&said(Some("c9"))));
    assert_eq!(work::standing(&mine, Some(&other), &node), Standing::Lost);
}

fn perform_one() -> NewTask {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    perform(&mut state, &[]).swap_remove(0)
}

#[test]
fn a_seat_is_left_before_the_lease_ends_and_a_new_one_is_merciful() {
    let mut seat = Seat::default();
    assert_eq!(seat.epoch(NOW), None);
    seat.answered(NOW, Some(3));
    assert_eq!((seat.epoch(NOW), seat.reclaims(NOW)), (Some(3), false));
    assert_eq!(seat.epoch(NOW + ACT), None, "nothing is begun that could end after the lease");
    let mut now = NOW;
    while !seat.reclaims(now) {
        now = now + Duration::from_secs(5);
        seat.answered(now, Some(3));
        assert!(now.since(NOW) <= AMNESTY);
    }
    assert_eq!(now.since(NOW), AMNESTY);
    seat.answered(now, Some(4));
    assert!(!seat.reclaims(now), "a new office, a new amnesty");
    seat.answered(now, None);
    assert_eq!((seat.epoch(now), seat.granted()), (None, None));
}
