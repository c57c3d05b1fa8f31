//! `everloop mesh trust` and `mesh sign`: a node runs what trusted keys signed, and the leader
//! merges what trusted nodes report, whatever the hub holds. Real processes and a real PostgreSQL.

use std::net::TcpListener;

use everloop_testkit::postgres::server;
use serde_json::Value;

use crate::env::Env;
use crate::mesh::{Fleet, WORKER, files};
use crate::mesh_join::hub;

impl Fleet {
    fn sql(&self, sql: &str) -> String {
        server().psql(&self.database, sql)
    }

    /// Waits for an open ticket of this kind; returns its text.
    #[track_caller]
    fn ticket(&self, kind: &str) -> String {
        let sql = format!("select text from everloop.tickets where key like '{kind}:%' and closed_at is null");
        let mut text = String::new();
        self.operator.wait_for(&format!("a ticket `{kind}`"), || {
            text = self.sql(&sql);
            !text.is_empty()
        });
        text
    }

    fn fingerprint(&self, node: &str) -> String {
        let keys = self.operator.run(&["mesh", "trust", "--json"]).ok().json();
        let all = keys["keys"].as_array().expect("a list");
        let found = all.iter().find(|key| key["node"] == node).unwrap_or_else(|| panic!("{keys:#}"));
        found["fingerprint"].as_str().expect("it has one").to_owned()
    }
}

#[test]
fn a_node_runs_nothing_of_a_key_that_it_does_not_trust_until_a_person_trusts_it() {
    let mut fleet = Fleet::strangers(1);
    let id = fleet.run(WORKER, &files(1));
    fleet.nodes[0].start();
    let text = fleet.ticket("distrust");
    let desk = fleet.fingerprint("desk");
    assert!(
        text.contains(&format!("node n1 runs nothing of loop {id}: its commands are signed by key {desk}")),
        "{text}"
    );
    let node = &fleet.nodes[0].env;
    let shown = node.run(&["mesh", "show", &id]).ok().stdout;
    assert!(
        shown.contains("Refused   this node runs and believes nothing of it") && shown.contains("everloop mesh trust"),
        "{shown}"
    );
    assert!(node.run(&["mesh", "list"]).ok().stdout.contains("not trusted here"));
    node.wait_for_words(&["status"], &["runs nothing of loop"]);
    let shown = fleet.operator.run(&["mesh", "show", &id]).ok().stdout;
    assert!(shown.contains("Ticket    mesh:1 node n1 runs nothing of loop"), "{shown}");
    assert_eq!(fleet.show(&id)["loop"]["judged"], Value::Null, "not even the checks were run");
    assert!(!node.state().join("mesh").join(&id).exists(), "nothing was cloned");
    let unknown = node.run(&["mesh", "trust", "n9"]).exits(2);
    assert!(unknown.stderr.contains("the hub lists no node, key or fingerprint `n9`"), "{}", unknown.stderr);
    node.run(&["mesh", "trust", &desk]).ok();
    fleet.proved(&id, 1);
    fleet.operator.wait_for("the ticket is closed", || {
        fleet.sql("select count(*) from everloop.tickets where key like 'distrust:%' and closed_at is null") == "0"
    });
}

#[test]
fn a_check_that_was_changed_in_the_hub_is_not_run() {
    let mut fleet = Fleet::new(1);
    let id = fleet.run(WORKER, &files(1));
    let trap = fleet.operator.project().join("../trap");
    let sql = format!(
        "update everloop.docs set body = replace(body, 'test -f done/0', 'touch {}'), version = version + 1
         where kind = 'mesh' and key = '{id}'",
        trap.display()
    );
    fleet.sql(&sql);
    fleet.nodes[0].start();
    let text = fleet.ticket("distrust");
    assert!(text.contains("it was changed in the hub") && text.contains(&fleet.fingerprint("desk")), "{text}");
    let shown = fleet.operator.run(&["mesh", "sign", &id]).exits(2);
    assert!(shown.stderr.contains(&format!("Check     touch {}", trap.display())), "{}", shown.stderr);
    assert!(shown.stderr.contains("nothing was signed"), "{}", shown.stderr);
    assert_eq!(fleet.show(&id)["loop"]["judged"], Value::Null);
    assert!(!trap.exists(), "it was not run");
    // Nor is an end believed that no key signed.
    fleet.sql(&format!(
        "update everloop.docs set body = replace(body, '\"ended\":null', '\"ended\":{{\"is\":\"reached\"}}'),
         version = version + 1 where kind = 'mesh' and key = '{id}'"
    ));
    let shown = fleet.operator.run(&["mesh", "show", &id]).ok().stdout;
    assert!(shown.contains("believes nothing of it: it was changed in the hub"), "{shown}");
    assert!(!trap.exists());
}

#[test]
fn a_state_that_was_changed_in_the_hub_proves_nothing() {
    let mut fleet = Fleet::new(1);
    let flag = fleet.operator.project().join("../flag");
    let id = fleet.run(&format!("until [ -e {} ]; do sleep 0.1; done\n{WORKER}", flag.display()), &files(1));
    fleet.nodes[0].start();
    fleet.nodes[0].env.wait_for_agent();
    // The scoreboard in the hub says that all is done.
    let sql = format!(
        "update everloop.docs set body = replace(body, '{{\"is\":\"fail\"}}', '{{\"is\":\"pass\"}}'), version = version + 1
         where kind = 'mesh' and key = '{id}'"
    );
    fleet.sql(&sql);
    let text = fleet.ticket("distrust");
    assert!(text.contains("it was changed in the hub"), "{text}");
    assert_eq!(fleet.show(&id)["loop"]["ended"], Value::Null, "{:#}", fleet.show(&id));
    // A person looks at it, puts it right and signs.
    fleet.sql(&sql.replace("pass", "PASS").replace("fail", "pass").replace("PASS", "fail"));
    fleet.operator.run(&["mesh", "sign", &id, "--yes"]).ok();
    std::fs::write(&flag, "").expect("the folder is the test's");
    fleet.proved(&id, 1);
}

#[test]
fn a_forged_report_is_refused_with_a_ticket_and_the_work_is_done_again() {
    let mut fleet = Fleet::new(1);
    let flag = fleet.operator.project().join("../flag");
    let id = fleet.run(&format!("until [ -e {} ]; do sleep 0.1; done\n{WORKER}", flag.display()), &files(1));
    fleet.nodes[0].start();
    fleet.nodes[0].env.wait_for_agent();
    // Work that would pass, pushed by something that can reach hub and remote, but has no key.
    let operator = &fleet.operator;
    operator.git_run(&["checkout", "-q", "-b", "evil"]);
    operator.write("done/0", "evil\n");
    operator.git_run(&["add", "-A"]);
    operator.git_run(&["commit", "-q", "-m", "evil"]);
    operator.git_run(&["push", "-q", "origin", "evil:refs/everloop/evil"]);
    let commit = operator.git_run(&["rev-parse", "evil"]);
    let report = format!(
        r#"{{"node":"n1","reached":true,"commit":"{}","reference":"refs/everloop/evil","turns":1,"microusd":0,"tokens":0,"fence":1,"short":false,"why":""}}"#,
        commit.trim()
    );
    fleet.sql(&format!(
        "update everloop.tasks set state = 'done', node = null, until = null, result = '{report}' where id = '{id}-1'"
    ));
    let text = fleet.ticket("report");
    assert!(text.contains("it names node n1 and is not signed"), "{text}");
    std::fs::write(&flag, "").expect("the folder is the test's");
    fleet.proved(&id, 1);
    assert!(!fleet.git(&["log", "--format=%s", "main"]).contains("evil"));
    assert_ne!(fleet.git(&["show", "main:done/0"]), "evil\n");
}

#[test]
fn the_report_of_an_unknown_node_waits_until_a_person_trusts_its_key() {
    let mut fleet = Fleet::strangers(2);
    fleet.nodes[0].env.run(&["mesh", "trust", "desk"]).ok();
    fleet.nodes[1].env.run(&["mesh", "trust", "--all"]).ok();
    // The first leads, and takes nothing.
    fleet.nodes[0].env.run(&["guard", "hold", "--reason", "its fan is loud"]).ok();
    fleet.nodes[0].start();
    let leads = || fleet.sql("select node from everloop.leader") == "n1";
    fleet.operator.wait_for("the first leads", leads);
    fleet.nodes[1].start();
    let id = fleet.run(WORKER, &files(1));
    let text = fleet.ticket("report");
    let key = fleet.fingerprint("n2");
    assert!(text.contains(&format!("it is signed by key {key} of node n2, which the leader does not trust")), "{text}");
    assert_eq!(fleet.show(&id)["loop"]["landed_count"], 0);
    fleet.nodes[0].env.run(&["mesh", "trust", "n2"]).ok();
    fleet.proved(&id, 1);
    let state = fleet.end_of(&id);
    assert_eq!((&state["landed"][0]["node"], &state["made"]), (&"n2".into(), &1.into()), "nothing was done twice");
}

/// A loop as a hub of format 4 holds it.
const OLD_LOOP: &str = include_str!("../fixtures/mesh-loop-2.json");

#[test]
fn a_hub_of_format_4_is_migrated_and_its_loops_run_after_a_person_signed_them() {
    let mut fleet = Fleet::strangers(1);
    // As an older everloop left them: no keys, and a loop without signatures.
    fleet.sql(
        "update everloop.hub set format = 4; delete from everloop.docs;
         drop policy docs_read on everloop.docs; drop policy docs_made on everloop.docs;
         drop policy docs_changed on everloop.docs; drop policy tickets_read on everloop.tickets;
         drop policy tickets_opened on everloop.tickets; drop policy tickets_closed on everloop.tickets;
         drop trigger worker_changes_task on everloop.tasks; drop function everloop.worker_changes_task();
         drop function everloop.adopt(text);
         drop table everloop.stream_groups, everloop.stream_entries, everloop.streams",
    );
    for env in [&fleet.operator, &fleet.nodes[0].env] {
        std::fs::remove_file(env.state().join("mesh-key.json")).expect("it was drawn at join");
        std::fs::remove_file(env.state().join("mesh-trust.json")).ok();
    }
    let agent = fleet.operator.script("../agent.sh", WORKER);
    let remote = fleet.operator.project().join("../shared.git").canonicalize().expect("it was cloned");
    let body = OLD_LOOP.trim().replace("@REMOTE@", &remote.display().to_string()).replace("@AGENT@", &agent);
    let insert = format!(
        "insert into everloop.docs values ('mesh' || chr(31) || 'k3f9', 'mesh', 'k3f9', 1, 0, '{}')",
        body.replace('\'', "''")
    );
    fleet.sql(&insert);
    let older = fleet.operator.run(&["mesh", "list"]).exits(1);
    assert!(older.stderr.contains("hint: migrate it: everloop mesh hub migrate"), "{}", older.stderr);
    let migrated = fleet.operator.run(&["mesh", "hub", "migrate"]).ok().stdout;
    assert!(migrated.contains("from format 4 to 8"), "{migrated}");
    fleet.nodes[0].start();
    let text = fleet.ticket("distrust");
    assert!(text.contains("made before signatures") && text.contains("`everloop mesh sign k3f9`"), "{text}");
    let shown = fleet.operator.run(&["mesh", "show", "k3f9"]).ok().stdout;
    assert!(shown.contains("Signed    by no key") && shown.contains("Refused   "), "{shown}");
    fleet.operator.run(&["mesh", "sign", "k3f9", "--yes"]).ok();
    fleet.nodes[0].env.run(&["mesh", "trust", "desk"]).ok();
    fleet.proved("k3f9", 1);
}

#[test]
fn keys_are_listed_trusted_and_revoked() {
    let url = hub();
    let (one, two) = (Env::new().var("EVERLOOP_HUB_URL", &url), Env::new().var("EVERLOOP_HUB_URL", &url));
    let first = one.run(&["mesh", "join", "--name", "one", "--json"]).ok().json();
    assert_eq!(first["trusted"], serde_json::json!([]), "there is no other");
    let second = two.run(&["mesh", "join", "--name", "two"]).ok().stdout;
    let key = first["fingerprint"].as_str().expect("it has a key");
    assert!(second.contains(&format!("key {key} of node `one`: not trusted")), "{second}");
    assert!(second.contains("everloop mesh trust NODE") && second.contains("everloop mesh trust two"), "{second}");
    let trust = |env: &Env, node: &str| -> String {
        let keys = env.run(&["mesh", "trust", "--list", "--json"]).ok().json();
        let all = keys["keys"].as_array().expect("a list").clone();
        let found = all.iter().find(|key| key["node"] == node).unwrap_or_else(|| panic!("{keys:#}"));
        found["trust"].as_str().expect("a word").to_owned()
    };
    assert_eq!((trust(&two, "one"), trust(&two, "two")), ("not trusted".to_owned(), "this node".to_owned()));
    two.run(&["mesh", "join", "--trust", key]).ok();
    assert_eq!(trust(&two, "one"), "trusted");
    // On a terminal it asks.
    for (keys, answer) in [("n\n", "not trusted"), ("\n", "trusted")] {
        let asked = Env::new().var("EVERLOOP_HUB_URL", &url);
        let said = asked.on_terminal(&["mesh", "join", "--name", &format!("desk-{}", keys.len())], keys).ok();
        assert!(said.stdout.contains(key) && trust(&asked, "one") == answer, "{said:?}");
        asked.run(&["mesh", "leave"]).ok();
    }
    two.run(&["mesh", "trust", "--revoke", "one"]).ok();
    assert_eq!(trust(&two, "one"), "not trusted");
    assert!(two.run(&["mesh", "trust", "--revoke", "one"]).exits(2).stderr.contains("is not on the trust list"));
    assert!(two.run(&["mesh", "trust", "--revoke", "two"]).exits(2).stderr.contains("always trusts its own key"));
    // The name of another machine is not taken over in passing.
    let thief = Env::new().var("EVERLOOP_HUB_URL", &url);
    let taken = thief.run(&["mesh", "join", "--name", "one"]).exits(1);
    assert!(taken.stderr.contains("the hub lists another key for node `one`"), "{}", taken.stderr);
    two.run(&["mesh", "trust", "one"]).ok();
    // A new key has to be trusted again.
    one.run(&["mesh", "join", "--new-key"]).ok();
    assert_eq!(trust(&two, "one"), "ANOTHER KEY is trusted");
    two.run(&["mesh", "trust", "--all"]).ok();
    assert_eq!(trust(&two, "one"), "trusted");
    two.run(&["mesh", "leave"]).ok();
    assert!(!two.state().join("mesh-trust.json").exists(), "trust belongs to a mesh");
}

#[test]
fn a_key_that_another_key_lists_is_shown_as_not_valid() {
    let url = hub();
    let env = Env::new().var("EVERLOOP_HUB_URL", &url);
    env.run(&["mesh", "join", "--name", "one"]).ok();
    let database = url.rsplit('/').next().expect("an address ends with its database");
    server().psql(
        database,
        "insert into everloop.docs select 'key' || chr(31) || 'two', 'key', 'two', 1, 0, replace(body, '\"one\"', '\"two\"')
         from everloop.docs where kind = 'key'",
    );
    let listed = env.run(&["mesh", "trust"]).ok().stdout;
    assert!(listed.contains("not valid") && listed.contains("did not sign that"), "{listed}");
    env.run(&["mesh", "trust", "two"]).exits(2);
}

#[test]
fn a_hub_beyond_this_machine_is_not_even_called_without_a_verified_identity() {
    // On Linux this address reaches this machine; it is not loopback all the same.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("a socket can be polled");
    let port = listener.local_addr().expect("it is bound").port();
    let url = format!("postgres://u:s3cret@0.0.0.0:{port}/d?sslmode=require");
    let env = Env::new();
    for verb in [vec!["mesh", "join", &url], vec!["mesh", "hub", "check", "--url", &url]] {
        let refused = env.run(&verb).exits(7);
        assert!(refused.stderr.contains("is beyond this machine"), "{}", refused.stderr);
        assert!(refused.stderr.contains("sslmode=verify-full") && refused.stderr.contains("--insecure-hub"));
        assert!(!refused.stderr.contains("s3cret"), "{}", refused.stderr);
        assert!(listener.accept().is_err(), "it was called");
    }
    assert!(!env.state().join("hub.json").exists());
    env.run(&["mesh", "hub", "check", "--insecure-hub", "--url", &url]).exits(6);
    assert!(listener.accept().is_ok(), "the person said so");
}
