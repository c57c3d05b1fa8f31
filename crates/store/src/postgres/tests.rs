//! What only shows from inside: query plans, and the migration of a hub from an older format.

use everloop_core::ids::LoopId;
use everloop_core::mesh::rights::Rights;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_testkit::postgres::server;

use super::connection::{HubConnection, Statement};
use super::{HubClock, HubOptions, Postgres, Url, Waiter, open, read};
use crate::rows::{StateName, TaskFilter, TaskOwner};
use crate::{Error, Ledger};

fn empty() -> (Url, String) {
    let text = server().database();
    let name = text.rsplit('/').next().unwrap().to_owned();
    (Url::parse(&text).unwrap(), name)
}

fn opened(url: &Url) -> Postgres {
    Postgres::open(HubOptions { url: url.clone(), clock: HubClock::Caller, hub: None }).unwrap()
}

fn plan(ledger: &Postgres, statement: Statement) -> String {
    let rows = ledger.rows(statement.explained()).unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// A hub with long tables.
fn filled() -> (Url, String) {
    let (url, name) = empty();
    Postgres::init(&url).unwrap();
    let fill =
        "insert into everloop.tasks select 't' || i, case when i % 2 = 0 then 'l' end, 'batch', '', '', i % 5, '[]',
                    'me', 'operator', 0, case when i % 10 = 0 then 'queued' else 'done' end, null, null, 1, 0, '', i, i
                from generate_series(1, 30000) i;
                insert into everloop.journal select i, 1, 'l' || i % 300, 1, '{}', 1 from generate_series(1, 30000) i;
                analyze";
    server().psql(&name, fill);
    (url, name)
}

#[test]
fn long_tables_are_read_along_an_index_and_never_sorted() {
    let (url, _) = filled();
    let ledger = opened(&url);
    let owner = LoopId::new("l");
    let one = |owner| TaskFilter { owner, states: vec![StateName::Done], limit: 10 };
    let expected = [
        (read::tasks(&one(TaskOwner::Any)), "tasks_by_state"),
        (read::tasks(&one(TaskOwner::Nobody)), "tasks_by_state"),
        (read::tasks(&one(TaskOwner::Loop(owner.clone()))), "tasks_by_owner"),
        (read::journal(5, None, 10), "journal_pkey"),
        (read::journal(5, Some(&LoopId::new("l1")), 10), "journal_by_owner"),
        (read::journal_tail(None, 10), "journal_pkey"),
        (read::journal_tail(Some(&LoopId::new("l1")), 10), "journal_by_owner"),
    ];
    for (statement, index) in expected {
        let doing = statement.doing;
        let plan = plan(&ledger, statement);
        assert!(plan.contains(index), "{doing}: {plan}");
        assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{doing}: {plan}");
    }
}

/// EXPLAIN does not show how a function does its work, but how much it touches.
#[test]
fn a_claim_and_a_finish_touch_few_pages_of_a_long_table() {
    let (_, name) = filled();
    let some = "update everloop.tasks set state = 'leased', node = 'n', until = 99 where id like 't9_90';
                update everloop.tasks set owner = null where state = 'queued' and created_at % 20 = 10; analyze";
    server().psql(&name, some);
    let finish = "everloop.finish(1, '{t9090,t9190}', '{1,1}', '{done,done}', '{ok,ok}')";
    let calls = [
        "everloop.claim(50000, 'n', 1, null, 10)",
        "everloop.claim(50000, 'n', 1, 'l', 10)",
        "everloop.claim_one(50000, 'n', 1, null)",
        "everloop.claim_one(50000, 'n', 1, 'l')",
        "everloop.finish_one(1, 't9290', 1, 'done', 'ok')",
        finish,
    ];
    for call in calls {
        // Undone, so that it can be called again: the plan that stays is made at the sixth call.
        let undone = format!("begin; select count(*) from {call}; rollback;");
        let plan = format!("{} begin; explain (analyze, buffers) select * from {call}; rollback", undone.repeat(6));
        let said = server().psql(&name, &plan);
        let buffers = said.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared hit="));
        let pages: u32 = buffers.and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
        assert!(pages < 400, "{call} touched {pages} pages: {said}");
    }
}

#[test]
fn an_older_hub_is_brought_forward_once_and_keeps_what_it_holds() {
    let (url, name) = empty();
    Postgres::init(&url).unwrap();
    let mut ledger = opened(&url);
    let save = Op::SaveLoop { id: LoopId::new("l"), version: 0, phase: "p".to_owned(), state: "s".to_owned() };
    ledger.transact(Time(1), &[save]).unwrap();
    let mut scripts = open::MIGRATIONS.to_vec();
    scripts.push("ALTER TABLE everloop.loops ADD COLUMN colour text NOT NULL DEFAULT 'red'");
    let newer = open::FORMAT + 1;
    let waiter = Waiter::new().unwrap();
    for _ in 0..2 {
        let forward = async || open::bring_forward(&HubConnection::connect(&url).await?, &url, &scripts).await;
        waiter.wait(forward).unwrap();
    }
    let look = || server().psql(&name, "select format, (select colour from everloop.loops) from everloop.hub");
    assert_eq!(look(), format!("{newer}|red"));
    assert!(
        matches!(Postgres::migrate(&url), Err(Error::Newer { found, known: open::FORMAT, .. }) if found == newer),
        "we are the older one now"
    );
    scripts.push("ALTER TABLE everloop.loops DROP COLUMN colour; SELECT 1 / 0");
    let forward = async || open::bring_forward(&HubConnection::connect(&url).await?, &url, &scripts).await;
    assert!(waiter.wait(forward).is_err());
    assert_eq!(look(), format!("{newer}|red"));
}

#[test]
fn a_hub_of_every_format_before_rights_becomes_current_and_its_roles_stay_leaders() {
    for format in 1..open::FORMAT {
        let (url, name) = empty();
        let scripts = &open::MIGRATIONS[..format as usize];
        let forward = async || open::bring_forward(&HubConnection::connect(&url).await?, &url, scripts).await;
        Waiter::new().unwrap().wait(forward).unwrap();
        let task = "insert into everloop.tasks values ('t', null, 'batch', '', '', 0, '[]', 'me', 'operator', 0, 'queued', null,
                                                       null, 0, 0, null, 1, 1)";
        server().psql(&name, task);
        let role = format!("before_{format}");
        server().psql(
            &name,
            &format!(
                "create role {role} login; grant usage on schema everloop to {role};
            grant select, insert, update, delete on all tables in schema everloop to {role}"
            ),
        );
        assert_eq!(Postgres::migrate(&url).unwrap(), format);
        let least = Url::parse(&server().url_as(&role, "", &name)).unwrap();
        let found = Postgres::probe(&least).unwrap();
        let hub = found.hub.expect("there is one");
        assert_eq!((hub.format, hub.rights), (open::FORMAT, Rights::Leader), "format {format}");
        let newer = |line: &&str| format == 1 && line.ends_with(" on docs") || line.contains(" on stream");
        let known: Vec<&str> = found.lacking.iter().map(String::as_str).filter(|line| !newer(line)).collect();
        assert_eq!(known, [""; 0], "format {format}: only tables that were not there yet");
        assert_eq!(found.lacking.len(), if format == 1 { 12 } else { 9 }, "{:?}", found.lacking);
        assert_eq!(
            opened(&least).tasks(&TaskFilter { owner: TaskOwner::Any, states: vec![], limit: 9 }).unwrap().len(),
            1
        );
    }
}
