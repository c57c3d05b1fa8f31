//! Telemetry out: spans and figures for a collector of OpenTelemetry, and nothing without one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::env::Env;

/// A collector: it takes everything and keeps it.
struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let taken = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keeps = Arc::clone(&keeps);
                std::thread::spawn(move || serve(&stream, &keeps));
            }
        });
        Self { address, taken }
    }

    fn taken(&self) -> Vec<(String, String, Value)> {
        self.taken.lock().expect("no thread panics with it").clone()
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Value> {
        let spans = |document: &Value| document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned();
        let all = self.taken();
        all.iter().filter(|(path, ..)| path == "/v1/traces").filter_map(|(.., body)| spans(body)).flatten().collect()
    }
}

fn serve(stream: &TcpStream, keeps: &Mutex<Vec<(String, String, Value)>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length, mut login) = (String::new(), 0, String::new());
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "authorization" => value.trim().clone_into(&mut login),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let document = serde_json::from_slice(&body).unwrap_or(Value::Null);
        keeps.lock().expect("no thread panics with it").push((path, login, document));
        let mut writer = stream;
        if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").is_err() {
            return;
        }
    }
}

fn project(otel: &str) -> Env {
    let env = Env::new().git();
    env.write(
        "everloop.toml",
        &format!(
            "{otel}\n[loop.main]\ngoal = \"make it\"\nchecks = [\"test -f done\"]\nagent_cmd = \"touch done\"\n[loop.main.guard]\nmin_gap = \"0s\"\n"
        ),
    );
    env
}

#[test]
fn a_collector_gets_spans_figures_and_log_records_of_a_loop() {
    let collector = Collector::start();
    let env = project(&format!("[otel]\nendpoint = \"http://{}\"\ntoken_env = \"COLLECTOR\"\n", collector.address))
        .var("COLLECTOR", "letmein");
    env.run(&["run"]).ok();
    let spans = collector.spans();
    let named =
        |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {spans:#?}"));
    let (turn, whole) = (named("turn"), named("loop"));
    for part in ["invoke_agent", "checks", "land"].map(named) {
        assert_eq!((&part["parentSpanId"], &part["traceId"]), (&turn["spanId"], &whole["traceId"]), "{part}");
    }
    assert_eq!(turn["parentSpanId"], whole["spanId"]);
    assert!(turn["attributes"].to_string().contains(r#""everloop.outcome","value":{"stringValue":"reached"}"#));
    let taken = collector.taken();
    assert!(taken.iter().all(|(_, login, _)| login == "Bearer letmein"), "{taken:#?}");
    let sums = taken.iter().rev().find(|(path, ..)| path == "/v1/metrics").expect("figures are sent");
    let turns = &sums.2["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
    assert_eq!((&turns["name"], &turns["sum"]["dataPoints"][0]["asInt"]), (&json!("everloop.turns"), &json!("1")));
    let logs: Vec<String> =
        taken.iter().filter(|(path, ..)| path == "/v1/logs").map(|(.., body)| body.to_string()).collect();
    assert!(logs.concat().contains("the loop ended"), "{logs:?}");
    // What was sent is not sent again.
    let before = spans.len();
    env.run(&["run", "again", "--check", "true", "--agent-cmd", "true"]).ok();
    assert_eq!(collector.spans().iter().filter(|span| span["name"] == "turn").count(), 1);
    assert!(collector.spans().len() <= before + 1);
}

#[test]
fn a_collector_that_is_away_disturbs_no_loop() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let env = project(&format!("[otel]\nendpoint = \"http://{closed}\"\n"));
    let ran = env.run(&["run"]).ok();
    assert!(ran.stderr.contains("cannot send telemetry; it is tried again"), "{}", ran.stderr);
}

#[test]
fn mistakes_in_the_section_are_named_with_their_place() {
    for (text, what) in [
        ("endpoint = \"http://192.0.2.1:4318\"", "would go over the network in the open"),
        ("token_env = \"X\"", "`[otel]` has no `endpoint`"),
        (
            "endpoint = \"http://127.0.0.1:1\"\ntoken_env = \"X\"\ntoken_file = \"y\"",
            "both `token_env` and `token_file`",
        ),
        ("endpont = \"http://127.0.0.1:1\"", "endpont"),
    ] {
        let ran = project(&format!("[otel]\n{text}\n")).run(&["run"]).exits(7);
        assert!(ran.stderr.contains(what) && ran.stderr.contains("everloop.toml"), "{}", ran.stderr);
    }
}

/// Runs in a network of its own whose default route leads to an interface that counts what is sent.
const COUNTED: &str = r#"set -e
ip link set lo up
for card in all default; do echo 1 2>/dev/null >"/proc/sys/net/ipv6/conf/$card/disable_ipv6" || true; done
ip link add out type veth peer name there
ip link set there up
ip addr add 10.55.0.1/24 dev out
ip link set out up
ip route add default via 10.55.0.2 dev out
"$@" >&2 || true
for card in out lo; do cat "/sys/class/net/$card/statistics/tx_packets" 2>/dev/null || awk -v c="$card:" '$1 == c { print $11 }' /proc/net/dev; done"#;

/// Packets that a run sends: to other machines, and on this one.
fn packets(env: &Env) -> (u64, u64) {
    let mut command = env.program("unshare");
    command.args([
        "--net",
        "--mount",
        "sh",
        "-c",
        &format!("mount -t sysfs sysfs /sys 2>/dev/null || true; {COUNTED}"),
        "sh",
    ]);
    command.args([env!("CARGO_BIN_EXE_everloop"), "run"]);
    let output = command.output().expect("util-linux and iproute2 are installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut sent = text.split_whitespace().map(|n| n.parse().expect("a number"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (sent.next().unwrap_or_else(|| panic!("{errors}")), sent.next().unwrap_or_else(|| panic!("{errors}")))
}

#[test]
fn without_a_collector_no_packet_leaves() {
    let env = project("");
    assert_eq!(packets(&env), (0, 0));
    assert_eq!(env.the_loop()["phase"]["ending"]["is"], "reached", "the loop ran");
    // The same network sees what is sent.
    assert!(packets(&project("[otel]\nendpoint = \"https://10.55.0.2:4318\"\n")).0 > 0);
}
