//! `everloop mesh hub` against a PostgreSQL server of its own: addresses, secrets, rights, exit
//! codes.

use everloop_testkit::postgres::{Login, Pooler, PostgresServer, ServerSetup, server};

use crate::env::Env;

fn database() -> (String, String) {
    let url = server().database();
    let name = url.rsplit('/').next().expect("an address ends with its database").to_owned();
    (url, name)
}

#[test]
fn a_hub_is_made_checked_and_made_again() {
    let (url, _) = database();
    let env = Env::new().var("EVERLOOP_HUB_URL", &url);
    let before = env.run(&["mesh", "hub", "check", "--json"]).exits(1).json();
    assert_eq!((&before["ok"], &before["hub"]), (&false.into(), &serde_json::Value::Null));
    let migrate = env.run(&["mesh", "hub", "migrate"]).exits(1);
    assert!(migrate.stderr.contains("hint: create it: everloop mesh hub init"), "{}", migrate.stderr);
    let made = env.run(&["mesh", "hub", "init", "--json"]).ok().json();
    assert_eq!(env.run(&["mesh", "hub", "init", "--json"]).ok().json(), made, "twice is once");
    let after = env.run(&["mesh", "hub", "check", "--json"]).ok().json();
    assert_eq!((&after["ok"], &after["hub"], &after["format"]), (&true.into(), &made["hub"], &8.into()));
    assert_eq!(
        (&after["pooled"], &after["encrypted"], &after["lacking"]),
        (&false.into(), &false.into(), &serde_json::json!([]))
    );
    assert!(after["server_version"].as_str().is_some_and(|v| !v.is_empty()), "{after}");
    assert!(after["round_trip_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms < 5000.0), "{after}");
    assert!(after["clock_offset_ms"].as_i64().is_some_and(|ms| ms.abs() < 5000), "the same machine: {after}");
    assert!(env.run(&["mesh", "hub", "migrate"]).ok().stdout.contains("is up to date (format 8)"));
    let text = env.run(&["mesh", "hub", "check"]).ok().stdout;
    assert!(text.contains("direct") && text.contains("all that a node needs"), "{text}");
}

#[test]
fn another_format_is_refused_with_the_way_out() {
    let (url, name) = database();
    let env = Env::new().var("EVERLOOP_HUB_URL", &url);
    env.run(&["mesh", "hub", "init"]).ok();
    server().psql(&name, "update everloop.hub set format = 99");
    let newer = env.run(&["mesh", "hub", "init"]).exits(1);
    assert!(
        newer.stderr.contains("has format 99, newer") && newer.stderr.contains("hint: use the everloop that wrote it")
    );
    assert!(env.run(&["mesh", "hub", "check"]).exits(1).stdout.contains("format 99 of 8"));
    server().psql(&name, "update everloop.hub set format = 0");
    let older = env.run(&["mesh", "hub", "init"]).exits(1);
    assert!(older.stderr.contains("hint: migrate it: everloop mesh hub migrate"), "{}", older.stderr);
}

#[test]
fn the_address_is_found_where_the_file_says_and_never_stands_in_it() {
    let (url, _) = database();
    let env = Env::new().var("MY_HUB", &url);
    let nowhere = env.run(&["mesh", "hub", "init"]).exits(7);
    assert!(nowhere.stderr.contains("the address of the hub is not set"), "{}", nowhere.stderr);
    env.write("everloop.toml", "[hub]\nurl_env = \"MY_HUB\"\n");
    env.run(&["mesh", "hub", "init"]).ok();
    env.write("everloop.toml", "[hub]\nurl_env = \"NOT_SET\"\n");
    assert!(env.run(&["mesh", "hub", "check"]).exits(7).stderr.contains("`NOT_SET`, which is not set"));
    env.write("secret", &format!("{url}\n"));
    env.write("everloop.toml", "[hub]\nurl_file = \"secret\"\n");
    env.run(&["mesh", "hub", "check"]).ok();
    env.write("everloop.toml", "[hub]\nurl_file = \"gone\"\n");
    env.run(&["mesh", "hub", "check"]).exits(7);
    for line in ["url", "ur1", "url_env"] {
        env.write("everloop.toml", &format!("[hub]\n{line} = \"postgres://me:s3cret@db.example.com/x\"\n"));
        let refused = env.run(&["mesh", "hub", "check"]).exits(7);
        assert!(!refused.stderr.contains("s3cret") && !refused.stdout.contains("s3cret"), "{}", refused.stderr);
        assert!(line != "url" || refused.stderr.contains("hint: it holds a password"), "{}", refused.stderr);
    }
    env.write("everloop.toml", "[hub]\nurl_env = \"A\"\nurl_file = \"b\"\n");
    assert!(env.run(&["config", "check"]).exits(7).stderr.contains("both `url_env` and `url_file`"));
}

#[test]
fn the_address_of_the_command_line_and_of_the_variable_stand_above_the_file() {
    let (url, _) = database();
    let env = Env::new();
    env.write("everloop.toml", "[hub]\nurl_env = \"NOT_SET\"\n");
    env.run(&["mesh", "hub", "init", "--url", &url]).ok();
    env.var("EVERLOOP_HUB_URL", &url).run(&["mesh", "hub", "check"]).ok();
}

#[test]
fn who_is_away_and_who_does_not_let_us_in_are_told_apart_and_no_password_is_shown() {
    let server = PostgresServer::start(ServerSetup { login: Login::Password("s3cret"), ..ServerSetup::default() });
    let url = server.database();
    let silent = |output: &crate::env::Output| {
        assert!(!format!("{}{}", output.stdout, output.stderr).contains("s3cret"), "{output:?}");
    };
    let right = Env::new().var("EVERLOOP_HUB_URL", &url);
    silent(&right.run(&["mesh", "hub", "init"]).ok());
    silent(&right.run(&["mesh", "hub", "check", "--json"]).ok());
    silent(&right.run(&["mesh", "hub", "--help"]).ok());
    let wrong = Env::new().var("EVERLOOP_HUB_URL", &url.replace("s3cret", "s3cret-not"));
    let denied = wrong.run(&["mesh", "hub", "check"]).exits(7);
    silent(&denied);
    assert!(denied.stderr.contains("password authentication failed"), "{}", denied.stderr);
    drop(server);
    let away = right.run(&["mesh", "hub", "check"]).exits(6);
    silent(&away);
    assert!(away.stderr.contains("the hub cannot be reached"), "{}", away.stderr);
    let bad = right.run(&["mesh", "hub", "check", "--url", "mysql://me:s3cret@h/d"]).exits(7);
    silent(&bad);
    assert!(bad.stderr.contains("hint: write `postgres://"), "{}", bad.stderr);
}

#[test]
fn the_least_rights_suffice_and_missing_ones_are_named() {
    let (url, name) = database();
    let env = Env::new().var("EVERLOOP_HUB_URL", &url);
    env.run(&["mesh", "hub", "init"]).ok();
    let sql = env.run(&["mesh", "hub", "init", "--print-sql", "--role", "node_1"]).ok().stdout;
    server().psql(&name, &sql);
    let least = server().url_as("node_1", "", &name);
    let found = env.run(&["mesh", "hub", "check", "--json", "--url", &least]).ok().json();
    assert_eq!(found["lacking"], serde_json::json!([]));
    assert_eq!(found["rights"], "leader");
    server().psql(&name, "revoke insert on everloop.journal from node_1");
    let found = env.run(&["mesh", "hub", "check", "--url", &least]).exits(1);
    assert!(found.stdout.contains("INSERT on journal") && found.stdout.contains("--print-sql"), "{}", found.stdout);
}

#[test]
fn a_worker_has_fewer_rights_and_is_told_so_where_it_matters() {
    let (url, name) = database();
    let desk = Env::new().git().var("EVERLOOP_HUB_URL", &url);
    desk.run(&["mesh", "hub", "init"]).ok();
    let sql = desk.run(&["mesh", "hub", "init", "--print-sql", "--worker", "--role", "laptops"]).ok().stdout;
    server().psql(&name, &sql);
    server().psql(&name, &sql);
    let least = server().url_as("laptops", "", &name);
    let found = desk.run(&["mesh", "hub", "check", "--json", "--url", &least]).ok().json();
    assert_eq!((&found["rights"], &found["lacking"]), (&"worker".into(), &serde_json::json!([])), "{found}");
    let text = desk.run(&["mesh", "hub", "check", "--url", &least]).ok().stdout;
    assert!(text.contains("all that a worker needs; it cannot lead"), "{text}");
    let laptop = Env::new().git().var("EVERLOOP_HUB_URL", &least);
    let joined = laptop.run(&["mesh", "join", "--name", "laptop"]).ok().stdout;
    assert!(joined.contains("it works on tasks, and never leads"), "{joined}");
    laptop.git_run(&["clone", "-q", "--bare", ".", "../shared.git"]);
    laptop.git_run(&["remote", "add", "origin", "../shared.git"]);
    server().psql(&name, "insert into everloop.nodes values ('laptop', '{}', 1)");
    let run = ["run", "g", "--mesh", "--detach", "--check", "false", "--agent-cmd", "true"];
    for (args, what) in [(&run[..], "make or change loops of the mesh"), (&["mesh", "drain", "laptop"], "drain")] {
        let refused = laptop.run(args).exits(7).stderr;
        let said = refused.contains(&format!("the rights of a worker, which may not {what}"));
        assert!(said && refused.contains("hint: do it on a machine with the login of a leader"), "{refused}");
    }
    let _up = laptop.spawn(&["up", "--listen", "off"]);
    laptop
        .wait_for_words(&["mesh", "nodes"], &["worker only", "nothing is merged until one with the login of a leader"]);
}

#[test]
fn a_pooler_is_seen() {
    let (url, name) = database();
    let pooler = Pooler::start(server());
    Env::new().run(&["mesh", "hub", "init", "--url", &url]).ok();
    let found = Env::new().run(&["mesh", "hub", "check", "--json", "--url", &pooler.url(&name)]).ok().json();
    assert_eq!(found["pooled"], true, "{found}");
}
