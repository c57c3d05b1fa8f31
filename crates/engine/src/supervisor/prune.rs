//! Once a day: records of sessions that everloop did not start, and what they left for others, go
//! when nothing wrote to them for a month.

use std::path::Path;
use std::time::Duration;

use everloop_core::hook::{HANDOFF, OF_SESSION, RECORD_KEPT, SESSION};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Sqlite};

use super::Supervisor;

/// Between two looks.
const PRUNE: Duration = Duration::from_secs(24 * 3600);

impl Supervisor {
    /// Removes old records when it is time to.
    pub(super) fn prune_records(&mut self) {
        let now = self.clock.now();
        if now < self.prune_at {
            return;
        }
        self.prune_at = now + PRUNE;
        match prune(&mut self.ledger, now) {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "old records of sessions are removed"),
            Err(error) => tracing::warn!(%error, "old records of sessions cannot be removed"),
        }
    }
}

/// Removes what is outlived; how much that was.
fn prune(ledger: &mut Sqlite, now: Time) -> Result<usize, Error> {
    let (mut removed, before) = (0, now - RECORD_KEPT);
    for kind in [SESSION, HANDOFF] {
        for row in ledger.docs(kind)? {
            let of_folder = kind == HANDOFF && !row.key.starts_with(OF_SESSION);
            let stays = of_folder && Path::new(&row.key).exists();
            if row.updated_at < before && !stays {
                removed += usize::from(ledger.prune_doc(kind, &row.key, before)?);
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use everloop_core::op::Op;

    use super::*;

    #[test]
    fn records_of_sessions_and_handoffs_go_after_a_month_without_a_word() {
        let mut ledger = Sqlite::in_memory().expect("a ledger in memory");
        let day = |n: i64| Time(n * 24 * 3_600_000);
        let here = tempfile::tempdir().expect("a folder of the test's own");
        let here = here.path().display().to_string();
        let save = |kind: &str, key: &str, version| Op::SaveDoc {
            kind: kind.to_owned(),
            key: key.to_owned(),
            version,
            body: "{}".to_owned(),
        };
        let handoffs = ["session:old", &here, "/gone/folder"];
        let mut old: Vec<Op> = handoffs.iter().map(|key| save(HANDOFF, key, 0)).collect();
        old.extend([save(SESSION, "old", 0), save(SESSION, "busy", 0), save("sign", "old", 0)]);
        ledger.transact(day(1), &old).expect("it is written");
        ledger.transact(day(20), &[save(SESSION, "busy", 1)]).expect("it is written");
        assert_eq!(prune(&mut ledger, day(30)).expect("it is read"), 0, "not before its time");
        assert_eq!(prune(&mut ledger, day(32)).expect("it is read"), 3);
        let keys = |kind| ledger.docs(kind).expect("it is read").into_iter().map(|row| row.key).collect::<Vec<_>>();
        assert_eq!((keys(SESSION), keys(HANDOFF)), (vec!["busy".to_owned()], vec![here.clone()]));
        assert_eq!(keys("sign").len(), 1, "nothing else");
    }
}
