//! What is set right, what stays untouched, and what is reported only once.

use super::*;
use crate::ids::Fence;
use crate::mesh::budget::SILENT;
use crate::mesh::tests::{board, perform, state};
use crate::mesh::{End, OpenTask};
use crate::op::{NewTask, Trust};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const NOW: Time = Time(1_000_000_000);

/// A hub as a leader sees it.
struct Hub {
    loops: BTreeMap<LoopId, Known>,
    rows: Vec<TaskRow>,
    nodes: Vec<Sign>,
    now: Time,
}

impl Hub {
    /// A loop that goes on with two tasks, and one that is over.
    fn new() -> Self {
        let mut open = state();
        open.judge("c0".to_owned(), board(&["b"]));
        assert_eq!(perform(&mut open, &[]).len(), 2, "k3f9-1 and k3f9-2");
        let loops = BTreeMap::from([
            (open.id.clone(), Known::of(open)),
            (LoopId::new("over"), Known::of(MeshLoop { ended: Some(End::Stopped), ..state() })),
            (LoopId::new("odd"), Known::Unreadable),
        ]);
        let nodes = vec![sign("n1", NOW), sign("n2", NOW)];
        Self { loops, rows: Vec::new(), nodes, now: NOW }
    }

    fn plan(&self, reconcile_notes: &ReconcileNotes) -> ReconcilePlan {
        let leader_term = LeaderTerm { node: NodeId::new("n1"), term: 7 };
        let timeouts = ReconcileTimeouts::new(|real| real);
        let (loops, rows, nodes) = (&self.loops, &self.rows[..], &self.nodes[..]);
        plan(reconcile_notes, &ReconcileView { leader_term: &leader_term, loops, rows, nodes, timeouts, now: self.now })
    }

    /// What is done about only these tasks.
    fn remedies(mut self, rows: Vec<TaskRow>) -> Vec<(String, Remedy)> {
        self.rows = rows;
        let repairs = self.plan(&ReconcileNotes::default()).repairs;
        repairs.into_iter().map(|repair| (repair.task.to_string(), repair.remedy)).collect()
    }
}

fn sign(node: &str, seen_at: Time) -> Sign {
    let next = Some(seen_at + 5 * SECOND);
    Sign { node: NodeId::new(node), seen_at, next, leaves: false, drains: false, holds: 0 }
}

fn row(id: &str, owner: Option<&str>, state: TaskState, since: Duration) -> TaskRow {
    let task = NewTask {
        id: TaskId::new(id),
        owner: owner.map(LoopId::new),
        kind: "batch".to_owned(),
        title: String::new(),
        prompt: String::new(),
        priority: 0,
        deps: Vec::new(),
        author: String::new(),
        trust: Trust::Operator,
        ready_at: Time(0),
    };
    let at = NOW - since;
    TaskRow { task, state, fence: Fence(3), failures: 0, result: None, created_at: at, updated_at: at }
}

fn held(by: &str, over_for: Duration) -> TaskState {
    TaskState::Leased { node: NodeId::new(by), until: NOW - over_for }
}

#[test]
fn what_no_open_loop_looks_after_is_set_right_when_its_time_is_over() {
    let queued = |id: &str, owner, minutes| row(id, owner, TaskState::Queued, minutes * MINUTE);
    let leased = |id: &str, owner, minutes| row(id, owner, held("n1", minutes * MINUTE), DAY);
    let rows = vec![
        queued("over", Some("over"), 15),
        queued("gone", Some("nobody"), 15),
        queued("k3f9-9", Some("k3f9"), 15),
        leased("claim", Some("over"), 10),
        leased("k3f9-8", Some("k3f9"), 10),
        row("silent", None, held("n9", 10 * MINUTE), DAY),
    ];
    let expected = [
        ("over", Remedy::End),
        ("gone", Remedy::End),
        ("k3f9-9", Remedy::End),
        ("claim", Remedy::End),
        ("k3f9-8", Remedy::GiveBack),
        ("silent", Remedy::GiveBack),
    ];
    assert_eq!(Hub::new().remedies(rows), expected.map(|(id, remedy)| (id.to_owned(), remedy)));
    let left_alone = vec![
        // Not yet.
        queued("over", Some("over"), 14),
        leased("claim", Some("over"), 9),
        // The loop looks after them itself.
        queued("k3f9-1", Some("k3f9"), 60),
        leased("k3f9-2", Some("k3f9"), 60),
        // Belongs to no loop, or to an unreadable one.
        queued("own", None, 60),
        leased("own", None, 60),
        queued("new", Some("odd"), 60),
        leased("new", Some("odd"), 60),
        row("over", Some("over"), TaskState::Blocked, DAY),
        row("over", Some("over"), TaskState::Done, DAY),
    ];
    assert_eq!(Hub::new().remedies(left_alone), []);
}

#[test]
fn a_run_is_one_batch_under_the_epoch_with_one_sentence_and_fences() {
    let mut hub = Hub::new();
    hub.rows = vec![
        row("over-1", Some("over"), TaskState::Queued, DAY),
        row("over-2", Some("over"), held("n2", DAY), DAY),
        row("k3f9-8", Some("k3f9"), held("n2", DAY), DAY),
        row("silent", None, held("n9", DAY), DAY),
    ];
    hub.rows[0].task.deps = vec![TaskId::new("other")];
    let mut plan = hub.plan(&ReconcileNotes::default());
    plan.leave_out(&TaskId::new("silent"));
    let said = "reconciled: 1 claims without a holder given back, 2 tasks ended that no loop wants";
    assert_eq!(plan.said(), [said]);
    let leader_term = LeaderTerm { node: NodeId::new("n1"), term: 7 };
    let batch = plan.batch(&leader_term, 4);
    assert!(matches!(&batch[0], Op::Lead { term: 7, .. }), "{batch:?}");
    assert!(matches!(&batch[1], Op::Amend { change: Amendment::Cancel, .. }), "it waits for another: {batch:?}");
    let Op::Take { fence, .. } = &batch[2] else { panic!("{batch:?}") };
    let Op::Finish { fence: same, state: TaskEnd::Dead, result, .. } = &batch[3] else { panic!("{batch:?}") };
    assert_eq!((*fence, *same), (Fence(4), Fence(4)));
    assert_eq!(TaskReport::read(result).expect("it can be read").why, "its loop is over");
    assert!(matches!(&batch[4..6], [Op::Take { .. }, Op::Release { failed: false, .. }]), "{batch:?}");
    let [Op::SaveDoc { version: 4, .. }, Op::Append { events, .. }] = &batch[6..] else { panic!("{batch:?}") };
    assert_eq!(events, &[Event::Note { text: said.to_owned() }]);
    assert!(Hub::new().plan(&ReconcileNotes::default()).is_empty(), "a run with nothing to do writes nothing");
}

#[test]
fn a_person_is_asked_once_about_work_that_nobody_takes_for_a_day() {
    let mut hub = Hub::new();
    hub.nodes[1].drains = true;
    hub.nodes[0].holds = 2;
    hub.rows = vec![row("k3f9-1", Some("k3f9"), TaskState::Queued, 1439 * MINUTE)];
    assert!(hub.plan(&ReconcileNotes::default()).is_empty(), "not yet");
    hub.rows[0].updated_at = NOW - DAY;
    hub.rows[0].task.ready_at = NOW - MINUTE;
    assert!(hub.plan(&ReconcileNotes::default()).is_empty(), "it was not to be taken before");
    hub.rows[0].task.ready_at = Time(0);
    let asked = hub.plan(&ReconcileNotes::default());
    let [Op::OpenTicket { key, text, owner: Some(owner) }] = &asked.tickets[..] else { panic!("{asked:?}") };
    assert_eq!((key.as_str(), owner.as_str()), ("stalled:k3f9", "k3f9"));
    assert_eq!(crate::outbound::tickets::severity(key), crate::outbound::tickets::Severity::Critical);
    let why = "nothing is set aside for it, n1 holds 2, n2 takes nothing more;";
    assert!(text.starts_with(&format!("no node takes task k3f9-1 of loop k3f9 for 24h: {why}")), "{text}");
    assert!(asked.repairs.is_empty(), "what somebody may want is never ended");
    assert_eq!(asked.said(), ["reconciled: 1 loops with tasks that no node takes"]);
    hub.now = NOW + 30 * SECOND;
    assert!(hub.plan(&asked.reconcile_notes).is_empty(), "an answer is not followed by the same question");
    let taken = Hub { rows: Vec::new(), ..hub }.plan(&asked.reconcile_notes);
    assert!(matches!(&taken.tickets[..], [Op::CloseTicket { key, .. }] if key == "stalled:k3f9"), "{taken:?}");
    assert!(Hub::new().plan(&taken.reconcile_notes).is_empty());
    let mut nobody = Hub::new();
    nobody.rows = vec![row("k3f9-1", Some("k3f9"), TaskState::Queued, DAY)];
    nobody.nodes.iter_mut().for_each(|sign| *sign = Sign { next: None, seen_at: Time(0), ..sign.clone() });
    assert!(nobody.plan(&ReconcileNotes::default()).is_empty(), "nobody was there who could");
}

#[test]
fn a_silence_and_its_end_are_said_once_whoever_supervises() {
    let mut hub = Hub::new();
    hub.now = NOW + 50 * SECOND;
    assert!(hub.plan(&ReconcileNotes::default()).is_empty(), "45 s after the promise it may still come");
    hub.now = NOW + 51 * SECOND;
    hub.nodes[0].seen_at = hub.now;
    hub.nodes[0].next = Some(hub.now + 5 * SECOND);
    let missed = hub.plan(&ReconcileNotes::default());
    assert_eq!(missed.said(), ["node n2 is silent for 51s; its heartbeat was due 46s ago"]);
    let body = serde_json::to_string(&missed.reconcile_notes).expect("it is plain data");
    let reconcile_notes = ReconcileNotes::read(&body).expect("the next supervisor reads it");
    hub.now = NOW + DAY;
    hub.nodes[0] = sign("n1", hub.now);
    assert!(hub.plan(&reconcile_notes).is_empty());
    hub.now = NOW - DAY;
    assert!(hub.plan(&reconcile_notes).is_empty(), "a clock that was set back ends no silence");
    hub.now = NOW + DAY;
    hub.nodes[1] = sign("n2", hub.now);
    let heard = hub.plan(&reconcile_notes);
    assert_eq!(heard.said(), ["node n2 is back, after 24h"]);
    assert!(hub.plan(&heard.reconcile_notes).is_empty());
    hub.nodes[1].leaves = true;
    hub.now = NOW + 2 * DAY;
    hub.nodes[0] = sign("n1", hub.now);
    assert!(hub.plan(&heard.reconcile_notes).is_empty(), "who said that he goes promised nothing");
    hub.nodes.pop();
    assert!(hub.plan(&reconcile_notes).is_empty(), "one that was removed is not spoken of");
}

#[test]
fn what_a_node_says_of_itself_is_read_also_from_an_older_one() {
    let read = |info: &str| Sign::read(NodeId::new("n1"), NOW, info);
    let said = r#"{"holds":["k-1","k-2"],"draining":true,"next_beat":1005,"leaving":false}"#;
    let expected =
        Sign { node: NodeId::new("n1"), seen_at: NOW, next: Some(Time(1005)), leaves: false, drains: true, holds: 2 };
    assert_eq!(read(said), expected);
    let wrong = Sign { next: Some(Time(0)), ..sign("n1", NOW) };
    assert_eq!(wrong.missed(DOWN, NOW + DOWN), None, "its clock was wrong, and it was just heard");
    assert_eq!(read("").missed(Duration::ZERO, NOW + DAY), None, "it promised nothing");
    assert!(ReconcileNotes::read(r#"{"version":1}"#).is_ok_and(|reconcile_notes| reconcile_notes.silent.is_empty()));
    assert!(ReconcileNotes::read(r#"{"version":2}"#).is_err_and(|error| error.contains("newer")));
}

#[test]
fn what_a_loop_that_is_over_had_set_aside_is_settled_after_a_day() {
    let mut state = state();
    state.spec.wanted.guard.budget.calls = Some(10);
    assert_eq!(state.settles_at(), None);
    for (fence, at) in [(1, NOW), (2, NOW + MINUTE)] {
        state.reserve(&TaskId::new("k3f9-1"), Fence(fence), at).expect("there is enough");
    }
    // A task that was open when the loop ended is still listed.
    state.open.push(OpenTask { task: TaskId::new("k3f9-1"), check: "a".to_owned() });
    state.ended = Some(End::Stopped);
    assert_eq!(Known::of(state.clone()), Known::Over(Some(NOW + MINUTE + SILENT)));
    let lost = state.reservations[0].most.calls.expect("calls are limited");
    let report = TaskReport { turns: 1, ..TaskReport::nothing(&NodeId::new("n2"), Fence(2), "") };
    state.settle(&[], &[(TaskId::new("k3f9-1"), report)], NOW + DAY + MINUTE);
    assert_eq!(
        (state.spent.calls, state.reservations.len()),
        (lost + 1, 0),
        "one said what it used, the other used all"
    );
}
