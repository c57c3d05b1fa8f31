//! The fake model by itself, with hand-written requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use everloop_testkit::fake_model::log::{self, RequestKind, RequestRecord};
use everloop_testkit::fake_model::script::Script;
use everloop_testkit::fake_model::{FakeModel, FakeModelOptions};

/// A request that plays the script.
pub const MAIN: &str = r#"{"model":"m","stream":true,"tools":[{"name":"Bash"}],"messages":[]}"#;
const SIDE: &str = r#"{"model":"m","messages":[{"role":"user","content":"a title, please"}]}"#;

/// Sends a request without waiting for its response.
fn send(port: u16, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).expect("the server reads");
    stream
}

/// The whole response, up to the end of the connection.
pub fn answer(port: u16, path: &str, body: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    send(port, path, body).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn side_requests_do_not_play_the_script() {
    let model = FakeModel::start("500,text").expect("the script can be played");
    let side = answer(model.port(), "/v1/messages", SIDE).expect("it is answered");
    assert!(side.starts_with("HTTP/1.1 200") && side.contains("end_turn"), "{side}");
    let count = answer(model.port(), "/v1/messages/count_tokens", SIDE).expect("it is answered");
    assert!(count.contains("input_tokens"), "{count}");
    assert!(answer(model.port(), "/v1/messages", MAIN).expect("it is answered").starts_with("HTTP/1.1 500"));
    let main = answer(model.port(), "/v1/messages", MAIN).expect("it is answered");
    assert!(main.contains("message_stop") && main.ends_with("0\r\n\r\n"), "{main}");
    let kinds: Vec<RequestKind> = model.requests().iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [RequestKind::Side, RequestKind::Side, RequestKind::Main, RequestKind::Main]);
    assert_eq!((model.main_calls(), model.requests()[0].last_user.as_str()), (2, "a title, please"));
}

#[test]
fn a_broken_connection_looks_broken() {
    let model = FakeModel::start("reset,drop,empty").expect("the script can be played");
    let reset = answer(model.port(), "/v1/messages", MAIN).expect_err("the connection is reset");
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    let cut = answer(model.port(), "/v1/messages", MAIN).expect("a part is sent");
    assert!(cut.contains("message_start") && !cut.contains("message_stop") && !cut.ends_with("0\r\n\r\n"), "{cut}");
    assert!(answer(model.port(), "/v1/messages", MAIN).expect("it is answered").contains("message_stop"));
}

#[test]
fn a_hanging_server_stops_at_once() {
    let model = FakeModel::start("hang,stall,trickle:ms=60000").expect("the script can be played");
    let mut waiting: Vec<TcpStream> = Vec::new();
    for calls in 1..=3 {
        waiting.push(send(model.port(), "/v1/messages", MAIN));
        assert!(model.wait_for_main_calls(calls, Duration::from_secs(30)));
    }
    let began = Instant::now();
    drop(model);
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    for mut stream in waiting {
        let mut rest = Vec::new();
        // Closed or reset, but not silent.
        let end = stream.read_to_end(&mut rest);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
}

#[test]
fn the_log_can_be_read_while_it_grows() {
    let scratch = tempfile::tempdir().expect("there is room for a log");
    let path = scratch.path().join("log");
    let script = Script::parse_lines("tool:cmd=echo a,text\ntext").expect("the script can be read");
    let model = FakeModel::with(FakeModelOptions { script, port: 0, log: Some(path.clone()) }).expect("it starts");
    let call = answer(model.port(), "/v1/messages", MAIN).expect("it is answered");
    assert!(call.contains("echo a,text"), "{call}");
    // Bodies are kept in memory, not in the log.
    let said = model.requests().into_iter().map(|record| RequestRecord { body: String::new(), ..record });
    assert_eq!(log::read(&path).expect("the log is there"), said.collect::<Vec<_>>());
    assert_eq!(model.requests()[0].step.as_deref(), Some("tool:cmd=echo a,text"));
}
