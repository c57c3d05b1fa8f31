//! The hub: other formats, other hubs, damage, logins, TLS, and the findings of `probe`.

use everloop_core::event::Event;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal::Damage;
use everloop_core::mesh::rights::Rights;
use everloop_core::op::{NewTask, Op, Refusal, Reply, TaskEnd, Trust};
use everloop_core::time::Time;
use everloop_store::mirror::Rows;
use everloop_store::postgres::{FORMAT, HeartbeatReply, HubClock, HubOptions, Url, role_sql};
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, Postgres};
use everloop_testkit::postgres::{Login, PostgresServer, ServerSetup, Sync, server};

/// Opens the hub at `url`, with the caller's clock.
pub fn open(url: &str) -> Result<Postgres, Error> {
    Postgres::open(HubOptions { url: Url::parse(url).unwrap(), clock: HubClock::Caller, hub: None })
}

/// The address of a new hub.
pub fn made() -> String {
    let url = server().database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    url
}

/// A ledger on a new hub.
pub fn hub() -> Postgres {
    open(&made()).unwrap()
}

/// Changes a hub without the ledger.
pub fn raw(url: &str, sql: &str) -> String {
    server().psql(url.rsplit('/').next().unwrap(), sql)
}

pub fn note() -> Op {
    Op::Append { owner: None, events: vec![Event::Note { text: "n".into() }] }
}

pub fn save(version: u64) -> Op {
    Op::SaveLoop { id: LoopId::new("k3f9"), version, phase: "ready".into(), state: "{}".into() }
}

pub fn task(id: &str) -> Op {
    Op::Enqueue(NewTask {
        id: TaskId::new(id),
        owner: None,
        kind: "batch".into(),
        title: String::new(),
        prompt: String::new(),
        priority: 0,
        deps: vec![],
        author: "me".into(),
        trust: Trust::Operator,
        ready_at: Time(0),
    })
}

pub fn claim(n: u32) -> Op {
    Op::Claim { node: NodeId::new("a"), n, owner: None, lease: std::time::Duration::from_secs(90) }
}

#[test]
fn a_hub_is_made_once_and_only_where_there_is_none() {
    let url = Url::parse(&server().database()).unwrap();
    let options = || HubOptions { url: url.clone(), clock: HubClock::Caller, hub: None };
    assert!(matches!(Postgres::open(options()), Err(Error::Missing { .. })));
    assert!(matches!(Postgres::migrate(&url), Err(Error::Missing { .. })));
    let made = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| Postgres::init(&url).unwrap())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(made.iter().all(|hub| *hub == made[0]), "four made one hub: {made:?}");
    assert_eq!(Postgres::migrate(&url).unwrap(), FORMAT, "nothing to do");
    assert_eq!(Postgres::open(options()).unwrap().id(), made[0].id);
}

#[test]
fn another_format_is_refused_and_left_alone() {
    let url = made();
    raw(&url, "update everloop.hub set format = 99");
    let newer = open(&url).unwrap_err();
    assert!(matches!(newer, Error::Newer { found: 99, known: FORMAT, .. }), "{newer:?}");
    assert!(matches!(Postgres::migrate(&Url::parse(&url).unwrap()), Err(Error::Newer { .. })));
    raw(&url, "update everloop.hub set format = 0");
    let older = open(&url).unwrap_err();
    assert!(matches!(older, Error::Older { found: 0, known: FORMAT, .. }), "{older:?}");
    assert_eq!(raw(&url, "select format from everloop.hub"), "0");
}

#[test]
fn another_hub_under_the_same_address_is_not_taken_for_the_old_one() {
    let (url, other) = (made(), hub());
    let expect =
        HubOptions { url: Url::parse(&url).unwrap(), clock: HubClock::Caller, hub: Some(other.id().to_owned()) };
    assert!(matches!(Postgres::open(expect), Err(Error::OtherHub { .. })));
    let mut ledger = open(&url).unwrap();
    ledger.transact(Time(1), &[note(), note()]).unwrap();
    // A copy from before, restored while no ledger was connected.
    raw(&url, "delete from everloop.journal where seq = 2; update everloop.heads set value = 1 where name = 'journal'");
    hang_up(&url);
    assert!(matches!(until_connected(&mut ledger), Err(Error::SetBack { seen: 2, found: 1 })));
    raw(&url, "update everloop.heads set value = 2 where name = 'journal'; update everloop.hub set id = 'other'");
    assert!(matches!(ledger.last_seq(), Err(Error::OtherHub { .. })));
}

/// Ends every connection of a ledger to this hub.
pub fn hang_up(url: &str) {
    let others = "application_name = 'everloop' and datname = current_database()";
    raw(url, &format!("select pg_terminate_backend(pid, 5000) from pg_stat_activity where {others}"));
}

/// A read, repeated when its connection was gone.
pub fn until_connected(ledger: &mut Postgres) -> Result<u64, Error> {
    match ledger.last_seq() {
        Err(Error::Away { .. }) => ledger.last_seq(),
        other => other,
    }
}

#[test]
fn a_damaged_record_is_reported_and_never_guessed() {
    let url = made();
    let mut ledger = open(&url).unwrap();
    for i in 0..20 {
        ledger.transact(Time(i), &[note()]).unwrap();
    }
    raw(&url, "update everloop.journal set body = replace(body, 'n', 'm') where seq = 10");
    let mut trusted = 0;
    let stopped = replay(&ledger, |record| trusted = record.seq);
    assert!(matches!(stopped, Err(Error::Damaged(Damage::Checksum { seq: 10 }))), "{stopped:?}");
    assert_eq!(trusted, 9);
    assert!(matches!(ledger.journal_tail(None, 15), Err(Error::Damaged(Damage::Checksum { seq: 10 }))));
    assert_eq!(ledger.journal(11, None, 50).unwrap().len(), 9, "what can be checked can be read");
    raw(&url, "delete from everloop.journal where seq = 10");
    assert!(matches!(ledger.journal(0, None, 50), Err(Error::Damaged(Damage::Gap { expected: 10, found: 11 }))));
    raw(
        &url,
        "update everloop.tasks set deps = '{' where id = 't'; insert into everloop.guards values ('all', 1, '{')",
    );
    let text = ledger.guards().unwrap_err().to_string();
    assert!(text.starts_with("guard `all` in the ledger cannot be read: "), "{text}");
}

#[test]
fn a_role_with_the_least_rights_can_do_everything_and_break_nothing() {
    let url = made();
    let database = url.rsplit('/').next().unwrap();
    raw(&url, "create role nobody_yet login");
    let stranger = open(&server().url_as("nobody_yet", "", database)).unwrap_err();
    assert!(matches!(stranger, Error::Denied { .. }), "{stranger:?}");
    raw(&url, &role_sql("least \"rights\"", Rights::Leader));
    let least = server().url_as("least%20%22rights%22", "", database);
    assert_eq!(Postgres::probe(&Url::parse(&least).unwrap()).unwrap().lacking, Vec::<String>::new());
    let mut ledgers: Vec<Box<dyn Ledger>> =
        vec![Box::<everloop_store::Model>::default(), Box::new(open(&least).unwrap())];
    crate::story::Story::new(5).tell(&mut ledgers, 1000);
    for sql in ["drop table everloop.tasks", "delete from everloop.journal", "update everloop.hub set format = 2"] {
        let denied = std::panic::catch_unwind(|| raw(&url, &format!("set role \"least \"\"rights\"\"\"; {sql}")));
        assert!(denied.is_err(), "`{sql}` was allowed");
    }
    raw(&url, "revoke update on everloop.heads from \"least \"\"rights\"\"\"");
    assert_eq!(Postgres::probe(&Url::parse(&least).unwrap()).unwrap().lacking, ["UPDATE on heads"]);
    let denied = ledgers[1].transact(Time(1), &[note()]).unwrap_err();
    assert!(matches!(denied, Error::Denied { doing: "lock the heads", .. }), "{denied:?}");
}

fn doc(kind: &str, version: u64) -> Op {
    Op::SaveDoc { kind: kind.to_owned(), key: "k".to_owned(), version, body: "{}".to_owned() }
}

fn ticket(key: &str) -> Op {
    Op::OpenTicket { key: key.to_owned(), owner: None, text: "look".to_owned() }
}

/// A new hub with two tasks, three documents and a ticket, and the address of a worker's login.
fn with_worker(role: &str) -> (String, String) {
    let url = made();
    let mut owner = open(&url).unwrap();
    let docs = ["mesh", "node", "account"].map(|kind| doc(kind, 0));
    let all: Vec<Op> = [task("t"), task("u"), ticket("mesh:k")].into_iter().chain(docs).collect();
    owner.transact(Time(1), &all).unwrap();
    raw(&url, &role_sql(role, Rights::Worker));
    let worker = server().url_as(role, "", url.rsplit('/').next().unwrap());
    (url, worker)
}

#[test]
fn a_worker_takes_renews_returns_and_ends_tasks_and_beats() {
    let (_, address) = with_worker("worker_ok");
    assert_eq!(Postgres::probe(&Url::parse(&address).unwrap()).unwrap().lacking, Vec::<String>::new());
    let mut worker = open(&address).unwrap();
    assert_eq!(worker.rights(), Rights::Worker);
    let (node, lease) = (NodeId::new("w"), std::time::Duration::from_secs(90));
    let (id, result) = (TaskId::new("t"), "{}".to_owned());
    let take = |fence| Op::Take { task: id.clone(), fence: Fence(fence), node: node.clone(), lease };
    let renew = Op::Renew { task: id.clone(), fence: Fence(1), lease };
    let shelve = Op::Shelve { task: id.clone(), fence: Fence(1), result: result.clone() };
    let back = Op::Release { task: id.clone(), fence: Fence(1), ready_at: Time(0), failed: true };
    let finish =
        |fence| Op::Finish { task: id.clone(), fence: Fence(fence), state: TaskEnd::Done, result: result.clone() };
    worker.beat(Time(2), &node, "{}").unwrap();
    worker.transact(Time(2), &[take(1)]).unwrap();
    worker.transact(Time(3), &[renew]).unwrap();
    worker.transact(Time(4), &[shelve, back]).unwrap();
    worker.transact(Time(5), &[doc("account", 1), doc("immune", 0), note()]).unwrap();
    worker.transact(Time(6), &[ticket("dead:t"), ticket("distrust:k:w"), ticket("immune.observer")]).unwrap();
    worker.transact(Time(7), &[ticket("dead:t")]).unwrap();
    let close = Op::CloseTicket { key: "distrust:k:w".to_owned(), answer: "it is trusted now".to_owned() };
    worker.transact(Time(8), &[close]).unwrap();
    // In one batch, as after the hub was away.
    worker.transact(Time(9), &[take(2), finish(2)]).unwrap();
    worker.transact(Time(10), &[claim(1)]).unwrap();
    worker.hint("work").unwrap();
}

#[test]
fn a_worker_is_refused_in_words_what_leaders_and_people_write() {
    let (_, address) = with_worker("worker_words");
    let mut worker = open(&address).unwrap();
    let (node, lease) = (NodeId::new("w"), std::time::Duration::from_secs(15));
    let cancel = Op::Amend { task: TaskId::new("t"), change: everloop_core::op::Amendment::Cancel };
    let close = Op::CloseTicket { key: "mesh:k".to_owned(), answer: "yes".to_owned() };
    let elect = Op::Elect { node, lease };
    for op in [doc("mesh", 1), doc("node", 1), doc("reconcile", 0), task("v"), cancel, close, elect, save(0)] {
        let refused = worker.transact(Time(2), std::slice::from_ref(&op)).unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::Rights { .. })), "{op:?}: {refused:?}");
        assert!(refused.to_string().starts_with("the login at the hub has the rights of a worker"), "{refused}");
    }
}

/// The same, by a program that keeps to no rule but the hub's.
#[test]
fn the_hub_itself_refuses_a_worker_what_leaders_and_people_write() {
    let (url, _) = with_worker("worker_sql");
    raw(&url, "update everloop.tasks set state = 'leased', node = 'n', until = 1, fence = 1 where id = 'u'");
    let forged = "values ('mesh' || chr(31) || 'x', 'mesh', 'x', 1, 1, '{}')";
    let refused = [
        "update everloop.docs set body = '[]' where kind in ('mesh', 'node') returning 1",
        &format!("insert into everloop.docs (name, kind, key, version, updated_at, body) {forged}"),
        "update everloop.docs set kind = 'mesh' where kind = 'account' returning 1",
        "insert into everloop.leader values (1, 'w', 9, 9)",
        "update everloop.leader set node = 'w' returning 1",
        "insert into everloop.tasks select * from everloop.tasks",
        "update everloop.tasks set prompt = 'rm -rf /' where id = 't' returning 1",
        "update everloop.tasks set state = 'done', result = '{}' where id = 't' returning 1",
        "update everloop.tasks set node = 'w' where id = 'u' returning 1",
        "update everloop.tasks set fence = 2, node = 'w' where id = 'u' returning 1",
        "delete from everloop.tasks",
        "update everloop.tickets set closed_at = 1, answer = 'yes' where key = 'mesh:k' returning 1",
        "insert into everloop.tickets values (99, 'mesh:x', null, 'x', 1, null, null)",
        "update everloop.hub set id = 'x'",
        "select everloop.adopt('x')",
        "delete from everloop.journal",
        "alter table everloop.docs disable row level security",
        "set role postgres; update everloop.hub set id = 'x'",
    ];
    for sql in refused {
        let said = std::panic::catch_unwind(|| raw(&url, &format!("set session authorization worker_sql; {sql}")));
        // A row that a rule hides is not there for a change.
        assert!(said.as_ref().map_or(true, |rows| !rows.contains('1')), "`{sql}` was allowed: {said:?}");
    }
    let kept = "select (select count(*) from everloop.docs where body = '{}'), (select count(*) from everloop.tasks),
                       (select node from everloop.tasks where id = 'u'), (select count(*) from everloop.tickets)";
    assert_eq!(raw(&url, kept), "3|2|n|1", "nothing changed");
}

#[test]
fn a_lost_hub_is_restored_with_the_least_rights_of_a_leader_once_and_never_with_a_workers() {
    let url = made();
    let database = url.rsplit('/').next().unwrap();
    for (role, rights) in [("restores", Rights::Leader), ("restores_not", Rights::Worker)] {
        raw(&url, &role_sql(role, rights));
    }
    let as_role = |role: &str| open(&server().url_as(role, "", database)).unwrap();
    let (mut model, rows) = (everloop_store::Model::default(), |model: &everloop_store::Model| Rows {
        tasks: vec![model.task(&TaskId::new("t")).unwrap().unwrap()],
        docs: vec![("mesh".to_owned(), model.doc("mesh", "k").unwrap().unwrap())],
        tickets: model.tickets(everloop_store::Tickets::Open).unwrap(),
        ..Rows::default()
    });
    model.transact(Time(1), &[task("t"), doc("mesh", 0), ticket("mesh:k")]).unwrap();
    let rows = rows(&model);
    let denied = as_role("restores_not").restore("lost", &rows).unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied:?}");
    let mut leader = as_role("restores");
    assert!(leader.restore("lost", &rows).unwrap());
    assert_eq!((leader.id(), raw(&url, "select id from everloop.hub").as_str()), ("lost", "lost"));
    assert_eq!(leader.doc("mesh", "k").unwrap(), model.doc("mesh", "k").unwrap());
    assert!(!leader.restore("other", &rows).unwrap(), "it is not empty any more");
    assert_eq!(raw(&url, "select id from everloop.hub"), "lost");
}

#[test]
fn a_role_becomes_a_workers_and_a_leaders_again() {
    let (url, address) = with_worker("worker_turns");
    let mut ledger = open(&address).unwrap();
    raw(&url, &role_sql("worker_turns", Rights::Leader));
    assert!(ledger.transact(Time(2), &[task("v")]).is_err(), "until it connects again");
    let mut ledger = open(&address).unwrap();
    assert_eq!(ledger.rights(), Rights::Leader);
    ledger.transact(Time(2), &[task("v"), doc("mesh", 1)]).unwrap();
    raw(&url, &role_sql("worker_turns", Rights::Worker));
    let denied = ledger.transact(Time(3), &[task("w")]).unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "what the hub refuses is no silence of it: {denied:?}");
    let refused = ledger.transact(Time(4), &[task("w")]).unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::Rights { .. })), "the next connection knows: {refused:?}");
}

#[test]
fn a_wrong_password_is_named_and_never_shown() {
    let server = PostgresServer::start(ServerSetup { login: Login::Password("r1ght"), ..ServerSetup::default() });
    let right = server.database();
    Postgres::init(&Url::parse(&right).unwrap()).unwrap();
    let wrong = right.replace("r1ght", "wr0ng");
    let error = open(&wrong).unwrap_err();
    assert!(matches!(error, Error::Denied { doing: "connect", .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("wr0ng"));
    let nowhere = open(&format!("{}/nowhere", right.rsplit_once('/').unwrap().0)).unwrap_err();
    assert!(matches!(nowhere, Error::Denied { .. }), "{nowhere:?}");
    open(&right).unwrap().transact(Time(1), &[note()]).unwrap();
}

#[test]
fn tls_is_asked_for_and_checked_as_the_mode_says() {
    let server = PostgresServer::start(ServerSetup { tls: true, ..ServerSetup::default() });
    let url = server.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    let root = server.authority().display().to_string();
    let named = url.replace("127.0.0.1", "localhost");
    let encrypted = |url: &str, query: &str| {
        let url = Url::parse(&format!("{url}?{query}")).unwrap();
        Postgres::probe(&url).map(|findings| findings.encrypted)
    };
    assert!(!encrypted(&url, "sslmode=disable").unwrap());
    assert!(encrypted(&url, "sslmode=prefer").unwrap() && encrypted(&url, "sslmode=require").unwrap());
    assert!(encrypted(&url, &format!("sslmode=verify-ca&sslrootcert={root}")).unwrap(), "whatever its name");
    assert!(encrypted(&named, &format!("sslmode=verify-full&sslrootcert={root}")).unwrap());
    let refused = [
        (&url, format!("sslmode=verify-full&sslrootcert={root}")),
        (&named, "sslmode=verify-full&sslrootcert=system".to_owned()),
        (&named, "sslmode=verify-ca&sslrootcert=system".to_owned()),
    ];
    for (url, query) in refused {
        let error = encrypted(url, &query).unwrap_err();
        assert!(matches!(error, Error::Away { doing: "connect", .. }), "{query}: {error:?}");
    }
    let plain = crate::postgres::made();
    let error = encrypted(&plain, "sslmode=require").unwrap_err();
    assert!(matches!(error, Error::Away { .. } | Error::Hub { .. }), "{error:?}");
    assert!(!encrypted(&plain, "sslmode=prefer").unwrap());
}

#[test]
fn the_hubs_clock_counts_where_it_should() {
    let url = made();
    let options = HubOptions { url: Url::parse(&url).unwrap(), clock: HubClock::Hub, hub: None };
    let mut ledger = Postgres::open(options).unwrap();
    let wild = Time(5);
    let hub_now =
        || raw(&url, "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint").parse::<i64>().unwrap();
    let before = hub_now();
    ledger.transact(wild, &[task("a"), note()]).unwrap();
    let Reply::Claimed(rows) = ledger.transact(wild, &[claim(1)]).unwrap().remove(0) else { panic!("a claim") };
    let finish = Op::Finish {
        task: TaskId::new("a"),
        fence: rows[0].fence,
        state: everloop_core::op::TaskEnd::Done,
        result: "r".into(),
    };
    ledger.transact(wild, &[finish]).unwrap();
    let row = ledger.task(&TaskId::new("a")).unwrap().unwrap();
    let record = ledger.journal(0, None, 1).unwrap().remove(0);
    let after = hub_now();
    for time in [row.created_at, rows[0].updated_at, row.updated_at, record.at] {
        assert!(before <= time.0 && time.0 <= after, "{time:?} is not between {before} and {after}");
    }
}

#[test]
fn a_ledger_works_inside_of_another_runtime() {
    let url = made();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut ledger = open(&url).unwrap();
        ledger.transact(Time(1), &[note()]).unwrap();
        assert_eq!(ledger.last_seq().unwrap(), 1);
    });
}

#[test]
fn a_crash_of_the_server_loses_nothing_that_was_answered() {
    let mut server = PostgresServer::start(ServerSetup { sync: Sync::Durable, ..ServerSetup::default() });
    let url = server.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    let mut ledger = open(&url).unwrap();
    ledger.transact(Time(1), &[save(0), note()]).unwrap();
    server.crash();
    let away = ledger.transact(Time(2), &[save(1), note()]).unwrap_err();
    assert!(matches!(away, Error::Away { .. }), "the first round trip only locks, so it is known: {away:?}");
    let away = open(&url).unwrap_err();
    assert!(matches!(away, Error::Away { doing: "connect", .. }), "{away:?}");
    server.restart();
    assert_eq!(ledger.transact(Time(3), &[save(1), note()]).unwrap(), [Reply::Saved(2), Reply::Appended(2)]);
    assert_eq!(replay(&ledger, drop).unwrap(), 2);
}

#[test]
fn a_sign_of_life_is_answered_with_all_that_an_idle_node_wants_to_know() {
    let mut hub = hub();
    let node = NodeId::new("a");
    let first = hub.beat(Time(1_000), &node, "{}").unwrap();
    assert_eq!(first, HeartbeatReply { at: Time(1_000), led_until: None, wish: None, waiting: false, seq: 0 });
    let lease = std::time::Duration::from_secs(15);
    let body = "\"drain\" \u{1}".to_owned();
    hub.transact(
        Time(2_000),
        &[
            Op::Elect { node: NodeId::new("b"), lease },
            Op::SaveDoc { kind: "node".into(), key: "a".into(), version: 0, body: body.clone() },
            note(),
            task("nobody's"),
        ],
    )
    .unwrap();
    let second = hub.beat(Time(3_000), &node, "{\"x\":1}").unwrap();
    let led_until = Some(Time(17_000));
    assert_eq!(second, HeartbeatReply { at: Time(3_000), led_until, wish: Some(body), waiting: false, seq: 1 });
    assert_eq!(hub.beat(Time(3_000), &NodeId::new("b"), "{}").unwrap().led_until, None);
    let Op::Enqueue(owned) = task("k3f9-1") else { panic!("a task") };
    hub.transact(Time(4_000), &[Op::Enqueue(NewTask { owner: Some(LoopId::new("k3f9")), ..owned })]).unwrap();
    assert!(hub.beat(Time(5_000), &NodeId::new("c"), "{}").unwrap().waiting);
    let rows: Vec<(String, String, Time)> =
        hub.nodes().unwrap().into_iter().map(|row| (row.node.to_string(), row.info, row.seen_at)).collect();
    let seen = |name: &str, info: &str, at| (name.to_owned(), info.to_owned(), Time(at));
    assert_eq!(rows, [seen("a", "{\"x\":1}", 3_000), seen("b", "{}", 3_000), seen("c", "{}", 5_000)]);
}

#[test]
fn a_supervisor_hears_of_what_changed_and_of_what_rests_and_of_nothing_else() {
    let mut hub = hub();
    let save = |kind: &str, key: &str, version| {
        let (kind, key, body) = (kind.to_owned(), key.to_owned(), format!("{key} {version}"));
        Op::SaveDoc { kind, key, version, body }
    };
    let batch = [save("mesh", "b", 0), save("mesh", "a", 0), save("mesh", "a", 1), save("node", "a", 0)];
    hub.transact(Time(1), &batch).unwrap();
    assert_eq!(hub.doc_versions("mesh").unwrap(), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let named = hub.docs_named("mesh", &["gone".to_owned(), "a".to_owned()]).unwrap();
    assert_eq!(named.iter().map(|doc| doc.body.as_str()).collect::<Vec<_>>(), ["a 1"]);
    let of_loop = |id: &str| match task(id) {
        Op::Enqueue(task) => Op::Enqueue(NewTask { owner: Some(LoopId::new("k")), ..task }),
        other => other,
    };
    hub.transact(Time(10), &[of_loop("old"), task("nobodys"), of_loop("held"), task("claimed")]).unwrap();
    hub.transact(Time(20), &[of_loop("new")]).unwrap();
    let take = |id: &str| {
        let (task, node) = (TaskId::new(id), NodeId::new("a"));
        Op::Take { task, fence: Fence(1), node, lease: std::time::Duration::from_millis(5) }
    };
    hub.transact(Time(20), &[take("held"), take("claimed")]).unwrap();
    let ids = |queued, leased| {
        let rows = hub.resting(Time(queued), Time(leased), 10).unwrap();
        rows.into_iter().map(|row| row.task.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(19, 24), ["old"], "neither what is new nor what is held");
    assert_eq!(ids(9, 25), ["claimed", "held"]);
    assert_eq!(hub.resting(Time(99), Time(99), 1).unwrap().len(), 2, "one of each");
}
