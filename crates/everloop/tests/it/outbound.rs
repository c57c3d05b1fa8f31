//! Outbound reports: `[mailbox]` and `[tracker]`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everloop_store::{Ledger, OpenMode, Sqlite};
use serde_json::{Value, json};

use crate::env::Env;

/// A tracker behind a port: what it received, and how it answers.
struct Server {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    fn new(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = Self {
            address: listener.local_addr().expect("it is bound"),
            status: Arc::new(AtomicU16::new(status)),
            heard: Arc::default(),
        };
        let (status, heard) = (Arc::clone(&server.status), Arc::clone(&server.heard));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let status = status.load(Ordering::SeqCst);
                let Some((head, body)) = hear(stream, status) else { continue };
                if status < 300 {
                    heard.lock().expect("no holder panics").push((head, body));
                }
            }
        });
        server
    }

    /// What it accepted: event and task, in order.
    fn took(&self) -> Vec<String> {
        let heard = self.heard.lock().expect("no holder panics");
        let tasks = heard.iter().filter(|(_, body)| body["kind"] == "task");
        tasks.map(|(_, body)| format!("{} {}", body["action"], body["task"]["title"]).replace('"', "")).collect()
    }

    fn all(&self) -> Vec<(String, Value)> {
        self.heard.lock().expect("no holder panics").clone()
    }
}

fn hear(mut stream: TcpStream, status: u16) -> Option<(String, Value)> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str::<Value>(body)
        {
            stream.write_all(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").as_bytes()).ok()?;
            return Some((head.to_ascii_lowercase(), body));
        }
        match stream.read(&mut part).ok()? {
            0 => return None,
            n => bytes.extend_from_slice(&part[..n]),
        }
    }
}

/// A loop with a server as tracker and mailbox; it has nothing to do until `go` is there.
fn served(server: &Server) -> Env {
    let env = Env::new().var("TRACKER_TOKEN", "s3cret-t0ken");
    let (url, address) = (format!("http://{}/everloop", server.address), server.address);
    let toml = format!(
        "[tracker]\nurl = \"{url}\"\ntoken_env = \"TRACKER_TOKEN\"\n[mailbox]\nevery = 1\nurl = \"http://{address}/status\"\n{}",
        PROJECT.split_once("[loop.x]").map(|(_, rest)| format!("[loop.x]{rest}")).expect("there is a loop")
    );
    env.write("everloop.toml", &toml.replace("min_gap = \"100ms\"", "min_gap = \"1h\""));
    env.run(&["config", "check"]).ok();
    env
}

fn add(env: &Env, title: &str) -> String {
    let task = env.run(&["task", "add", title, "--json"]).ok().json()["task"].clone();
    task.as_str().expect("`add` prints the id").to_owned()
}

fn finish(env: &Env, id: &str) {
    env.run(&["task", "claim", id]).ok();
    env.run(&["task", "done", id, "--fence", "1"]).ok();
}

#[test]
fn a_server_hears_it_too_with_its_token_and_a_key_for_each() {
    let server = Server::new(204);
    let env = served(&server);
    let run = env.spawn(&["run"]);
    env.wait_for("a turn was reported", || server.all().iter().any(|(_, body)| body["kind"] == "status"));
    let id = add(&env, "port it");
    env.wait_for("the task was reported", || server.took() == ["create port it"]);
    finish(&env, &id);
    env.run(&["wake"]).ok();
    env.wait_for("and its end", || server.took().last().is_some_and(|last| last == "complete port it"));
    let heard = server.all();
    let (head, body) = heard.iter().find(|(_, body)| body["action"] == "create").expect("it was just there");
    assert!(
        head.starts_with("post /everloop http/1.1") && head.contains("authorization: bearer s3cret-t0ken"),
        "{head}"
    );
    assert!(head.contains(&format!("idempotency-key: {id}:create:0")), "{head}");
    assert_eq!((&body["key"], &body["task"]["id"]), (&json!(format!("{id}:create:0")), &json!(id)));
    let status = heard.iter().find(|(_, body)| body["kind"] == "status").expect("it was just there");
    assert!(!status.0.contains("authorization"), "a token goes only to its own receiver: {}", status.0);
    drop(run);
    let grep =
        std::process::Command::new("grep").args(["-ral", "s3cret-t0ken"]).arg(env.state()).output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "the token is in the state folder");
}

#[test]
fn what_happened_while_nobody_listened_is_told_once_and_in_order() {
    let server = Server::new(503);
    let env = served(&server);
    let run = env.spawn(&["run"]);
    env.wait_for("it works", || env.run(&["logs"]).stdout.contains("ended"));
    let first = add(&env, "first");
    add(&env, "second");
    finish(&env, &first);
    env.run(&["why"]).ok();
    server.status.store(200, Ordering::SeqCst);
    env.wait_for("they listen again", || {
        env.run(&["wake"]).ok();
        server.took().len() == 3
    });
    assert_eq!(server.took(), ["create first", "create second", "complete first"]);
    drop(run);
}

#[test]
fn what_happened_while_we_were_dead_is_told_once_and_in_order() {
    let server = Server::new(200);
    let env = served(&server);
    let run = env.spawn(&["run"]);
    env.wait_for("a turn was reported", || server.all().iter().any(|(_, body)| body["kind"] == "status"));
    let first = add(&env, "first");
    env.wait_for("the task was reported", || server.took() == ["create first"]);
    // Killed before that was recorded, it would be sent again, under the same key.
    let written = || {
        let ledger = Sqlite::open(&env.state().join("ledger.db"), OpenMode::ReadOnly).expect("there is one");
        ledger.docs("tracker").expect("it can be read").iter().any(|row| row.body.contains(&first))
    };
    env.wait_for("that is known", written);
    drop(run);
    finish(&env, &first);
    let second = add(&env, "second");
    add(&env, "third");
    finish(&env, &second);
    let run = env.spawn(&["run"]);
    let all = ["create first", "complete first", "create second", "create third", "complete second"];
    env.wait_for("all of it was reported", || server.took().len() >= all.len());
    assert_eq!(server.took(), all);
    // The end is reported, too, and nothing of it again by the next supervisor.
    env.run(&["stop"]).ok();
    run.wait().exits(3);
    let ended = |(_, body): &&(String, Value)| body["kind"] == "status" && body["phase"] == "stopped";
    assert_eq!(server.all().iter().filter(ended).count(), 1);
    env.run(&["resume", "-n", "2"]).ok();
    assert_eq!(server.took(), all);
}

const PROJECT: &str = r#"
[mailbox]
every = 2
command = ["sh", "-c", "cat >> ../tmp/heard.jsonl"]
writable = ["TMP"]

[tracker]
command = ["sh", "-c", "echo \"$1 $2\" >> ../tmp/tracked; cat > /dev/null", "tracker"]
writable = ["TMP"]

[loop.x]
goal = "x"
checks = ["test -f done"]
agent_cmd = "if test -f go; then touch done; fi"
[loop.x.guard]
min_gap = "100ms"
per_hour = "none"
"#;

/// The project, with the folder that its commands may write.
fn project(env: &Env) -> String {
    let tmp = env.project().join("../tmp").canonicalize().expect("it was made");
    PROJECT.replace("TMP", &tmp.display().to_string())
}

fn lines(env: &Env, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(env.project().join("../tmp").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn others_are_told_of_turns_and_tasks_in_their_order() {
    let env = Env::new();
    env.write("everloop.toml", &project(&env));
    let run = env.spawn(&["run"]);
    env.wait_for("two turns were reported", || !lines(&env, "heard.jsonl").is_empty());
    let first: Value = serde_json::from_str(&lines(&env, "heard.jsonl")[0]).expect("a status is JSON");
    assert_eq!((&first["kind"], &first["turns"], &first["name"]), (&json!("status"), &json!(2), &json!("x")));
    let task = env.run(&["task", "add", "port it", "--json"]).ok().json()["task"].clone();
    let id = task.as_str().expect("`add` prints the id");
    env.wait_for("the task was reported", || lines(&env, "tracked").contains(&format!("create {id}")));
    env.run(&["task", "claim", id]).ok();
    env.run(&["wake"]).ok();
    env.wait_for("so was its holder", || lines(&env, "tracked").contains(&format!("claim {id}")));
    env.run(&["task", "done", id, "--fence", "1"]).ok();
    env.wait_for("and its end", || lines(&env, "tracked").contains(&format!("complete {id}")));
    env.write("go", "");
    run.wait().ok();
}

#[test]
fn an_outside_that_is_away_or_hangs_disturbs_nothing() {
    let env = Env::new();
    let away = project(&env)
        .replace("cat >> ../tmp/heard.jsonl", "sleep 600")
        .replace(r#"command = ["sh", "-c", "echo"#, r#"command = ["no-such-program", "-c", "echo"#)
        .replace("every = 2", "every = 1");
    env.write("everloop.toml", &away);
    env.write("go", "");
    env.run(&["task", "add", "port it"]).ok();
    env.run(&["run"]).ok();
    env.run(&["replay"]).ok();
}
