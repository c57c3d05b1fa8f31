//! Faults on the way to a hub and in it: each a clear error, nothing lost, nothing doubled.

use std::thread;
use std::time::{Duration, Instant};

use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskEnd, TaskState};
use everloop_core::time::Time;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, Postgres};
use everloop_testkit::postgres::server;
use everloop_testkit::proxy::{Proxy, ProxyMode};
use everloop_testkit::wait::{wait_for, wait_until};

use crate::postgres::{claim, hang_up, hub, made, note, open, raw, save, task};

/// What comes back at all comes back within this.
const SOON: Duration = Duration::from_secs(20);

/// A hub, a ledger that reaches it through a proxy, and one that does not.
fn world() -> (Proxy, Postgres, Postgres) {
    let url = made();
    let proxy = Proxy::new(server().port());
    let through = open(&proxy.through(&url, server().port())).unwrap();
    (proxy, through, open(&url).unwrap())
}

fn finish(fence: u64) -> Op {
    Op::Finish { task: TaskId::new("a"), fence: Fence(fence), state: TaskEnd::Done, result: "r".into() }
}

#[test]
fn a_cut_before_the_commit_did_nothing_and_says_that_it_does_not_know() {
    let (proxy, mut ledger, direct) = world();
    ledger.transact(Time(1), &[task("a"), save(0)]).unwrap();
    ledger.transact(Time(1), &[claim(1)]).unwrap();
    for ops in [vec![finish(1)], vec![claim(1)], vec![task("b")], vec![save(1), note()]] {
        proxy.set(ProxyMode::CutBeforeCommit);
        let unknown = ledger.transact(Time(200_000), &ops).unwrap_err();
        assert!(matches!(unknown, Error::Unknown { .. }), "{unknown:?}");
        proxy.set(ProxyMode::Pass);
        assert_eq!(ledger.get_loop(&LoopId::new("k3f9")).unwrap().unwrap().version, 1);
        assert_eq!(direct.task(&TaskId::new("a")).unwrap().unwrap().fence, Fence(1));
        assert_eq!(direct.task(&TaskId::new("b")).unwrap(), None);
        assert_eq!(direct.last_seq().unwrap(), 0);
    }
    assert_eq!(ledger.transact(Time(3), &[finish(1)]).unwrap(), [Reply::Ok], "so it is done again");
}

#[test]
fn a_cut_after_the_commit_did_everything_and_says_that_it_does_not_know() {
    let (proxy, mut ledger, direct) = world();
    ledger.transact(Time(1), &[task("a"), save(0)]).unwrap();
    let mut cut = |ops: &[Op]| {
        proxy.set(ProxyMode::CutAfterCommit);
        let unknown = ledger.transact(Time(2), ops).unwrap_err();
        assert!(matches!(unknown, Error::Unknown { .. }), "{unknown:?}");
        proxy.set(ProxyMode::Pass);
        // Read back by key, never guessed.
        ledger.task(&TaskId::new("a")).unwrap().unwrap()
    };
    assert!(matches!(cut(&[claim(1)]).state, TaskState::Leased { .. }));
    assert_eq!(cut(&[finish(1)]).state, TaskState::Done);
    cut(&[task("b")]);
    cut(&[save(1), note()]);
    assert_eq!(ledger.transact(Time(3), &[task("b")]).unwrap(), [Reply::Made(false)], "it is there");
    assert_eq!(direct.get_loop(&LoopId::new("k3f9")).unwrap().unwrap().version, 2);
    let doubled = ledger.transact(Time(3), &[finish(1)]).unwrap_err();
    assert_eq!(doubled.refusal(), Some(&Refusal::Fenced { task: TaskId::new("a"), fence: Fence(1) }));
    let doubled = ledger.transact(Time(3), &[save(1), note()]).unwrap_err();
    assert!(matches!(doubled.refusal(), Some(Refusal::Conflict { .. })));
    assert_eq!(replay(&direct, drop).unwrap(), 1, "counted once");
}

#[test]
fn an_idle_connection_that_was_closed_is_made_again_without_a_word() {
    let (proxy, mut ledger, _) = world();
    ledger.transact(Time(1), &[save(0), note()]).unwrap();
    proxy.cut();
    // Longer than a connection may rest without a check.
    thread::sleep(Duration::from_millis(150));
    assert_eq!(ledger.transact(Time(2), &[save(1), note()]).unwrap(), [Reply::Saved(2), Reply::Appended(2)]);
}

#[test]
fn long_a_silent_hub_is_given_up_in_time_and_used_again_when_it_speaks() {
    let (proxy, mut ledger, _) = world();
    ledger.transact(Time(1), &[save(0)]).unwrap();
    proxy.set(ProxyMode::Silent);
    let started = Instant::now();
    let late = ledger.transact(Time(2), &[claim(1)]).unwrap_err();
    assert!(matches!(late, Error::Unknown { .. }), "the commit was sent with it: {late:?}");
    assert!((6..10).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    let started = Instant::now();
    let away = ledger.last_seq().unwrap_err();
    assert!(matches!(away, Error::Away { doing: "connect", .. }), "{away:?}");
    assert!((2..6).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    proxy.set(ProxyMode::Pass);
    assert_eq!(ledger.transact(Time(3), &[save(1)]).unwrap(), [Reply::Saved(2)]);
}

#[test]
fn a_statement_that_waits_too_long_is_given_up_by_the_hub_itself() {
    let url = made();
    let mut ledger = open(&url).unwrap();
    ledger.transact(Time(1), &[save(0)]).unwrap();
    thread::scope(|scope| {
        let held = "begin; lock table everloop.loops in access exclusive mode; select pg_sleep(7)";
        scope.spawn(|| raw(&url, held));
        let locked = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted
                      and relation = 'everloop.loops'::regclass and database = (select oid from pg_database where datname = current_database())";
        wait_until("the table is held", SOON, || raw(&url, locked) != "0");
        let busy = ledger.transact(Time(2), &[save(1)]).unwrap_err();
        assert!(matches!(busy, Error::Busy { doing: "lock loops" }), "{busy:?}");
    });
    assert_eq!(ledger.transact(Time(3), &[save(1)]).unwrap(), [Reply::Saved(2)]);
}

/// Makes some writes of a loop fail, as `good` decides, whatever becomes of the transaction.
fn make_flaky(url: &str, code: &str, good: &str) {
    raw(
        url,
        &format!(
            "create sequence everloop.tries;
             grant usage on sequence everloop.tries to public;
             create function everloop.flaky() returns trigger language plpgsql as $$ begin
                 if not ({good}) then raise exception 'no luck' using errcode = '{code}'; end if;
                 return new;
             end $$;
             create trigger flaky before insert or update on everloop.loops
                 for each row execute function everloop.flaky()"
        ),
    );
}

#[test]
fn who_only_got_in_the_way_is_tried_again_and_not_for_ever() {
    for code in ["40001", "40P01"] {
        let url = made();
        make_flaky(&url, code, "nextval('everloop.tries') % 4 = 0");
        let mut ledger = open(&url).unwrap();
        for version in 0..5 {
            let replies = ledger.transact(Time(1), &[note(), save(version)]).unwrap();
            assert_eq!(replies, [Reply::Appended(version + 1), Reply::Saved(version + 1)]);
        }
        assert_eq!(raw(&url, "select last_value from everloop.tries"), "20");
        assert_eq!(replay(&ledger, drop).unwrap(), 5, "what was undone left no trace");
        raw(
            &url,
            "create or replace function everloop.flaky() returns trigger language plpgsql as
                   $$ begin raise exception 'never' using errcode = '40001'; end $$",
        );
        assert!(matches!(ledger.transact(Time(1), &[note(), save(5)]), Err(Error::Busy { .. })));
        assert_eq!(ledger.last_seq().unwrap(), 5);
    }
}

#[test]
fn a_hub_that_says_no_says_why_and_nothing_happened() {
    let url = made();
    let mut ledger = open(&url).unwrap();
    ledger.transact(Time(1), &[save(0), note()]).unwrap();
    make_flaky(&url, "P0001", "false");
    let refused = ledger.transact(Time(2), &[note(), save(1)]).unwrap_err();
    assert!(matches!(refused, Error::Hub { doing: "save loops", .. }), "{refused:?}");
    assert_eq!(ledger.last_seq().unwrap(), 1);
    raw(
        &url,
        "create or replace function everloop.flaky() returns trigger language plpgsql as
               $$ begin raise exception 'full' using errcode = '53100'; end $$",
    );
    assert!(matches!(ledger.transact(Time(2), &[note(), save(1)]), Err(Error::Full { .. })));
    raw(&url, "drop trigger flaky on everloop.loops; alter table everloop.loops rename to elsewhere");
    let missing = ledger.transact(Time(2), &[note(), save(1)]).unwrap_err();
    assert!(matches!(missing, Error::Hub { doing: "lock loops", .. }), "{missing:?}");
    assert!(matches!(ledger.loops(), Err(Error::Hub { .. })));
    raw(
        &url,
        "alter table everloop.elsewhere rename to loops;
               alter database TARGET set default_transaction_read_only = on"
            .replace("TARGET", url.rsplit('/').next().unwrap())
            .as_str(),
    );
    hang_up(&url);
    assert_eq!(crate::postgres::until_connected(&mut ledger).unwrap(), 1, "it can still be read");
    let read_only = ledger.transact(Time(2), &[note(), save(1)]).unwrap_err();
    assert!(matches!(read_only, Error::Hub { .. }), "{read_only:?}");
    assert!(
        std::error::Error::source(&read_only).is_some_and(|e| format!("{e:?}").contains("read-only")),
        "{read_only:?}"
    );
}

#[test]
fn backends_that_are_ended_all_the_time_lose_and_double_nothing() {
    let url = made();
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let faults = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                hang_up(&url);
            }
        });
        let mut ledger = open_stubbornly(&url);
        let (mut version, mut broken) = (0, 0);
        // Until enough faults happened, with enough progress in between.
        while version < 100 || broken < 5 {
            match ledger.transact(Time(1), &[note(), save(version)]) {
                Ok(replies) => {
                    assert_eq!(replies, [Reply::Appended(version + 1), Reply::Saved(version + 1)]);
                    version += 1;
                }
                Err(Error::Away { .. }) => broken += 1,
                Err(Error::Unknown { .. }) => {
                    broken += 1;
                    version = stored_version(&ledger);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        faults.join().unwrap();
        // The last backend may notice its end only now, so every read is repeated until it has an answer.
        assert_eq!(stored_version(&ledger), version);
        let records = wait_for("the journal can be read", SOON, || replay(&ledger, drop).ok());
        assert_eq!(records, version, "one record for each version");
    });
}

fn open_stubbornly(url: &str) -> Postgres {
    wait_for("the hub can be opened", SOON, || open(url).ok())
}

fn stored_version(ledger: &Postgres) -> u64 {
    let row = wait_for("the loop can be read", SOON, || ledger.get_loop(&LoopId::new("k3f9")).ok());
    row.map_or(0, |row| row.version)
}

#[test]
fn what_two_make_at_once_is_made_once() {
    let url = made();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut ledger = open(&url).unwrap();
                for i in 0..25 {
                    let key = format!("cause-{i}");
                    let open = Op::OpenTicket { key, owner: None, text: "look".into() };
                    ledger.transact(Time(1), &[open, task(&format!("t{i}"))]).unwrap();
                }
            });
        }
    });
    let ledger = hub_at(&url);
    let tickets = ledger.tickets(everloop_store::Tickets::Newest(99)).unwrap();
    assert_eq!(tickets.iter().map(|t| t.id).collect::<Vec<_>>(), (1..=25).collect::<Vec<_>>(), "no gap and no double");
    drop(hub());
}

fn hub_at(url: &str) -> Postgres {
    open(url).unwrap()
}
