//! The gateway: signals over the supervisor's port, which programs may send them, and what is
//! refused.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::env::{Background, Env, raw};
use crate::persona::Personas;

const OPEN: &str = "[gateway]\nopen = true\n";
const PORT: &str = "127.0.0.1:0";

/// A supervisor with a port, whose personas sleep.
fn up(personas: &Personas) -> (Background, SocketAddr) {
    let up = personas.up_at(PORT);
    (up, personas.env.port())
}

fn post(address: SocketAddr, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n");
    let (status, answer) = raw(address, format!("{head}{body}").as_bytes());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

fn with_token(env: &Env) -> String {
    let token = fs::read_to_string(env.state().join("token")).expect("the token is there");
    format!("Authorization: Bearer {}\r\n", token.trim())
}

#[test]
fn a_signal_over_the_port_needs_the_token_and_is_one_turn() {
    let personas = Personas::new().with("echo", "");
    let (up, address) = up(&personas);
    for headers in ["", "Authorization: Bearer wrong\r\n"] {
        assert_eq!(post(address, "/signal/echo", headers, "x").0, 401);
    }
    let token = with_token(&personas.env);
    let (status, answer) = post(address, "/signal/echo", &token, "the deploy failed");
    assert_eq!((status, &answer["persona"], &answer["class"]), (202, &json!("echo"), &json!("medium")), "{answer}");
    personas.took("echo", 1);
    let full = json!({ "body": "it burns", "class": "high", "tags": ["infra"], "topic": "deploy.eu", "id": "7", "from": "ci" });
    let headers = format!("{token}Content-Type: application/json\r\n");
    assert_eq!(post(address, "/signal/echo", &headers, &full.to_string()).1["repeated"], false);
    personas.took("echo", 2);
    assert_eq!(post(address, "/signal/echo", &headers, &full.to_string()).1["repeated"], true);
    assert_eq!(personas.prompted("echo", "the deploy failed"), 1);
    assert_eq!(personas.prompted("echo", "class high; topic deploy.eu; tags infra; from ci"), 1);
    assert_eq!(personas.show("echo")["yields"]["signals"], 2);
    personas.down(up);
}

#[test]
fn an_open_gateway_takes_signals_of_this_machine_and_says_so_at_the_start() {
    let personas = Personas::new().with("echo", "").and(OPEN);
    let (up, address) = up(&personas);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(post(address, "/signal/echo", form, "status:RESTARTING").0, 202);
    personas.took("echo", 1);
    assert_eq!(personas.prompted("echo", "status:RESTARTING"), 1);
    let page = |headers: &str| post(address, "/signal/echo", headers, "x").0;
    assert_eq!(page("Origin: https://evil.example\r\n"), 403, "a page in a browser is no program");
    let foreign = "POST /signal/echo HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(raw(address, foreign.as_bytes()).0, 421);
    assert_eq!(post(address, "/mcp", "", "{}").0, 401, "everything else needs the token");
    assert_eq!(personas.show("echo")["yields"]["signals"], 1);
    personas.env.run(&["down"]).ok();
    let said = up.wait().stderr;
    assert!(said.contains("the gateway is open"), "{said}");
}

#[test]
fn what_is_wrong_is_refused_and_nothing_changes() {
    let personas = Personas::new().with("echo", "").and(OPEN);
    let (up, address) = up(&personas);
    let json = "Content-Type: application/json\r\n";
    for (path, headers, body, status, words) in [
        ("/signal/ecko", "", "x", 404, "there is no persona `ecko`"),
        ("/signal/echo", json, "{\"klass\":1}", 400, "unknown field `klass`"),
        ("/signal/echo", json, "{\"class\":\"urgent\"}", 400, "urgent"),
        ("/signal/echo", json, "nonsense", 400, "not a signal"),
        ("/signal/echo", "", &"x".repeat(32 * 1024 + 1), 400, "has 32769 bytes"),
        ("/signal/echo", "", &"x".repeat(128 * 1024 + 1), 413, "a body of more than 131072 bytes"),
    ] {
        let (found, answer) = post(address, path, headers, body);
        assert!(found == status && answer["error"].to_string().contains(words), "{words}: {found} {answer}");
    }
    assert_eq!(raw(address, format!("GET /signal/echo HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).0, 405);
    let shown = personas.show("echo");
    assert_eq!((&shown["yields"]["signals"], &shown["turns"]), (&json!(0), &json!(0)));
    personas.down(up);
}

const ROUTE: &str = "[[route]]\nfrom = \"stream:torch.continuous.ops\"\nto = \"echo\"\nclass = \"high\"\n\
                     filter = 'status == \"RESTARTING\"'\n";

#[test]
fn entries_of_a_stream_reach_the_persona_of_their_route() {
    let personas = Personas::new().with("echo", "").with("other", "").and(OPEN).and(ROUTE);
    let (up, address) = up(&personas);
    let path = "/xadd/torch.continuous.ops";
    let curl = "Content-Type: application/x-www-form-urlencoded\r\n";
    let entry = "timestamp:2026-11-18T12:00:00Z&window:3&status:RESTARTING";
    let (status, answer) = post(address, path, curl, entry);
    assert_eq!((status, &answer["personas"], &answer["number"]), (202, &json!(["echo"]), &json!(1)), "{answer}");
    personas.took("echo", 1);
    let said = "timestamp: 2026-11-18T12:00:00Z\nwindow: 3\nstatus: RESTARTING\n";
    assert_eq!(personas.prompted("echo", said), 1, "{:#?}", personas.prompts("echo"));
    assert_eq!(personas.prompted("echo", "class high; topic torch.continuous.ops"), 1);
    let (_, answer) = post(address, path, curl, "status:OK");
    assert_eq!((&answer["personas"], &answer["number"]), (&json!([]), &json!(2)), "its filter refuses it");
    let json = "Content-Type: application/json\r\nIdempotency-Key: 7\r\n";
    for repeated in [false, true] {
        let (status, answer) = post(address, path, json, "{\"status\":\"RESTARTING\",\"n\":2}");
        let said = (status, &answer["repeated"], &answer["number"]);
        assert_eq!(said, (202, &json!(repeated), &json!(3)), "{answer}");
        personas.took("echo", 2);
    }
    assert_eq!(post(address, path, curl, "status=RESTARTING&note=a+b%26c").0, 202);
    personas.took("echo", 3);
    assert_eq!((personas.prompted("echo", "note: a b&c"), personas.prompted("echo", "n: 2")), (1, 1));
    assert_eq!(personas.show("echo")["yields"]["signals"], 3);
    assert_eq!(personas.show("other")["yields"]["signals"], 0);
    personas.down(up);
}

#[test]
fn an_entry_without_a_route_is_kept_and_what_is_none_is_refused() {
    let personas = Personas::new().with("echo", "").and(OPEN).and(ROUTE);
    let (up, address) = up(&personas);
    let (_, answer) = post(address, "/xadd/elsewhere", "", "disk:full");
    assert_eq!((&answer["personas"], &answer["number"]), (&json!([]), &json!(1)), "{answer}");
    let read = personas.env.run(&["stream", "read", "elsewhere"]).ok().stdout;
    assert!(read.contains("  disk: full"), "{read}");
    let many = (0..101).map(|n| format!("f{n}:x")).collect::<Vec<_>>().join("&");
    for (path, body, words) in [
        ("/xadd/elsewhere", "plain", "`plain` is no field"),
        ("/xadd/elsewhere", "", "an entry has 0 fields"),
        ("/xadd/elsewhere", &many, "an entry has 101 fields"),
        ("/xadd/elsewhere", "a:1&a:2", "the field `a` stands twice"),
        ("/xadd/elsewhere", "a=%zz", "is no field"),
        ("/xadd/a%20b", "a:1", "invalid name of a stream"),
        ("/xadd/torch.continuous.ops", &format!("status:RESTARTING&x:{}", "x".repeat(33_000)), "bytes"),
    ] {
        let (status, answer) = post(address, path, "", body);
        assert!(status == 400 && answer["error"].to_string().contains(words), "{words}: {status} {answer}");
    }
    assert_eq!(personas.show("echo")["yields"]["signals"], 0);
    personas.down(up);
}

#[test]
fn mistakes_in_routes_are_named_with_their_line() {
    let env = Env::new();
    let persona = "[persona.echo]\ncharter = \"x\"\nagent_cmd = \"true\"\n";
    for (keys, words, line) in [
        ("from = \"stream:a\"\nto = \"ecko\"\n", "did you mean `echo`?", 6),
        ("from = \"kafka:a\"\nto = \"echo\"\n", "`kafka:a` is no source of a route", 5),
        ("from = \"stream:a\"\n", "a route has no `to`", 4),
        ("from = \"stream:a\"\nto = \"nope\"\n", "there is no persona or loop `nope`", 6),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"status = 1\"\n", "filter, line 1, column 8", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"\"\n", "filter", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"(a == 1\"\n", "filter, line 1, column 8", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"a == 1 or\"\n", "filter, line 1, column 10", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"a == 1\\n& b\"\n", "filter, line 2, column 1", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"a == 'x\"\n", "filter, line 1, column 6", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"a == 1 b\"\n", "filter, line 1, column 8", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nfilter = \"not\"\n", "filter, line 1, column 4", 7),
        ("from = \"stream:a\"\nto = \"echo\"\npriority = 3\n", "`priority` is for routes to loops", 7),
        ("from = \"stream:a\"\nto = \"echo\"\nclass = \"urgent\"\n", "`urgent` is no class", 7),
    ] {
        env.write("everloop.toml", &format!("{persona}[[route]]\n{keys}"));
        let said = env.run(&["config", "check"]).exits(7).stderr;
        assert!(said.contains(words) && said.contains(&format!("everloop.toml:{line}:")), "{words}: {said}");
    }
}

/// The agent finds the port and even the token in its folder.
#[test]
fn a_turns_agent_is_refused_with_and_without_the_token() {
    let env = Env::new();
    env.write(
        "post.py",
        "import http.client\nport, token = open('port').read().split()\n\
         for headers in [{}, {'Authorization': 'Bearer ' + token}]:\n\
         \x20 for path in ['/signal/b', '/xadd/b']:\n\
         \x20   connection = http.client.HTTPConnection('127.0.0.1', int(port))\n\
         \x20   connection.request('POST', path, 'from:a turn', headers)\n\
         \x20   answer = connection.getresponse()\n\
         \x20   print(answer.status, answer.read().decode())\n",
    );
    let out = env.project().with_file_name("out").join("a");
    let agent = format!("cat > /dev/null; python3 post.py > {}/said 2>&1", out.display());
    let personas = Personas::of(env).with_agent("a", &agent, "").with("b", "").and(OPEN);
    let (up, address) = up(&personas);
    let token = fs::read_to_string(personas.env.state().join("token")).expect("the token is there");
    personas.env.write("port", &format!("{} {}", address.port(), token.trim()));
    personas.signal("a", "go", &[]);
    personas.took("a", 1);
    let said = fs::read_to_string(out.join("said")).expect("the agent ran");
    assert_eq!(said.matches("403 ").count(), 4, "{said}");
    assert!(said.contains("which sends signals with `everloop signal`"), "{said}");
    assert_eq!(post(address, "/signal/b", "", "from a program").0, 202);
    personas.took("b", 1);
    assert_eq!((personas.prompted("b", "from:a turn"), personas.prompted("b", "from a program")), (0, 1));
    personas.down(up);
}
