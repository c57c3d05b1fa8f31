//! The rules of the mesh one by one; all of them together are simulated elsewhere.

use std::time::Duration;

use super::leader::{self, LeaderStep};
use super::leader_lease::{ACT, AMNESTY, LeaderLease};
use super::work::{self, ClaimState, Held, Local, Stage};
use super::*;
use crate::op::{Amendment, TaskEnd, TaskRow, TaskState, Trust};
use crate::scoreboard::{CheckResult, Verdict};
use crate::spec::{AgentSpec, Bounds, CheckSpec, GuardSpec, Integrate, WorkspaceMode, WorkspaceSpec};

const NOW: Time = Time(1_000);

pub(super) fn board(passing: &[&str]) -> Scoreboard {
    let row = |name: &str| CheckResult {
        name: name.to_owned(),
        verdict: if passing.contains(&name) { Verdict::Pass } else { Verdict::Fail },
        weight: 1,
        millis: 1,
        output: format!("{name} says no"),
        fingerprint: 0,
        reference: None,
    };
    Scoreboard(["a", "b", "c"].into_iter().map(row).collect())
}

pub(super) fn state() -> MeshLoop {
    let check = |name: &str| CheckSpec {
        name: name.to_owned(),
        run: format!("test -f {name}"),
        timeout: Duration::from_secs(60),
        weight: 1,
        pin: String::new(),
        proof: crate::test_evidence::Proof::default(),
        parallel: false,
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
            judge: crate::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: crate::spec::CommitAuthor::Everloop,
            origin: None,
        },
        bounds: Bounds::default(),
        guard: GuardSpec::default(),
        watch: crate::watch::WatchSpec::default(),
        isolation: crate::isolation::IsolationSpec::default(),
        research: None,
        persona: None,
        routes: Vec::new(),
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

pub(super) fn row(task: &NewTask, state: TaskState, report: Option<&TaskReport>) -> TaskRow {
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

fn said(commit: Option<&str>) -> TaskReport {
    TaskReport {
        node: NodeId::new("n1"),
        reached: commit.is_some(),
        commit: commit.map(str::to_owned),
        reference: None,
        turns: 1,
        microusd: 0,
        tokens: 0,
        fence: Fence(1),
        short: false,
        why: "it did not".to_owned(),
        experiment: None,
    }
}

/// Takes the steps that need no other node; gives the tasks it made.
pub(super) fn perform(state: &mut MeshLoop, rows: &[TaskRow]) -> Vec<NewTask> {
    let made = |op| if let Op::Enqueue(task) = op { Some(task) } else { None };
    leader::plan(state, rows, &[], false, NOW).ops.into_iter().filter_map(made).collect()
}

#[test]
fn failing_checks_become_tasks_as_far_as_the_width_goes_and_each_has_one() {
    let mut state = state();
    assert_eq!(leader::next(&state, &[], false, NOW), [LeaderStep::Judge]);
    assert_eq!(leader::next(&state, &[], true, NOW), []);
    state.judge("c0".to_owned(), board(&["b"]));
    let made = perform(&mut state, &[]);
    assert_eq!(made.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["k3f9-1", "k3f9-2"]);
    assert!(made[0].prompt.contains("> a says no") && made[0].trust == Trust::Operator, "{}", made[0].prompt);
    assert_eq!(leader::next(&state, &[], false, NOW), [], "both checks have their task");
    assert_eq!(state.check_of(&made[1].id), Some("c"));
}

#[test]
fn one_result_at_a_time_is_merged_and_what_came_to_nothing_is_told_to_the_next() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&["b"]));
    let made = perform(&mut state, &[]);
    let done = [0, 1].map(|i| row(&made[i], TaskState::Done, Some(&said(Some("c1")))));
    let steps = leader::next(&state, &done, false, NOW);
    assert!(matches!(&steps[..], [LeaderStep::Integrate { task, .. }] if *task == made[0].id), "{steps:?}");
    assert_eq!(leader::next(&state, &done, true, NOW), [], "one at a time");
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
    let end = leader::next(&state, &[dead], false, NOW);
    assert_eq!(end, [LeaderStep::End(End::GivenUp { checks: vec!["c".to_owned()] })], "two attempts were allowed");
    state.judge("m2".to_owned(), board(&["a", "b", "c"]));
    assert_eq!(leader::next(&state, &[], false, NOW), [LeaderStep::End(End::Reached)]);
    state.stop = true;
    assert_eq!(leader::next(&state, &[], false, NOW), [LeaderStep::End(End::Stopped)]);
    state.ended = Some(End::Stopped);
    assert_eq!(leader::next(&state, &[], false, NOW), []);
}

#[test]
fn a_loop_that_ends_leaves_nobody_at_work_and_is_written_under_its_epoch() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let leased = TaskState::Leased { node: NodeId::new("n2"), until: Time(0) };
    let rows = [row(&tasks[0], leased, None), row(&tasks[1], TaskState::Done, Some(&said(Some("c1"))))];
    state.stop = true;
    let plan = leader::plan(&mut state, &rows, &[], false, NOW);
    assert_eq!(plan.ops, [Op::Amend { task: tasks[0].id.clone(), change: Amendment::Cancel }], "what is done is done");
    assert_eq!((plan.notes, plan.action_run), (vec!["ended: it was stopped".to_owned()], None));
    let leader_term = leader::LeaderTerm { node: NodeId::new("n1"), term: 7 };
    let batch = leader_term.batch(state.save(3, &[]));
    assert!(matches!(&batch[..], [Op::Lead { term: 7, .. }, Op::SaveDoc { version: 3, .. }]));
    let [Op::Lead { .. }, Op::Take { fence: Fence(5), .. }, Op::Release { fence: Fence(5), failed: false, .. }] =
        &leader_term.take_back(&tasks[0].id, Fence(4))[..]
    else {
        panic!("taken and given away in one batch")
    };
    let Op::SaveDoc { body, .. } = &batch[1] else { unreachable!("it was just seen") };
    assert_eq!(MeshLoop::read(body), Ok(state));
    let said = |version: &str| body.replacen("\"version\":3", &format!("\"version\":{version}"), 1);
    assert!(MeshLoop::read(&said("5")).is_err_and(|why| why.contains("newer")));
    let anew = |state: MeshLoop| state.version == WITHOUT_RESEARCH;
    assert!(MeshLoop::read(&said("1")).is_ok_and(anew), "an older one is written anew");
    let mut run = self::state();
    run.spec.wanted.research = Some(Box::new(crate::research::tests_support::research()));
    let run = MeshLoop::new(run.id, run.name, run.spec, NOW);
    assert_eq!(run.version, VERSION, "a node that does not know research runs refuses it");
}

#[test]
fn only_work_that_helps_and_breaks_nothing_is_accepted() {
    assert_eq!(accept(&board(&["b"]), &board(&["a", "b"]), "a"), Ok(()));
    assert!(accept(&board(&["b"]), &board(&["a"]), "a").is_err_and(|why| why.ends_with("before: b")));
    assert!(accept(&board(&["b"]), &board(&["b"]), "a").is_err_and(|why| why.contains("`a` has the verdict fail")));
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
    assert_eq!(
        work::pick(&node, &[], &rows, 5, NOW),
        [(tasks[0].id.clone(), Fence(2))],
        "an old lease is not its business"
    );
    assert_eq!(work::pick(&node, &[], &rows, 0, NOW), []);
    let own = Held { task: tasks[0].id.clone(), alone: true, ..held(2) };
    assert_eq!(work::pick(&node, &[own], &rows, 5, NOW), [], "what waits to be told is not begun again");
    assert_eq!(work::pick(&node, &[], &rows, 5, Time(0)), [], "it is not due yet");
    assert_eq!(leader::overdue(&rows, Time(0)), [(tasks[1].id.clone(), Fence(1))]);
    let spec = work::local_spec(&state, &rows[0], Fence(1), 1).unwrap();
    assert_eq!(spec.checks.len(), 1, "its own check; none passes yet");
    assert_eq!(spec.bounds.max_turns, Some(3));
    state.judge("c1".to_owned(), board(&["c"]));
    assert_eq!(
        work::local_spec(&state, &rows[0], Fence(1), 1).unwrap().checks.len(),
        2,
        "and what passes must not break"
    );
}

#[test]
fn what_a_node_does_depends_on_what_the_hub_says() {
    let held = held(2);
    let pushed =
        |reached| Held { stage: Stage::Pushed { report: TaskReport { reached, ..said(Some("c1")) } }, ..held.clone() };
    let reached = Local::Over { reached: true };
    let next = |held: &Held, standing, local: &Local| work::next(held, standing, local, &view(0));
    assert_eq!(next(&held, ClaimState::Mine, &Local::Missing), work::WorkStep::Begin);
    assert_eq!(next(&held, ClaimState::Unknown, &Local::Missing), work::WorkStep::Wait, "nothing begins on a guess");
    assert_eq!(
        next(&held, ClaimState::Unknown, &Local::Running),
        work::WorkStep::Wait,
        "a turn is not stopped on a guess"
    );
    assert_eq!(next(&held, ClaimState::Lost, &Local::Running), work::WorkStep::Stop);
    assert_eq!(next(&held, ClaimState::Never, &Local::Missing), work::WorkStep::Forget);
    let work::WorkStep::Tell(nothing) = next(&held, ClaimState::Lost, &Local::Missing) else {
        panic!("nothing was used")
    };
    assert!(matches!(&nothing[..], [Op::Shelve { fence: Fence(2), .. }]));
    assert_eq!(
        next(&held, ClaimState::Lost, &reached),
        work::WorkStep::Push { reached: true },
        "work is never thrown away"
    );
    let told = |held: &Held, standing, failures| match work::next(held, standing, &reached, &view(failures)) {
        work::WorkStep::Tell(ops) => ops,
        other => panic!("{other:?}"),
    };
    let [Op::Finish { state: TaskEnd::Done, .. }] = told(&pushed(true), ClaimState::Mine, 0)[..] else {
        panic!("it counts")
    };
    let [Op::Shelve { .. }] = told(&pushed(true), ClaimState::Lost, 0)[..] else { panic!("it does not count") };
    assert_eq!(next(&pushed(true), ClaimState::Unknown, &reached), work::WorkStep::Wait);
    let dead = |failures| match &told(&pushed(false), ClaimState::Mine, failures)[..] {
        [Op::Shelve { .. }, Op::Release { failed: true, ready_at: NOW, .. }] => false,
        [Op::Shelve { .. }, Op::Finish { state: TaskEnd::Dead, .. }, Op::OpenTicket { .. }] => true,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 2, 3].map(dead), [false, false, true, true]);
    let only_here = |failures| match work::next(
        &pushed(false),
        ClaimState::Mine,
        &reached,
        &work::View { elsewhere: false, ..view(failures) },
    ) {
        work::WorkStep::Tell(ops) => ops.len() == 3,
        other => panic!("{other:?}"),
    };
    assert_eq!([2, 4, 5].map(only_here), [false, false, true], "perhaps it is this machine");
    let node = NodeId::new("n1");
    let one = perform_one();
    let mine = Held { task: one.id.clone(), fence: Fence(1), ..pushed(true) };
    let task = row(&one, TaskState::Leased { node: node.clone(), until: Time(0) }, None);
    assert_eq!(work::standing(&mine, Some(&task), &node), ClaimState::Mine, "also past its end, while nobody took it");
    assert_eq!(work::standing(&held, Some(&task), &node), ClaimState::Never, "a fence that was not given yet");
    assert_eq!(work::standing(&mine, None, &node), ClaimState::Never);
    assert_eq!(work::standing(&mine, Some(&task), &NodeId::new("n2")), ClaimState::Never, "another has it");
    let past = TaskRow { fence: Fence(2), ..task.clone() };
    assert_eq!(work::standing(&mine, Some(&past), &node), ClaimState::Lost, "another fence");
    let Stage::Pushed { report } = &mine.stage else { unreachable!("it was just pushed") };
    let told = row(&one, TaskState::Done, Some(report));
    assert_eq!(work::standing(&mine, Some(&told), &node), ClaimState::Settled, "the answer was lost, not the word");
    assert_eq!(next(&mine, ClaimState::Settled, &reached), work::WorkStep::Forget);
    let other = row(&one, TaskState::Done, Some(&said(Some("c9"))));
    assert_eq!(work::standing(&mine, Some(&other), &node), ClaimState::Lost);
}

fn held(fence: u64) -> Held {
    let (task, owner) = (TaskId::new("k3f9-1"), LoopId::new("k3f9"));
    Held { task, fence: Fence(fence), owner, stage: Stage::Working, alone: false }
}

#[test]
fn a_result_that_waits_for_the_hub_does_not_keep_its_node_idle() {
    let report = TaskReport::nothing(&NodeId::new("n1"), Fence(1), "");
    let told_later = Held { stage: Stage::Pushed { report }, ..held(1) };
    assert_eq!(work::room(1, std::slice::from_ref(&told_later)), 1);
    assert_eq!(work::room(1, &[told_later, held(2)]), 0);
    assert_eq!(work::room(1, &[held(1), held(2)]), 0, "never below zero");
}

fn view(failures: u32) -> work::View<'static> {
    static NODE: std::sync::LazyLock<NodeId> = std::sync::LazyLock::new(|| NodeId::new("n1"));
    work::View { node: &NODE, failures, elsewhere: true, again_at: NOW }
}

pub(super) fn perform_one() -> NewTask {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    perform(&mut state, &[]).swap_remove(0)
}

#[test]
fn a_seat_is_left_before_the_lease_ends_and_a_new_one_is_merciful() {
    let mut leader_lease = LeaderLease::default();
    assert_eq!(leader_lease.term(NOW), None);
    leader_lease.answered(NOW, Some(3));
    assert_eq!((leader_lease.term(NOW), leader_lease.reclaims(NOW)), (Some(3), false));
    assert_eq!(leader_lease.term(NOW + ACT), None, "nothing is begun that could end after the lease");
    let mut now = NOW;
    while !leader_lease.reclaims(now) {
        now = now + Duration::from_secs(5);
        leader_lease.answered(now, Some(3));
        assert!(now.since(NOW) <= AMNESTY);
    }
    assert_eq!(now.since(NOW), AMNESTY);
    leader_lease.answered(now, Some(4));
    assert!(!leader_lease.reclaims(now), "a new term, a new grace period");
    leader_lease.answered(now, None);
    assert_eq!((leader_lease.term(now), leader_lease.granted()), (None, None));
}

#[test]
fn what_was_begun_without_the_hub_counts_when_nobody_else_has_it() {
    let node = NodeId::new("n1");
    let task = perform_one();
    let alone = Held { alone: true, ..held(2) };
    assert_eq!(alone.reference(&node), "refs/everloop/k3f9/k3f9-1/2-n1", "another may have the same fence");
    let next = |held: &Held, standing, local: &Local| work::next(held, standing, local, &view(0));
    assert_eq!(next(&alone, ClaimState::Unknown, &Local::Missing), work::WorkStep::Begin);
    assert_eq!(next(&alone, ClaimState::Unknown, &Local::Running), work::WorkStep::Wait);
    let free = row(&task, TaskState::Queued, None);
    assert_eq!(work::standing(&alone, Some(&free), &node), ClaimState::Free(Fence(2)));
    assert_eq!(work::standing(&held(1), Some(&free), &node), ClaimState::Lost, "it was taken from it");
    assert_eq!(next(&alone, ClaimState::Free(Fence(2)), &Local::Running), work::WorkStep::Claim);
    assert_eq!(next(&alone, ClaimState::Mine, &Local::Running), work::WorkStep::Adopt);
    assert_eq!(
        next(&alone, ClaimState::Free(Fence(3)), &Local::Running),
        work::WorkStep::Wait,
        "it came back meanwhile"
    );
    assert_eq!(next(&alone, ClaimState::Lost, &Local::Running), work::WorkStep::Stop);
    let pushed = |reached| Held {
        stage: Stage::Pushed { report: TaskReport { reached, ..said(Some("c1")) } },
        alone: true,
        ..held(2)
    };
    let told = |held: &Held, standing| match next(held, standing, &Local::Over { reached: true }) {
        work::WorkStep::Tell(ops) => ops,
        other => panic!("{other:?}"),
    };
    let [Op::Take { fence: Fence(5), .. }, Op::Finish { fence: Fence(5), state: TaskEnd::Done, .. }] =
        &told(&pushed(true), ClaimState::Free(Fence(5)))[..]
    else {
        panic!("the first result counts, whatever happened to the task before")
    };
    let [Op::Shelve { fence: Fence(2), .. }] = &told(&pushed(false), ClaimState::Free(Fence(5)))[..] else {
        panic!("an attempt of which the hub knew nothing is no failure of the task")
    };
    let [Op::Shelve { .. }] = &told(&pushed(true), ClaimState::Lost)[..] else { panic!("somebody else has it") };
    let Stage::Pushed { report } = pushed(true).stage else { unreachable!("it was just pushed") };
    let done = TaskRow { fence: Fence(5), ..row(&task, TaskState::Done, Some(&report)) };
    assert_eq!(work::standing(&pushed(true), Some(&done), &node), ClaimState::Settled, "under another fence");
}

#[test]
fn nodes_without_a_hub_begin_all_that_is_free_and_nothing_twice() {
    let mut state = state();
    state.spec.width = 3;
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let members = ["n1", "n2", "n3", "n4"].map(NodeId::new).to_vec();
    let queued = |task| TaskRow { fence: Fence(0), ..row(task, TaskState::Queued, None) };
    let mut free: Vec<TaskRow> = tasks.iter().map(queued).collect();
    let leased = TaskState::Leased { node: NodeId::new("n9"), until: Time(0) };
    free[2].state = leased;
    let replica = offline::Replica { members: members.clone(), free, loops: vec![state] };
    let begun = |replica: &offline::Replica| -> Vec<String> {
        let pick = |node: &NodeId| replica.pick(node, &[], 9, NOW);
        let mut all: Vec<String> = replica.members.iter().flat_map(pick).map(|held| held.key()).collect();
        all.sort();
        all
    };
    assert_eq!(begun(&replica), ["k3f9-1.1", "k3f9-2.1"], "each by one of them; what is held is left alone");
    let owner = members.iter().find(|node| replica.pick(node, &[], 9, NOW).iter().any(|h| h.task == tasks[0].id));
    let has = Held { task: tasks[0].id.clone(), ..held(1) };
    assert!(replica.pick(owner.unwrap(), &[has], 9, NOW).iter().all(|held| held.task != tasks[0].id), "it has it");
    let without = |change: fn(&mut MeshLoop)| {
        let mut replica = replica.clone();
        change(&mut replica.loops[0]);
        begun(&replica)
    };
    assert_eq!(without(|state| state.stop = true), [""; 0]);
    assert_eq!(without(|state| state.judged = None), [""; 0], "what must not break is not known");
    assert_eq!(without(|state| state.reservations.clear()), [""; 0], "nothing was set aside");
    let turns: Vec<u64> = members.iter().map(|node| replica.turn_of(node).as_secs()).collect();
    assert_eq!(turns, [0, 6, 12, 18], "a free task is taken within half a minute, whoever is left");
    let mut line = offline::Line::default();
    for at in [0, 5, 14] {
        line.failed(NOW + Duration::from_secs(at));
    }
    assert!(line.is_broken() && !line.is_away(NOW + Duration::from_secs(14)), "perhaps it only starts anew");
    assert!(line.is_away(NOW + Duration::from_secs(15)));
    assert!(line.answered(NOW + Duration::from_secs(16)) && !line.is_away(NOW + Duration::from_secs(90)));
}

#[test]
fn an_attempt_is_made_from_the_loop_and_not_from_the_row_of_its_task() {
    let mut state = state();
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let mut row = row(&tasks[0], TaskState::Leased { node: NodeId::new("n1"), until: NOW }, None);
    let honest = work::local_spec(&state, &row, Fence(1), 1).expect("it has a reservation");
    assert!(honest.goal.len() > state.spec.wanted.goal.len(), "it says what the task is about");
    for text in [&mut row.task.prompt, &mut row.task.title, &mut row.task.author, &mut row.task.kind] {
        "do as I say".clone_into(text);
    }
    assert_eq!(work::local_spec(&state, &row, Fence(1), 1), Some(honest));
}

#[test]
fn what_attempts_may_use_together_is_never_more_than_the_budget() {
    let mut state = state();
    state.spec.wanted.guard.budget.calls = Some(5);
    state.spec.wanted.guard.budget.microusd = Some(1_000);
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let reserved = |state: &MeshLoop, task: &NewTask, fence| {
        state.reservation(&task.id, Fence(fence)).map(|b| (b.calls, b.microusd))
    };
    assert_eq!(reserved(&state, &tasks[0], 1), Some((Some(3), Some(500))), "a fair part for each");
    assert_eq!(reserved(&state, &tasks[1], 1), Some((Some(2), Some(500))), "what is left");
    let rows = [row(&tasks[0], TaskState::Leased { node: NodeId::new("n1"), until: NOW }, None)];
    assert_eq!(work::local_spec(&state, &rows[0], Fence(1), 1).unwrap().guard.budget.microusd, Some(500));
    assert_eq!(work::local_spec(&state, &rows[0], Fence(2), 1), None, "nothing is begun on credit");
    // It failed after one turn for 100, and is free again; the other one is silent.
    let failed = TaskReport { microusd: 100, ..said(None) };
    let late = [(tasks[0].id.clone(), failed)];
    let again = [row(&tasks[0], TaskState::Queued, None), row(&tasks[1], rows[0].state.clone(), None)];
    let plan = leader::plan(&mut state, &again, &late, false, NOW);
    assert!(plan.changed && plan.ops.is_empty(), "{plan:?}");
    assert_eq!(state.spent, Spend { calls: 1, tokens: 0, microusd: 100 });
    assert_eq!(reserved(&state, &tasks[0], 2), Some((Some(2), Some(400))));
    assert_eq!(state.used(), Spend { calls: 5, tokens: 0, microusd: 1_000 });
    assert!(!leader::plan(&mut state, &again, &late, false, NOW).changed, "a report counts once");
    // Both use up what they have.
    let all = |fence, microusd| TaskReport { turns: 2, microusd, fence: Fence(fence), ..said(None) };
    let late = [(tasks[0].id.clone(), all(2, 400)), (tasks[1].id.clone(), all(1, 500))];
    let again = [1, 0].map(|i| TaskRow { fence: Fence(2), ..row(&tasks[i], TaskState::Queued, None) });
    let plan = leader::plan(&mut state, &again, &late, false, NOW);
    assert_eq!(state.ended, Some(End::Exhausted { bound: "calls".to_owned() }));
    assert!(matches!(&plan.ops[..], [Op::Amend { .. }, Op::Amend { .. }, Op::OpenTicket { .. }]), "{:?}", plan.ops);
}

#[test]
fn caps_hold_over_all_machines_in_every_window() {
    let mut state = state();
    state.spec.wanted.guard.caps.per_hour = Some(4);
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let calls = |state: &MeshLoop, i: usize, fence| state.reservation(&tasks[i].id, Fence(fence)).map(|b| b.calls);
    assert_eq!((calls(&state, 0, 1), calls(&state, 1, 1)), (Some(Some(3)), Some(Some(1))), "one is left of four");
    let later = |minutes: u64| NOW + Duration::from_secs(60 * minutes);
    let report = TaskReport { turns: 2, short: true, ..said(None) };
    let late = [(tasks[0].id.clone(), report)];
    let queued = [row(&tasks[0], TaskState::Queued, None)];
    leader::plan(&mut state, &queued, &late, false, later(10));
    assert_eq!(calls(&state, 0, 2), Some(Some(1)), "two were made, one may be made by the other");
    let late = [(tasks[0].id.clone(), TaskReport { fence: Fence(2), ..late[0].1.clone() })];
    let queued = [TaskRow { fence: Fence(2), ..queued[0].clone() }];
    leader::plan(&mut state, &queued, &late, false, later(20));
    let waits = state.waits.clone().unwrap();
    assert_eq!((waits.rule.as_str(), waits.until), ("guard.cap", Some(later(70))));
    assert!(!leader::plan(&mut state, &queued, &late, false, later(69)).changed, "nothing to say in between");
    leader::plan(&mut state, &queued, &late, false, later(70));
    assert_eq!((calls(&state, 0, 3), &state.waits), (Some(Some(1)), &None));
    // A node without any further sign of life has used its reservation, which comes back when it is
    // out of the window.
    state.refuse(&tasks[1].id, "cancelled");
    leader::plan(&mut state, &queued, &late, false, NOW + budget::SILENT);
    assert_eq!(state.spent.calls, 2 + 2 + 1);
}

#[test]
fn what_was_lent_to_a_machine_that_never_comes_back_does_not_keep_its_task_waiting_for_ever() {
    let mut state = state();
    state.spec.wanted.guard.budget.calls = Some(1);
    state.judge("c0".to_owned(), board(&[]));
    let tasks = perform(&mut state, &[]);
    let row = |fence| TaskRow { fence: Fence(fence), ..row(&tasks[0], TaskState::Queued, None) };
    // It was taken under the first fence, and taken back under the second without a word.
    leader::plan(&mut state, &[row(2)], &[], false, NOW + Duration::from_secs(60));
    assert!(state.ended.is_none() && state.reservation(&tasks[0].id, Fence(3)).is_none(), "all is lent");
    leader::plan(&mut state, &[row(2)], &[], false, NOW + budget::SILENT);
    assert_eq!((state.spent.calls, &state.ended), (1, &Some(End::Exhausted { bound: "calls".to_owned() })));
}

#[test]
fn time_ends_a_loop_of_the_mesh_too() {
    let mut state = state();
    state.spec.wanted.bounds.max_time = Some(Duration::from_secs(60));
    assert_eq!(leader::next(&state, &[], true, NOW + Duration::from_secs(59)), []);
    let end = leader::next(&state, &[], true, NOW + Duration::from_secs(60));
    assert_eq!(end, [LeaderStep::End(End::Exhausted { bound: "time".to_owned() })]);
}
