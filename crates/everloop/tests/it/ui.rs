//! `everloop ui` and the dashboard behind it, over plain HTTP: what opens it, and what does not.
//!
//! - `desk`: a supervisor, and a browser that logged in; `views`: every view in a real Chromium
//! - `live`: a loop that is watched and led from a page; `corpus`: texts that try to be more than text

mod corpus;
mod desk;
mod live;
mod views;

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use super::env::{Env, get, raw};
use desk::up;

/// Every address that shows or changes something.
const PAGES: [&str; 17] = [
    "/",
    "/inbox",
    "/board",
    "/guard",
    "/rhythm",
    "/timeline",
    "/burn",
    "/research",
    "/research/x",
    "/mesh",
    "/log",
    "/settings",
    "/loop/x",
    "/loop/x/diff",
    "/loop/x/prompt",
    "/turn/x-1.1",
    "/events",
];

/// A request with these lines of headers; status and the whole answer.
fn send(address: SocketAddr, line: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n");
    raw(address, format!("{head}{body}").as_bytes())
}

/// A login without a browser: the cookie, and the secret of its forms.
struct Login {
    cookie: String,
    csrf: String,
}

impl Login {
    fn new(env: &Env, address: SocketAddr) -> Self {
        let link = link(env);
        let path = link.strip_prefix(&format!("http://{address}")).expect("the link is on the port").to_owned();
        let (status, answer) = send(address, &format!("GET {path}"), &format!("Host: {address}\r\n"), "");
        assert_eq!(status, 200, "{answer}");
        let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("it logged in");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        let cookie = set.split(';').next().expect("a pair").to_owned();
        let mut login = Self { cookie, csrf: String::new() };
        let (_, page) = login.get(address, "/");
        let csrf = page.split_once("name=\"csrf\" value=\"").expect("each page has a form").1;
        csrf.split('"').next().expect("a value ends").clone_into(&mut login.csrf);
        login
    }

    fn get(&self, address: SocketAddr, path: &str) -> (u16, String) {
        send(address, &format!("GET {path}"), &format!("Host: {address}\r\nCookie: {}\r\n", self.cookie), "")
    }

    fn headers(&self, address: SocketAddr) -> String {
        format!("Host: {address}\r\nCookie: {}\r\nOrigin: http://{address}\r\n", self.cookie)
    }
}

fn link(env: &Env) -> String {
    env.run(&["ui", "--no-open", "--json"]).ok().json()["url"].as_str().expect("a link").to_owned()
}

#[test]
fn without_a_supervisor_it_says_what_to_start() {
    let env = Env::new();
    let away = env.run(&["ui", "--no-open"]).exits(6);
    assert!(away.stderr.contains("hint: start one: everloop up"), "{}", away.stderr);
}

#[test]
fn a_link_opens_the_dashboard_once_and_can_be_a_code() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let said = env.run(&["ui", "--no-open", "--qr"]).ok().stdout;
    assert!(said.contains('█') && said.starts_with(&format!("http://{address}/login/")), "{said}");
    let link = link(&env);
    let path = link.strip_prefix(&format!("http://{address}")).expect("the link is on the port");
    assert_eq!(get(address, path).0, 200);
    assert_eq!(get(address, path).0, 403, "it was used");
    let login = Login::new(&env, address);
    let (status, page) = login.get(address, "/");
    assert!(status == 200 && page.contains("<h1>now</h1>"), "{page}");
    let out = send(address, "POST /logout", &login.headers(address), &format!("csrf={}", login.csrf));
    assert_eq!((out.0, login.get(address, "/").0), (200, 401));
    assert_eq!(send(address, "POST /ui/link", &format!("Host: {address}\r\n"), "").0, 401, "it needs the token");
}

#[test]
fn a_link_is_over_after_a_minute() {
    let env = Env::new().fast(30);
    let (_up, address) = up(&env);
    let link = link(&env);
    env.let_pass(Duration::from_secs(61));
    assert_eq!(get(address, link.strip_prefix(&format!("http://{address}")).expect("on the port")).0, 403);
}

#[test]
fn guesses_are_slowed_down() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let statuses: Vec<u16> = (0..22).map(|nth| get(address, &format!("/login/{nth}")).0).collect();
    assert_eq!((statuses[0], statuses[21]), (403, 429));
}

#[test]
fn nothing_is_shown_without_a_login_to_other_names_or_to_foreign_pages() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let login = Login::new(&env, address);
    for page in PAGES {
        assert_eq!(get(address, page).0, 401, "{page} without a login");
        let with_cookie = |host: &str, more: &str| {
            send(address, &format!("GET {page}"), &format!("Host: {host}\r\nCookie: {}\r\n{more}", login.cookie), "").0
        };
        assert_eq!(with_cookie("evil.example", ""), 421, "{page}: a name that leads here");
        assert_eq!(with_cookie(&format!("evil.example:{}", address.port()), ""), 421, "{page}: and our port");
        assert_eq!(with_cookie(&address.to_string(), "Origin: http://evil.example\r\n"), 403, "{page}: a foreign page");
    }
    let answer = login.get(address, "/").1.to_lowercase();
    for header in [
        "content-security-policy: default-src 'none'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "referrer-policy: same-origin",
    ] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
    let policy = answer.lines().find(|line| line.starts_with("content-security-policy")).expect("a policy");
    assert!(!policy.contains("unsafe") && !policy.contains("script-src 'self'"), "{policy}");
    for path in ["/loop/..%2F..%2Ftoken", "/turn/..%2F..%2Fledger.key", "/ui/../token", "/ui/style.css/../../token"] {
        let (status, text) = login.get(address, path);
        assert!(status == 400 || status == 404 || status == 401, "{path}: {status} {text}");
    }
}

#[test]
fn a_change_needs_the_secret_of_a_form_and_our_own_page() {
    let env = Env::new();
    let (_up, address) = up(&env);
    let login = Login::new(&env, address);
    let good = format!("csrf={}&title=a+task&back=%2Fboard", login.csrf);
    let with = |headers: &str, body: &str| send(address, "POST /do/task-add", headers, body).0;
    let own = login.headers(address);
    assert_eq!(with(&own, "title=a+task"), 403, "without the secret");
    assert_eq!(with(&own, "csrf=0000&title=a+task"), 403, "with a wrong one");
    assert_eq!(with(&own.replace("Cookie", "X"), &good), 401, "without the cookie");
    assert_eq!(with(&own.replace("Origin: http://127", "Origin: http://128"), &good), 403, "from a foreign page");
    assert_eq!(with(&format!("{own}Sec-Fetch-Site: cross-site\r\n"), &good), 403, "as the browser says");
    assert_eq!(login.get(address, &format!("/do/task-add?{good}")).0, 405, "by a link");
    assert!(!env.run(&["task", "list"]).ok().stdout.contains("a task"));
    assert_eq!(with(&own, &good), 303);
    assert!(env.run(&["task", "list"]).ok().stdout.contains("a task"));
    let log = env.run(&["logs"]).ok().stdout;
    assert!(log.contains("was added by tester (dashboard)"), "the journal names the person and the place: {log}");
}

/// The agent finds the port and the token in its folder, and a login link too.
#[test]
fn a_turns_agent_gets_nothing_whatever_it_shows() {
    let env = Env::new().git();
    let (_up, address) = up(&env);
    let login = Login::new(&env, address);
    let post = "import http.client, os, sys\n\
        address, token, cookie, csrf = sys.argv[1:5]\n\
        def say(method, path, headers, body=''):\n\
        \x20   c = http.client.HTTPConnection(address, timeout=20)\n\
        \x20   c.request(method, path, body, headers)\n\
        \x20   print(method, path, c.getresponse().status)\n\
        own = {'Cookie': cookie, 'Origin': 'http://' + address}\n\
        for page in ['/', '/inbox', '/events', '/settings']:\n\
        \x20   say('GET', page, own)\n\
        for action in ['answer', 'resume', 'release', 'steer', 'task-add']:\n\
        \x20   say('POST', '/do/' + action, own, 'csrf=' + csrf)\n\
        say('POST', '/ui/link', {'Authorization': 'Bearer ' + token})\n";
    let out = env.project().join("../home");
    env.write("post.py", post);
    let token = fs::read_to_string(env.state().join("token")).expect("the token is there");
    let agent = format!(
        "cat > /dev/null; python3 {} {address} {} '{}' {} > {}/said 2>&1",
        env.project().join("post.py").display(),
        token.trim(),
        login.cookie,
        login.csrf,
        out.display()
    );
    let words = ["run", "x", "--check", "false", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0", "--in-place"];
    env.write("everloop.toml", "[isolation]\nmode = \"none\"\n");
    env.run(&[&words[..], &["--detach"]].concat()).ok();
    env.wait_for("the turn is over", || env.run(&["status"]).stdout.contains("exhausted"));
    let said = fs::read_to_string(out.join("said")).expect("the agent ran");
    assert_eq!(said.lines().count(), 10, "{said}");
    assert!(said.lines().all(|line| line.ends_with(" 403")), "{said}");
    assert_eq!(login.get(address, "/").0, 200, "the person's browser goes on");
}
