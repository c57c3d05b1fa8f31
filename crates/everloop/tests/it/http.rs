//! The supervisor's HTTP port: access, answers, and that no client can make it grow, hang or reveal
//! too much.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::env::{Background, Env, SOON, get, raw};

/// A supervisor on a port of its own.
fn up(env: &Env) -> (Background, SocketAddr) {
    let up = env.spawn(&["up", "--listen", "127.0.0.1:0"]);
    (up, env.port())
}

fn request(address: SocketAddr, line: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n");
    raw(address, format!("{head}{body}").as_bytes())
}

#[test]
fn health_and_metrics_say_what_happens_and_nothing_private() {
    let env = Env::new().git();
    let toml =
        "[loop.main]\ngoal = \"a private matter\"\nchecks = [\"test -f made.txt\"]\nagent_cmd = \"touch made.txt\"\n";
    env.write("everloop.toml", toml);
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "everloop.toml"]);
    env.run(&["trust"]).ok();
    let (_up, address) = up(&env);
    env.wait_for("the loop is over", || get(address, "/health").1.contains("\"reached\":1"));
    let (status, health) = get(address, "/health");
    assert_eq!(status, 200, "{health}");
    let told: Value = serde_json::from_str(&health).expect("health is JSON");
    assert_eq!((&told["schema_version"], &told["ok"], &told["role"]), (&json!(1), &json!(true), &json!("up")));
    assert_eq!(told["loops"], json!({ "reached": 1 }));
    assert_eq!((&told["agents_running"], &told["leases"]), (&json!(0), &json!(0)));
    assert!(told["ledger"]["last_seq"].as_u64().is_some_and(|seq| seq > 3), "{health}");
    let (status, metrics) = get(address, "/metrics");
    assert_eq!(status, 200);
    for line in [
        "everloop_turns_started_total 1",
        "everloop_turns_ended_total{outcome=\"reached\"} 1",
        "everloop_loops{phase=\"reached\"} 1",
        "everloop_ledger_up 1",
        "everloop_owner_overdue_seconds 0",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    for page in [health, metrics] {
        assert!(!page.contains("private") && !page.contains("everloop-it-"), "{page}");
    }
}

#[test]
fn a_waiting_loop_says_when_it_wakes() {
    let env = Env::new().git();
    let (_up, address) = up(&env);
    let words = ["run", "x", "--check", "false", "--agent-cmd", "true", "--min-gap", "1h", "--in-place", "--detach"];
    env.run(&words).ok();
    env.wait_for("it waits", || get(address, "/health").1.contains("\"waiting\":1"));
    let told: Value = serde_json::from_str(&get(address, "/health").1).expect("health is JSON");
    assert_eq!(told["next_wake"]["why"], "guard.gap");
    assert_eq!(told["loops"], json!({ "waiting": 1 }));
    let (_, metrics) = get(address, "/metrics");
    assert!(metrics.contains("everloop_permits_refused_total{rule=\"guard.gap\"} 1"), "{metrics}");
    assert!(metrics.contains("everloop_next_wake_timestamp_seconds "), "{metrics}");
}

#[test]
fn only_programs_of_this_machine_with_the_right_words_are_answered() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let head = |host: &str, more: &str| {
        raw(address, format!("GET /health HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes()).0
    };
    assert_eq!(head(&address.to_string(), ""), 200);
    assert_eq!(head(&format!("localhost:{}", address.port()), ""), 200);
    assert_eq!(head("evil.example", ""), 421, "a name that was made to point here");
    assert_eq!(head(&format!("evil.example:{}", address.port()), ""), 421);
    assert_eq!(head(&address.to_string(), &format!("Origin: http://{address}\r\n")), 200);
    assert_eq!(head(&address.to_string(), "Origin: https://evil.example\r\n"), 403);
    assert_eq!(head(&address.to_string(), "Origin: null\r\n"), 403);
    assert_eq!(raw(address, b"GET /health HTTP/1.0\r\n\r\n").0, 421);
    assert_eq!(raw(address, b"nonsense\r\n\r\n").0, 400);
    let token = fs::read_to_string(env.state().join("token")).expect("the token is there");
    let with = |token: &str| request(address, "GET /tomorrow", &format!("Authorization: Bearer {token}\r\n"), "").0;
    assert_eq!(get(address, "/tomorrow").0, 401);
    assert_eq!(with(&token.trim().replace(|c: char| c.is_ascii_digit(), "e")), 401);
    assert_eq!(with(token.trim()), 404);
    let (status, wrong) = request(address, "POST /health", "", "");
    assert!(status == 405 && wrong.to_lowercase().contains("\r\nallow: get"), "{wrong}");
    assert_eq!(head(&format!("{address}\r\nHost: evil.example"), ""), 421, "which of two is meant is not clear");
    assert_eq!(request(address, "POST /v1/logs", "Content-Type: application/json\r\n", "{}").0, 401);
    for name in ["token", "http.json"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(env.state().join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn pages_are_never_stored_or_guessed_at_and_are_compressed_on_request() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let page = |headers: &str| request(address, "GET /metrics", headers, "");
    let (_, plain) = page("");
    for header in
        ["cache-control: no-store", "x-content-type-options: nosniff", "content-type: text/plain; version=0.0.4"]
    {
        assert!(plain.to_lowercase().contains(&format!("\r\n{header}")), "{header}\n{plain}");
    }
    let (status, packed) = page("Accept-Encoding: gzip\r\n");
    assert!(status == 200 && packed.to_lowercase().contains("\r\ncontent-encoding: gzip"), "{packed}");
    assert!(plain.contains("everloop_ledger_up") && !packed.contains("everloop_ledger_up"), "{packed}");
    let (status, refused) = request(address, "GET /tomorrow", "", "");
    assert!(status == 401 && refused.to_lowercase().contains("\r\ncache-control: no-store"), "{refused}");
}

#[test]
fn a_head_that_is_too_long_is_refused_and_nothing_hangs() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let head = |bytes: usize| format!("GET /health HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(bytes));
    assert_eq!(raw(address, head(8 << 10).as_bytes()).0, 200);
    let (status, _) = raw(address, head(64 << 10).as_bytes());
    assert!(status == 431 || status == 0, "{status}: refused, or cut off while it was still sending");
    assert_eq!(get(address, "/health").0, 200);
}

#[test]
fn other_machines_are_never_listened_to() {
    let env = Env::new();
    let refused = env.run(&["up", "--listen", "0.0.0.0:9300"]).exits(2);
    assert!(refused.stderr.contains("other machines could reach"), "{}", refused.stderr);
    env.write("everloop.toml", "[node]\nlisten = \"0.0.0.0:9300\"\n");
    let refused = env.run(&["trust"]).exits(7);
    assert!(refused.stderr.contains("other machines could reach"), "{}", refused.stderr);
    env.write("everloop.toml", "[node]\nlisten = \"off\"\n");
    env.run(&["trust"]).ok();
    let up = env.spawn(&["up"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).json()["supervisor"]["role"] == "up");
    env.run(&["down"]).ok();
    let said = up.wait().exits(143);
    assert!(!said.stderr.contains("http://") && !env.state().join("http.json").exists(), "{}", said.stderr);
}

#[test]
fn a_taken_port_is_replaced_and_said_so() {
    let env = Env::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let wanted = taken.local_addr().expect("it is bound");
    let up = env.spawn(&["up", "--listen", &wanted.to_string()]);
    let address = env.port();
    assert_ne!(address, wanted);
    assert_eq!(get(address, "/health").0, 200);
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    assert_eq!(said.matches(&format!("{wanted} is taken")).count(), 1, "{said}");
    assert!(said.contains(&format!("health and metrics on http://{address}")), "{said}");
}

#[test]
fn the_port_is_the_usual_one_unless_a_variable_or_the_persons_file_names_another() {
    let env = Env::new();
    let up = env.spawn(&["up"]);
    let address = env.port();
    env.run(&["down"]).ok();
    let log = up.wait().exits(143).stderr;
    assert!(address.to_string() == "127.0.0.1:9300" || log.contains("127.0.0.1:9300 is taken"), "{address}: {log}");
    env.write("../home/.config/everloop/config.toml", "[node]\nlisten = \"off\"\n");
    let up = env.spawn(&["up"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).json()["supervisor"]["role"] == "up");
    env.run(&["down"]).ok();
    assert!(!up.wait().exits(143).stderr.contains("http://"));
    let env = env.var("EVERLOOP_LISTEN", "127.0.0.1:0");
    let _up = env.spawn(&["up"]);
    assert_eq!(get(env.port(), "/health").0, 200, "the variable stands above the file");
}

#[test]
fn health_is_503_while_the_ledger_cannot_be_read() {
    let env = Env::new();
    let (_up, address) = up(&env);
    env.wait_for("all is well", || get(address, "/health").0 == 200);
    fs::rename(env.state().join("ledger.db"), env.state().join("aside")).expect("it is there");
    fs::create_dir(env.state().join("ledger.db")).expect("the folder is the test's");
    env.wait_for("the loss is reported", || get(address, "/health").0 == 503);
}

#[test]
fn a_killed_supervisor_comes_back_on_its_port() {
    let env = Env::new();
    let (up, address) = up(&env);
    let token = fs::read(env.state().join("token")).expect("the token is there");
    up.signal(Signal::SIGKILL);
    up.wait();
    let (_again, back) = self::up(&env);
    assert_eq!(back, address);
    assert_eq!(fs::read(env.state().join("token")).expect("the token is there"), token);
    assert_eq!(get(address, "/health").0, 200);
}

#[test]
fn slow_clients_on_every_seat_are_shown_out() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let mut slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("the port is open");
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: ").expect("the kernel takes it");
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(get(address, "/health").0, 200);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    slow[0].set_read_timeout(Some(SOON)).expect("a socket takes a timeout");
    let mut rest = String::new();
    slow[0].read_to_string(&mut rest).expect("it was closed");
    assert!(!rest.contains("200"), "{rest}");
}

fn status_of(pid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
    let line = status.lines().find(|line| line.starts_with(name)).expect("Linux reports it");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

fn written(pid: i32) -> String {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("it is ours");
    io.lines().filter(|line| line.starts_with("wchar") || line.starts_with("syscw")).collect()
}

#[test]
fn a_thousand_requests_leave_nothing_behind() {
    let env = Env::new();
    let (up, address) = up(&env);
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", up.pid())).expect("it is ours").count();
    let ask = |times: usize| {
        for i in 0..times {
            let path = ["/health", "/metrics", "/nothing"][i % 3];
            assert_eq!(get(address, path).0, if i % 3 == 2 { 401 } else { 200 });
        }
    };
    ask(100);
    let (fds, kib) = (descriptors(), status_of(up.pid(), "VmRSS"));
    ask(1000);
    // The mirror and SQLite open and close files of their own meanwhile; what requests leave behind
    // would be hundreds.
    env.wait_for("all connections are closed", || descriptors() <= fds + 4);
    let grown = status_of(up.pid(), "VmRSS").saturating_sub(kib);
    assert!(grown < 1024, "{grown} KiB");
}

#[test]
fn an_idle_port_neither_wakes_nor_writes() {
    let env = Env::new();
    let (up, address) = up(&env);
    assert_eq!(get(address, "/nothing").0, 401);
    // Its own naps are 30 s long, and the first has just begun; a second later it releases what
    // only a busy supervisor needs.
    let seen = || (status_of(up.pid(), "voluntary_ctxt_switches"), written(up.pid()));
    std::thread::sleep(Duration::from_secs(3));
    let before = seen();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(seen(), before);
}

/// An agent that everloop takes for claude: it shows its environment and waits, until it is stopped
/// or a file lets it end.
struct Waiting {
    env: Env,
    up: Background,
    address: SocketAddr,
}

impl Waiting {
    /// `last` is its final output.
    fn new(keys: &str, last: &str) -> Self {
        let env = Env::new().git();
        let body = format!("env > \"$HOME/env\"\nwhile [ ! -e \"$HOME/end\" ]; do sleep 0.05; done\necho '{last}'");
        let agent = env.script("agent.sh", &body);
        let home = Self::home(&env).display().to_string();
        let reach = format!("[isolation]\nwritable = [\"{home}\"]\n");
        let toml = format!("{reach}[agent.claude]\ncommand = [\"{agent}\"]\n{keys}\n");
        env.write("everloop.toml", &toml);
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "everloop.toml"]);
        let (up, address) = up(&env);
        let words = ["run", "x", "--check", "false", "--agent", "claude", "-n", "1", "--min-gap", "0", "--detach"];
        env.run(&words).ok();
        env.wait_for_agent();
        env.wait_for("it shows its environment", || {
            fs::read_to_string(Self::home(&env).join("env")).is_ok_and(|t| t.contains("EVERLOOP_TURN"))
        });
        Self { env, up, address }
    }

    fn home(env: &Env) -> std::path::PathBuf {
        env.project().join("../home")
    }

    fn variables(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(Self::home(&self.env).join("env")).expect("it was written");
        text.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    }

    /// Sends like its agent.
    fn send(&self, path: &str, kind: &str, body: &str) -> u16 {
        let secret = self.variables()["OTEL_EXPORTER_OTLP_HEADERS"].replacen('=', ": ", 1);
        request(self.address, &format!("POST {path}"), &format!("{secret}\r\nContent-Type: {kind}\r\n"), body).0
    }

    fn end(&self) -> Value {
        fs::write(Self::home(&self.env).join("end"), "").expect("the home is ours");
        self.usage()
    }

    fn usage(&self) -> Value {
        let usage = || self.env.run(&["usage", "--json"]).ok().json()["total"].clone();
        self.env.wait_for("the turn has ended", || usage()["turns"] == 1);
        usage()
    }
}

/// One answered request, in claude's telemetry.
fn one_request(sequence: u32, input: u32, dollars: f64) -> String {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let attributes = json!([
        text("event.name", "api_request"),
        { "key": "event.sequence", "value": { "intValue": sequence } },
        text("input_tokens", &input.to_string()),
        { "key": "output_tokens", "value": { "intValue": "7" } },
        { "key": "cost_usd", "value": { "doubleValue": dollars } },
    ]);
    let record =
        json!({ "timeUnixNano": "1", "body": { "stringValue": "claude_code.api_request" }, "attributes": attributes });
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] }).to_string()
}

const JSON: &str = "application/json";

#[test]
fn telemetry_tells_what_a_killed_turn_used() {
    let agent = Waiting::new("", "");
    assert_eq!(agent.variables()["OTEL_EXPORTER_OTLP_ENDPOINT"], format!("http://{}", agent.address));
    assert_eq!(agent.send("/v1/logs", JSON, &one_request(1, 100, 0.25)), 200);
    assert_eq!(agent.send("/v1/logs", JSON, &one_request(1, 100, 0.25)), 200, "sent again, it counts once");
    assert_eq!(agent.send("/v1/logs", JSON, &one_request(2, 50, 0.5)), 200);
    agent.env.run(&["stop", "--now"]).ok();
    let used = agent.usage();
    assert_eq!((&used["tokens"], &used["microusd"]), (&json!(164), &json!(750_000)), "{used}");
    assert_eq!((&used["from_telemetry"], &used["estimated"]), (&json!(1), &json!(false)), "{used}");
    let shown = agent.env.run(&["usage"]).ok().stdout;
    assert!(shown.contains("$0.75*") && shown.contains("by the agent's telemetry"), "{shown}");
    assert_eq!(agent.send("/v1/logs", JSON, "{}"), 404, "the turn is over");
    agent.env.run(&["replay"]).ok();
}

/// The stream reports 10 tokens for a cent; telemetry reports more, and that counts. Both are in
/// the record.
#[test]
fn the_greater_of_both_sources_counts() {
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1,"total_cost_usd":0.01,"modelUsage":{"m":{"inputTokens":10,"costUSD":0.01}}}"#;
    let agent = Waiting::new("", result);
    assert_eq!(agent.send("/v1/logs", JSON, &one_request(1, 100, 0.25)), 200);
    let used = agent.end();
    assert_eq!((&used["tokens"], &used["microusd"]), (&json!(107), &json!(250_000)), "{used}");
    let logs = agent.env.run(&["logs", "--json"]).ok().stdout;
    let exits = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let exit = exits.map(|record| record["event"].clone()).find(|e| e["event"] == "turn_exited").expect("it ended");
    let report = &exit["exit"]["report"];
    assert_eq!((&report["used"]["microusd"], &report["telemetry"]["microusd"]), (&json!(10_000), &json!(250_000)));
}

#[test]
fn telemetry_is_read_within_bounds() {
    let agent = Waiting::new("", "");
    assert_eq!(agent.send("/v1/logs", "application/x-protobuf", "x"), 415);
    assert_eq!(agent.send("/v1/metrics", JSON, "{"), 400);
    assert_eq!(
        agent.send(
            "/v1/metrics",
            JSON,
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"name\":\"else\"}]}]}]}"
        ),
        200
    );
    assert_eq!(agent.send("/v1/logs", JSON, &"x".repeat((4 << 20) + 1)), 413);
    let secret = agent.variables()["OTEL_EXPORTER_OTLP_HEADERS"].clone();
    let (_, value) = secret.split_once('=').expect("a name and a value");
    let forged = value.replacen(".1.", ".2.", 1);
    assert_ne!(forged, value);
    let header = format!("x-everloop-turn: {forged}\r\nContent-Type: {JSON}\r\n");
    assert_eq!(request(agent.address, "POST /v1/logs", &header, &one_request(1, 9, 9.0)).0, 401, "another turn's");
    // Chunks without an announced length are cut off as well.
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nHost: {}\r\n{}\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n",
        agent.address,
        secret.replacen('=', ": ", 1)
    );
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let (status, _) = raw(agent.address, format!("{head}{}0\r\n\r\n", chunk.repeat(70)).as_bytes());
    assert!(status == 413 || status == 0, "{status}: refused, or cut off while it was still sending");
    assert_eq!(get(agent.address, "/health").0, 200);
    assert!(get(agent.address, "/metrics").1.contains("everloop_telemetry_ignored_total 1"));
    assert!(status_of(agent.up.pid(), "VmRSS") < 64 << 10);
}

#[test]
fn telemetry_can_be_switched_off() {
    let agent = Waiting::new("telemetry = false", "");
    assert!(!agent.variables().keys().any(|name| name.starts_with("OTEL_") || name.ends_with("_TELEMETRY")));
}

/// The turn outlives its supervisor; the next one has the same port and knows the turn by the same
/// secret.
#[test]
fn telemetry_arrives_again_after_a_restart() {
    let Waiting { env, up, address } = Waiting::new("", "");
    up.signal(Signal::SIGKILL);
    up.wait();
    let (up, back) = self::up(&env);
    assert_eq!(back, address);
    let agent = Waiting { env, up, address };
    agent.env.wait_for("the turn was found again", || agent.send("/v1/logs", JSON, &one_request(1, 100, 0.25)) == 200);
    agent.env.run(&["stop", "--now"]).ok();
    assert_eq!(agent.usage()["microusd"], 250_000);
}

#[test]
fn verbs_that_read_answer_as_their_json_does() {
    let env = Env::new().git();
    let (_up, address) = up(&env);
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "true", "--min-gap", "1h", "--in-place", "--detach"]).ok();
    env.wait_for("it waits", || get(address, "/health").1.contains("\"waiting\":1"));
    let token = fs::read_to_string(env.state().join("token")).expect("the token is there");
    let read = |path: &str| {
        let headers = format!("Authorization: Bearer {}\r\n", token.trim());
        let (status, text) = request(address, &format!("GET {path}"), &headers, "");
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str::<Value>(body).unwrap_or_default())
    };
    let id = env.the_loop()["id"].as_str().expect("there is a loop").to_owned();
    assert_eq!(read("/api/status"), (200, env.run(&["status", "--json"]).ok().json()));
    for path in [format!("/api/why/{id}"), "/api/why".to_owned()] {
        let (status, why) = read(&path);
        assert_eq!((status, &why["loop"], &why["phase"]["reason"]["rule"]), (200, &json!(id), &json!("guard.gap")));
    }
    let (status, unknown) = read("/api/why/no%2Fsuch%20loop");
    assert_eq!((status, &unknown["error"]["message"]), (400, &json!("there is no loop `no/such loop`")), "{unknown}");
    assert!(unknown["error"]["hint"].is_string() && unknown["schema_version"] == 1, "{unknown}");
    assert_eq!((read("/api/run").0, get(address, "/api/status").0, get(address, "/api/why/x").0), (404, 401, 401));
    assert_eq!(request(address, "POST /api/status", &format!("Authorization: Bearer {}\r\n", token.trim()), "").0, 405);
}
