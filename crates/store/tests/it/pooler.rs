//! The same ledger behind a pooler in transaction mode, where every transaction may use another
//! backend.

use std::thread;

use everloop_core::op::{Reply, TaskState};
use everloop_core::time::Time;
use everloop_store::postgres::Url;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, Model, Postgres, TaskFilter, TaskOwner};
use everloop_testkit::postgres::{Pooler, server};

use crate::postgres::{claim, made, note, open, save, task};
use crate::story::Story;

#[test]
fn a_story_is_told_through_a_pooler() {
    let (pooler, url) = (Pooler::start(server()), made());
    let through = pooler.url(url.rsplit('/').next().unwrap());
    let mut ledgers: Vec<Box<dyn Ledger>> = vec![Box::<Model>::default(), Box::new(open(&through).unwrap())];
    Story::new(13).tell(&mut ledgers, 3000);
    assert!(Postgres::probe(&Url::parse(&through).unwrap()).unwrap().pooled, "it is detected, whatever the address is");
    assert!(!Postgres::probe(&Url::parse(&url).unwrap()).unwrap().pooled, "and not where there is none");
}

/// More nodes than the pooler has backends.
#[test]
fn six_nodes_share_three_backends() {
    let (pooler, url) = (Pooler::start(server()), made());
    let through = pooler.url(url.rsplit('/').next().unwrap());
    let mut first = open(&through).unwrap();
    first.transact(Time(1), &(0..60).map(|i| task(&format!("t{i}"))).collect::<Vec<_>>()).unwrap();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut ledger = open(&through).unwrap();
                for _ in 0..10 {
                    let replies = ledger.transact(Time(2), &[claim(1)]).unwrap();
                    assert!(matches!(&replies[..], [Reply::Claimed(rows)] if rows.len() == 1), "{replies:?}");
                    count_up(&mut ledger);
                }
            });
        }
    });
    assert_eq!(replay(&first, drop).unwrap(), 60);
    let all = first.tasks(&TaskFilter { owner: TaskOwner::Any, states: vec![], limit: 99 }).unwrap();
    assert!(all.iter().all(|row| matches!(row.state, TaskState::Leased { .. }) && row.fence.0 == 1));
}

fn count_up(ledger: &mut Postgres) {
    loop {
        let version = ledger.loops().unwrap().first().map_or(0, |row| row.version);
        match ledger.transact(Time(3), &[note(), save(version)]) {
            Ok(_) => return,
            Err(Error::Refused(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}
