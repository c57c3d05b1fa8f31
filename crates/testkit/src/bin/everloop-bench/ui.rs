//! The dashboard over a long journal: the weight of its pages, the time of the first one, many open
//! tabs, and how soon a browser paints.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use everloop_core::event::Event;
use everloop_core::op::{Op, Trust};
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode};
use everloop_testkit::browser::Browser;
use serde_json::Value;

use crate::measure::{Times, usage};
use crate::report::{BenchRow, heading, mb, ms, remark};
use crate::scene::{Project, Scene, Supervised, wait_until};
use crate::{Options, Result};

/// Records of a transaction while the journal is filled.
const BATCH: usize = 5_000;
const TABS: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(30);

pub fn run(options: &Options) -> Result<()> {
    let rows = options.length.pick(1_000_000, 100_000);
    heading(&format!("ui: the dashboard over a journal of {rows} records"));
    let scene = Scene::new(options, Project::Plain)?;
    let agent = scene.agent("__stamp stamps");
    scene.finish(&["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap", "0", "-n", "2"], 3)?;
    fill(&scene, rows)?;
    let supervised = Supervised::start(&scene)?;
    let desk = Desk::new(&scene)?;
    let page = desk.get("/")?.len();
    let both = desk.get("/ui/style.css")?.len() + desk.get("/ui/live.js")?.len();
    BenchRow::new("first page", format!("{:.1} KB", page as f64 / 1e3)).goal("<= 100 KB", page <= 100_000).print();
    remark(&format!("stylesheet and script {:.1} KB, all without compression", both as f64 / 1e3));
    // What was used is summed up beside the first page.
    wait_until("the sums to be complete", || Ok(!desk.get("/burn")?.contains("Still counting")))?;
    let took = |path: &str| -> Result<Times> {
        let all = (0..options.length.pick(100, 20)).map(|_| {
            let begun = Instant::now();
            desk.get(path).map(|_| begun.elapsed())
        });
        Times::new(all.collect::<Result<_>>()?)
    };
    let home = took("/")?;
    let met = home.median() <= Duration::from_millis(50);
    BenchRow::new("first page, with its connection", ms(home.median())).goal("<= 50 ms", met).print();
    remark(&format!("p99 {}; the log {}", ms(home.p99()), ms(took("/log")?.median())));
    tabs(&desk, &supervised)?;
    paint(&scene, &desk)
}

fn tabs(desk: &Desk, supervised: &Supervised) -> Result<()> {
    let before = usage(supervised.pid())?.anon_kb;
    let mut open = Vec::new();
    for _ in 0..TABS {
        let mut stream = desk.send("/events?after=0")?;
        let mut first = [0; 16];
        stream.read_exact(&mut first)?;
        open.push(stream);
    }
    let grown = usage(supervised.pid())?.anon_kb.saturating_sub(before);
    BenchRow::new(format!("{TABS} tabs"), format!("{} more", mb(grown))).goal("<= 32 MB", grown <= 32_000).print();
    let begun = Instant::now();
    desk.get("/")?;
    remark(&format!("the first page beside them {}", ms(begun.elapsed())));
    Ok(())
}

fn paint(scene: &Scene, desk: &Desk) -> Result<()> {
    let browser = Browser::start();
    let link = scene.everloop(&["ui", "--no-open"]).output()?;
    browser.open(String::from_utf8(link.stdout)?.trim());
    let mut all = Vec::new();
    for _ in 0..5 {
        browser.open(&format!("http://{}/", desk.address));
        let at = browser.eval(
            "return new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))\
             .observe({type: 'paint', buffered: true}))",
        );
        all.push(Duration::from_secs_f64(at.as_f64().unwrap_or_default() / 1e3));
    }
    let median = Times::new(all)?.median();
    let met = median <= Duration::from_millis(300);
    BenchRow::new("first paint", ms(median)).goal("<= 300 ms", met).print();
    Ok(())
}

fn fill(scene: &Scene, rows: usize) -> Result<()> {
    let mut ledger = scene.ledger(OpenMode::ReadWrite)?;
    let owner = scene.only_loop()?.id;
    let event = |i: usize| Event::Steered {
        by: "bench".to_owned(),
        message: format!("event number {i}, about as long as most are"),
        trust: Trust::Operator,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as i64;
    for _ in 0..rows / BATCH {
        let events: Vec<Event> = (0..BATCH).map(event).collect();
        ledger.transact(Time(now), &[Op::Append { owner: Some(owner.clone()), events }])?;
    }
    Ok(())
}

/// A login at the dashboard.
struct Desk {
    address: SocketAddr,
    cookie: String,
}

impl Desk {
    fn new(scene: &Scene) -> Result<Self> {
        let note = || -> Option<SocketAddr> {
            let note: Value = serde_json::from_slice(&std::fs::read(scene.state().join("http.json")).ok()?).ok()?;
            note["address"].as_str()?.parse().ok()
        };
        wait_until("the port to be open", || Ok(note().is_some_and(|at| TcpStream::connect(at).is_ok())))?;
        let mut desk = Self { address: note().ok_or("no address")?, cookie: String::new() };
        let link = String::from_utf8(scene.everloop(&["ui", "--no-open"]).output()?.stdout)?;
        let path = link.trim().trim_start_matches(&format!("http://{}", desk.address)).to_owned();
        let answer = desk.get(&path)?;
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).ok_or("no login")?;
        cookie.split(';').next().unwrap_or_default().clone_into(&mut desk.cookie);
        Ok(desk)
    }

    fn send(&self, path: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", self.address, self.cookie);
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut text = String::new();
        self.send(path)?.read_to_string(&mut text)?;
        Ok(text)
    }
}
