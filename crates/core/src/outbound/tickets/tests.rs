//! Invariants of every notifier: reports within a minute, none when healthy, capped, quiet,
//! bounded.

use super::super::{REFUSALS, Record, Refusal, Undelivered};
use super::*;
use crate::jitter::mix;
use crate::reason::RuleId;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// A Monday at noon, UTC.
const NOON: Time = Time(1_700_000_000_000 - 1_700_000_000_000 % 86_400_000 + 43_200_000);

fn alert(id: u64, key: &str, opened_at: Time) -> Alert {
    Alert { id, key: key.to_owned(), owner: None, text: format!("text of {key}"), opened_at, acked: false }
}

fn settle(outbox: &mut Outbox, sent: &Delivery, result: &Result<(), Undelivered>, at: (&[Alert], Time, u64)) {
    let mut record = Record::Tickets(std::mem::take(outbox));
    assert!(record.settle(sent, result, at), "an outbox is stored after every attempt");
    let Record::Tickets(after) = record else { panic!("it stays what it is") };
    *outbox = after;
}

/// A notifier and its environment; time passes in seconds.
struct World {
    route: Route,
    outbox: Outbox,
    alerts: Vec<Alert>,
    now: Time,
    /// Whether the other side responds.
    up: bool,
    seed: u64,
    sent: Vec<(Time, Delivery)>,
    attempts: Vec<Time>,
}

impl World {
    fn new() -> Self {
        Self {
            route: Route::default(),
            outbox: Outbox::default(),
            alerts: Vec::new(),
            now: NOON,
            up: true,
            seed: 7,
            sent: Vec::new(),
            attempts: Vec::new(),
        }
    }

    fn quiet(mut self, text: &str) -> Self {
        self.route.quiet_hours = Some(QuietHours::parse(text).expect("a span"));
        self
    }

    fn open(&mut self, id: u64, key: &str) {
        self.alerts.push(alert(id, key, self.now));
    }

    /// The shell's steps: plan, write, send what is ready, write again; then sleep until the next
    /// wake.
    fn step(&mut self) -> Option<Time> {
        loop {
            let moment = LocalTime { now: self.now, local_minutes: 0 };
            let plan = plan(&self.alerts, &self.route, &self.outbox, moment);
            self.outbox = plan.outbox;
            assert!(self.outbox.queue.pending.len() <= BURST, "the queue is bounded");
            let Some(message) = self.outbox.queue.ready(self.now).first().cloned() else { return plan.wake_at };
            self.attempts.push(self.now);
            self.seed = mix(self.seed, 1);
            let result = if self.up { Ok(()) } else { Err(Undelivered::away("down")) };
            settle(&mut self.outbox, &message, &result, (&self.alerts, self.now, self.seed));
            if self.up {
                self.sent.push((self.now, message));
            }
        }
    }

    /// Lets time pass from wake to wake, as the shell sleeps.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.step().filter(|wake| *wake <= end) {
            assert!(wake > self.now, "a wake in the past would be a busy loop");
            self.now = wake;
        }
        self.now = end;
    }

    fn told(&self, id: u64) -> Vec<Time> {
        self.sent.iter().filter(|(_, m)| m.tickets.contains(&id)).map(|(at, _)| *at).collect()
    }
}

#[test]
fn nobody_is_told_when_all_is_well() {
    let mut world = World::new();
    world.run(HOUR * 24);
    assert!(world.sent.is_empty() && world.outbox == Outbox::default());
}

#[test]
fn a_cause_is_told_at_once_and_repeated_ever_more_seldom_up_to_a_cap() {
    let mut world = World::new();
    world.open(1, "question:k3f9:1");
    world.run(HOUR * 24 * 30);
    let gaps: Vec<u64> = world.told(1).windows(2).map(|w| w[1].since(w[0]).as_secs() / 60).collect();
    assert_eq!(world.told(1)[0], NOON);
    assert_eq!(gaps[..6], [15, 30, 60, 120, 240, 240]);
    assert_eq!(gaps.len(), REPEATS as usize);
    let keys: BTreeSet<&str> = world.sent.iter().map(|(_, m)| m.key.as_str()).collect();
    assert_eq!(keys.len(), world.sent.len(), "each repeat is a message of its own");
}

#[test]
fn who_has_seen_it_is_left_alone_and_so_is_who_solved_it() {
    let mut world = World::new();
    world.open(1, "question:k3f9:1");
    world.open(2, "task.dead:x");
    world.run(SECOND * 5);
    assert_eq!(world.sent.len(), 2);
    world.alerts[0].acked = true;
    world.alerts.remove(1);
    world.run(HOUR * 24);
    assert_eq!(world.sent.len(), 2);
}

#[test]
fn quiet_hours_keep_back_all_but_what_is_critical() {
    let mut world = World::new().quiet("11:00-13:00");
    world.open(1, "question:k3f9:1");
    world.open(2, "guard.freeze:all");
    world.run(HOUR * 3);
    assert_eq!(world.told(2)[0], NOON);
    assert_eq!(world.told(1)[0], NOON + HOUR);
    let plan = plan(&world.alerts, &world.route, &Outbox::default(), LocalTime { now: NOON, local_minutes: 0 });
    assert_eq!(plan.reasons[&1], Reason::new(RuleId::NotifyQuiet).until(NOON + HOUR));
    let said = sentence(&plan.reasons[&1], NOON, &|_| "13:00".to_owned());
    assert_eq!(said, "waits for the end of the quiet hours; next in 1h (at 13:00) [notify.quiet]");
}

#[test]
fn each_hears_what_it_is_for() {
    let mut world = World::new();
    world.route.min_severity = Severity::Warning;
    world.open(1, "session:abc:idle");
    world.open(2, "task.dead:x");
    world.open(3, "guard.freeze:all");
    world.step();
    assert_eq!((world.told(1).len(), world.told(2).len(), world.told(3).len()), (0, 1, 1));
    let mut world = World { route: Route { only: vec![Severity::Info], ..Route::default() }, ..World::new() };
    world.open(1, "session:abc:idle");
    world.open(3, "guard.freeze:all");
    world.step();
    assert_eq!((world.told(1).len(), world.told(3).len()), (1, 0));
}

#[test]
fn the_cause_of_a_ticket_decides_its_severity() {
    let rows = [
        (Severity::Info, &["session:s1:stopped"][..]),
        (
            Severity::Warning,
            &["stagnation:k3f9", "question:k3f9:1", "task.dead:k3f9-1", "monitor.blind:k3f9:ci", "config:/p:gone"],
        ),
        (Severity::Critical, &["guard.freeze:account:work", "turns.stuck:here", "stalled:k3f9", "journal"]),
    ];
    for (wanted, keys) in rows {
        for key in keys {
            assert_eq!(severity(key), wanted, "{key}");
        }
    }
}

#[test]
fn a_storm_of_a_thousand_causes_is_a_few_messages() {
    let mut world = World::new();
    for id in 1..=1000 {
        world.open(id, &format!("task.dead:{id}"));
    }
    world.run(SECOND * 10);
    assert_eq!(world.sent.len(), 1);
    let (_, digest) = &world.sent[0];
    assert_eq!(digest.tickets.len(), 1000);
    assert!(digest.text.contains("and 990 more") && digest.text.len() < 3_000, "{}", digest.text);
}

#[test]
fn a_storm_that_goes_on_for_an_hour_is_bounded_and_still_told_within_a_minute() {
    let mut world = World::new();
    for id in 1..=1000 {
        world.open(id, &format!("task.dead:{id}"));
        world.run(SECOND * 3);
    }
    world.run(SECOND * 60);
    assert!(world.sent.len() < 80, "{} messages", world.sent.len());
    for alert in &world.alerts {
        let first = world.told(alert.id)[0];
        assert!(first.since(alert.opened_at) <= SECOND * 60, "#{} after {:?}", alert.id, first.since(alert.opened_at));
    }
}

#[test]
fn a_cause_that_comes_and_goes_is_told_now_and_then() {
    let mut world = World::new();
    for id in 1..=360 {
        world.alerts = vec![alert(id, "turns.stuck:x", world.now)];
        world.run(SECOND * 5);
        world.alerts.clear();
        world.run(SECOND * 5);
    }
    assert!((2..=5).contains(&world.sent.len()), "{} messages in an hour", world.sent.len());
}

#[test]
fn who_is_down_for_a_day_is_tried_ever_more_seldom_and_then_told_everything_once() {
    let mut world = World::new();
    world.up = false;
    world.open(1, "question:k3f9:1");
    for id in 2..=200 {
        world.run(SECOND * 400);
        world.open(id, &format!("task.dead:{id}"));
    }
    world.run(HOUR);
    let tries = world.attempts.len();
    assert!((80..600).contains(&tries), "{tries} attempts in a day");
    let trouble = world.outbox.queue.trouble(world.now).expect("it is down");
    assert!(trouble.contains("cannot be reached for 23h") && trouble.contains("1 message waits): down"), "{trouble}");
    world.up = true;
    world.run(SECOND * 2000);
    let late = world.sent.len();
    assert!(late <= 4, "{late} messages when it is back");
    assert!((1..=200).all(|id| !world.told(id).is_empty()), "all were reported");
    assert_eq!(world.outbox.queue.trouble(world.now), None);
}

#[test]
fn what_was_sent_and_not_written_down_is_sent_again_under_its_key() {
    let mut world = World::new();
    world.open(1, "question:k3f9:1");
    let moment = |now| LocalTime { now, local_minutes: 0 };
    let before = plan(&world.alerts, &world.route, &world.outbox, moment(NOON)).outbox;
    let first = before.queue.ready(NOON).first().expect("it is due").clone();
    // Power fails between the two; another ticket is opened meanwhile.
    world.open(2, "question:k3f9:2");
    let later = plan(&world.alerts, &world.route, &before, moment(NOON + HOUR)).outbox;
    assert_eq!(later.queue.ready(NOON + HOUR).first(), Some(&first));
    let stored = serde_json::to_string(&later).expect("plain data");
    assert_eq!(serde_json::from_str::<Outbox>(&stored).expect("plain data"), later);
}

#[test]
fn who_says_when_to_come_back_is_believed_within_bounds_and_a_refusal_is_given_up() {
    let mut world = World::new();
    world.open(1, "question:k3f9:1");
    let mut outbox = plan(&world.alerts, &world.route, &world.outbox, LocalTime { now: NOON, local_minutes: 0 }).outbox;
    let message = outbox.queue.pending[0].clone();
    let fail = |outbox: &mut Outbox, how| settle(outbox, &message, &Err(how), (&world.alerts, NOON, 1));
    let asked = |s| Undelivered { why: "429".to_owned(), retry_after: Some(SECOND * s), refused: None };
    fail(&mut outbox, asked(7));
    assert_eq!(outbox.queue.failing.as_ref().map(|f| f.next), Some(NOON + SECOND * 7));
    for (after, wake) in [(6, Some(NOON + SECOND * 7)), (7, None), (9, None)] {
        let moment = LocalTime { now: NOON + SECOND * after, local_minutes: 0 };
        let plan = plan(&world.alerts, &world.route, &outbox, moment);
        assert_eq!(
            (plan.wake_at, !plan.outbox.queue.ready(moment.now).is_empty()),
            (wake, wake.is_none()),
            "after {after} s"
        );
    }
    fail(&mut outbox, asked(999_999));
    assert_eq!(outbox.queue.failing.as_ref().map(|f| f.next), Some(NOON + HOUR));
    let refused = Undelivered::refused("400", Refusal::Content);
    for _ in 0..REFUSALS {
        assert_eq!(outbox.queue.pending.len(), 1);
        fail(&mut outbox, refused.clone());
    }
    assert!(outbox.queue.pending.is_empty() && outbox.told.contains_key("question:k3f9:1"));
}

/// Random events: causes come and go, are acknowledged, the other side fails. Always: no busy loop,
/// a bounded queue (in `step`), no two messages under one key, and no cause reported more often
/// than its age allows.
#[test]
fn whatever_happens_the_promises_hold() {
    for seed in 0..300_u64 {
        let mut world = World { seed, ..World::new() };
        if seed % 3 == 0 {
            world = world.quiet("12:30-15:00");
        }
        let mut ids = 0;
        for n in 0..120_u64 {
            let draw = mix(seed, n);
            match draw % 8 {
                0..=2 => {
                    ids += 1;
                    let kind = ["question", "guard.freeze", "session", "task.dead"][(draw >> 8) as usize % 4];
                    world.open(ids, &format!("{kind}:{ids}"));
                }
                3 if !world.alerts.is_empty() => {
                    let at = (draw >> 8) as usize % world.alerts.len();
                    world.alerts.remove(at);
                }
                4 if !world.alerts.is_empty() => {
                    let at = (draw >> 8) as usize % world.alerts.len();
                    world.alerts[at].acked = true;
                }
                5 => world.up = !world.up,
                _ => {}
            }
            world.run(SECOND * u32::try_from((draw >> 20) % 900).expect("it is small"));
        }
        let mut keys = BTreeSet::new();
        for (at, message) in &world.sent {
            assert!(keys.insert(message.key.clone()), "seed {seed}: {} went twice", message.key);
            let quiet = world.route.quiet_hours.is_some_and(|q| q.end(*at, 0).is_some());
            assert!(!quiet || message.severity == Severity::Critical, "seed {seed}: disturbed at {at:?}");
        }
        for id in 1..=ids {
            let told = world.told(id);
            assert!(told.windows(2).all(|w| w[1].since(w[0]) >= REPEAT_FIRST), "seed {seed}: #{id} {told:?}");
        }
    }
}
