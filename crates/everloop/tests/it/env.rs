//! A world of its own for every test: home, state folder, project, environment. Nothing of it is
//! left when it is dropped.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use everloop_agents::clock::{self, ScaledClock, TIME_SCALE};
use everloop_core::time::Time;
pub use everloop_testkit::processes::processes_of;
use everloop_testkit::wait::{DEADLINE, try_wait_for, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Any answer over HTTP comes within this, also behind clients that are slow on purpose.
pub const SOON: Duration = Duration::from_secs(20);
/// Names of the outer environment that tests may see; everything else is cleared.
const ALLOWED: [&str; 3] = ["PATH", "CARGO_HOME", "RUSTUP_HOME"];

/// A world of its own.
pub struct Env {
    root: TempDir,
    vars: Vec<(String, String)>,
    clock: ScaledClock,
}

/// The output of a command.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Asserts that the command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Asserts that the command ended with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n--- stdout ---\n{}\n--- stderr ---\n{}", self.stdout, self.stderr);
        self
    }

    /// Its output with `--json`.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value: Value = match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(e) => panic!("not JSON ({e}):\n{}\n--- stderr ---\n{}", self.stdout, self.stderr),
        };
        assert_eq!(value["schema_version"], 1, "{value}");
        value
    }
}

impl Env {
    /// An empty home, an empty state folder and an empty project without git.
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("everloop-it-").tempdir().expect("a temporary folder can be made");
        for name in ["home", "project", "tmp"] {
            fs::create_dir(root.path().join(name)).expect("a new folder can be filled");
        }
        Self { root, vars: Vec::new(), clock: ScaledClock::default() }
    }

    /// With a git repository in the project and a first commit of `README`.
    pub fn git(self) -> Self {
        let env = self.git_unborn();
        env.write("README", "a project\n");
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "first"]);
        env
    }

    /// With a git repository in the project that has no commit yet.
    pub fn git_unborn(self) -> Self {
        self.git_run(&["init", "-q", "-b", "main"]);
        self
    }

    /// With one more variable for all commands.
    pub fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// All waits of everloop pass `scale` times faster; the work of programs takes as long as
    /// before.
    pub fn fast(mut self, scale: u32) -> Self {
        self.clock = ScaledClock::parse(&scale.to_string()).expect("a scale within bounds");
        self.var(TIME_SCALE, &scale.to_string())
    }

    /// The time as everloop counts it in this world.
    pub fn now(&self) -> Time {
        self.clock.program(clock::machine_now())
    }

    /// Waits until so much of everloop's time has passed.
    #[track_caller]
    pub fn let_pass(&self, period: Duration) {
        let end = self.now() + period;
        wait_until("time passes", self.clock.machine_period(period) + DEADLINE, || self.now() >= end);
    }

    /// The project's folder, or a path in it.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// Writes a file of the project.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        let made = fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::write(&path, text));
        made.unwrap_or_else(|e| panic!("{name}: {e}"));
    }

    /// Writes a shell script of the project that can be executed; returns its path.
    pub fn script(&self, name: &str, body: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, &format!("#!/bin/sh\n{body}\n"));
        let path = self.project().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file was just written");
        path.display().to_string()
    }

    /// Reads a file of the project.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Runs git in the project, which must succeed; returns its output.
    #[track_caller]
    pub fn git_run(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(args);
        let output = finish(self.prepared(command), &format!("git {args:?}"));
        output.ok().stdout
    }

    /// Runs everloop in the project to its end.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Output {
        finish(self.command(args), &format!("everloop {args:?}"))
    }

    /// Runs everloop on a terminal of its own with this text typed; what a person sees is in
    /// `stdout`.
    #[track_caller]
    pub fn on_terminal(&self, args: &[&str], typed: &str) -> Output {
        let words = [&[env!("CARGO_BIN_EXE_everloop")], args].concat();
        let line = shlex::try_join(words).expect("arguments of tests have no NUL");
        let mut command = self.program("script");
        command.args(["-qefc", &line, "/dev/null"]).env("NO_COLOR", "1").stdin(Stdio::piped());
        let mut child = command.spawn().expect("script(1) gives a program a terminal");
        let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
        // The line stays in the terminal until it is read.
        child.stdin.take().expect("it is piped").write_all(typed.as_bytes()).expect("it reads");
        let status = wait_for_end(&mut child, &line);
        output(status, out, err)
    }

    /// Starts everloop on a terminal of its own; what a person sees goes to this file, as it
    /// appears.
    pub fn spawn_on_terminal(&self, args: &[&str], screen: &Path) -> Background {
        let words = [&[env!("CARGO_BIN_EXE_everloop")], args].concat();
        let line = shlex::try_join(words).expect("arguments of tests have no NUL");
        let mut command = self.program("script");
        command.args(["-qefc", &line]).arg(screen).env("NO_COLOR", "1").stdin(Stdio::piped());
        let mut child = command.spawn().expect("script(1) gives a program a terminal");
        let readers = (gather(child.stdout.take()), gather(child.stderr.take()));
        Background { child, readers: Some(readers) }
    }

    /// Starts everloop in the project; it is killed when the handle is dropped.
    pub fn spawn(&self, args: &[&str]) -> Background {
        let mut child = self.command(args).spawn().expect("the binary was built for this test");
        let readers = (gather(child.stdout.take()), gather(child.stderr.take()));
        Background { child, readers: Some(readers) }
    }

    /// Waits until `condition` holds; panics with `what` after a minute.
    #[track_caller]
    pub fn wait_for(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let held = try_wait_for(DEADLINE, || condition().then_some(()));
        assert!(held.is_some(), "waited in vain: {what}\n{}", self.run(&["status"]).stdout);
    }

    /// Waits until the command prints all of `words`. What the outside received is recorded a
    /// moment later, so a receiver that has it does not mean that the record is there.
    #[track_caller]
    pub fn wait_for_words(&self, args: &[&str], words: &[&str]) {
        let mut printed = String::new();
        let has_all = || {
            printed = self.run(args).stdout;
            words.iter().all(|word| printed.contains(word)).then_some(())
        };
        let held = try_wait_for(DEADLINE, has_all);
        assert!(held.is_some(), "waited in vain for {words:?} in everloop {args:?}:\n{printed}");
    }

    /// Waits until an agent is at work: granted, committed, and its process there.
    #[track_caller]
    pub fn wait_for_agent(&self) {
        let at_work = |pid: &i32| {
            let exe = fs::read_link(format!("/proc/{pid}/exe"));
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let in_turn = environment.split(|b| *b == 0).any(|entry| entry.starts_with(b"EVERLOOP_TURN="));
            in_turn && exe.is_ok_and(|exe| !exe.ends_with("everloop"))
        };
        self.wait_for("an agent is at work", || processes_of(&self.state()).iter().any(at_work));
    }

    /// The address of the supervisor's HTTP port.
    #[track_caller]
    pub fn port(&self) -> SocketAddr {
        let note = || serde_json::from_slice::<Value>(&fs::read(self.state().join("http.json")).ok()?).ok();
        let address = || note()?["address"].as_str()?.parse::<SocketAddr>().ok();
        self.wait_for("the supervisor answers", || address().is_some_and(|a| get(a, "/health").0 == 200));
        address().expect("it was just there")
    }

    /// The only loop, as `everloop show --json` prints it.
    #[track_caller]
    pub fn the_loop(&self) -> Value {
        let shown = self.run(&["show", "--json"]);
        // A `run` that was just started has not made it yet.
        if shown.code == 2 && [&shown.stdout, &shown.stderr].iter().any(|text| text.contains("there is no loop yet")) {
            return Value::Null;
        }
        shown.ok().json()["loop"].clone()
    }

    /// A command of everloop that is not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everloop"));
        command.args(args);
        self.prepared(command)
    }

    /// Another program in the same world, not started yet.
    pub fn program(&self, name: &str) -> Command {
        self.prepared(Command::new(name))
    }

    fn prepared(&self, mut command: Command) -> Command {
        let root = self.root.path();
        command.current_dir(self.project()).env_clear();
        for name in ALLOWED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp")).env("EVERLOOP_STATE_DIR", self.state());
        for (name, value) in [("LANG", "C.UTF-8"), ("TZ", "UTC"), ("USER", "tester"), ("COLUMNS", "120")] {
            command.env(name, value);
        }
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Tester").env(format!("GIT_{who}_EMAIL"), "tester@example.com");
        }
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Env {
    /// Ends everything that was started in this world, also what outlives its supervisor on
    /// purpose.
    fn drop(&mut self) {
        try_wait_for(Duration::from_secs(10), || {
            let alive = processes_of(&self.state());
            for pid in &alive {
                kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
            }
            alive.is_empty().then_some(())
        });
    }
}

/// Sends bytes and reads the answer to its end: status and the whole text.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    stream.set_read_timeout(Some(SOON)).expect("a socket takes a timeout");
    // A client that is refused early may find the connection closed.
    stream.write_all(bytes).ok();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok();
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, text)
}

/// Status and body of a page.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, text) = raw(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A command that runs beside the test.
pub struct Background {
    child: Child,
    readers: Option<(JoinHandle<String>, JoinHandle<String>)>,
}

impl Background {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is our child and was not waited for");
    }

    #[track_caller]
    pub fn wait(mut self) -> Output {
        let status = wait_for_end(&mut self.child, "a background command");
        let (out, err) = self.readers.take().expect("they are taken once, here");
        output(status, out, err)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).ok();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[track_caller]
fn finish(mut command: Command, what: &str) -> Output {
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
    let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let status = wait_for_end(&mut child, what);
    output(status, out, err)
}

#[track_caller]
fn wait_for_end(child: &mut Child, what: &str) -> ExitStatus {
    let ended = try_wait_for(DEADLINE, || child.try_wait().expect("it is our child"));
    ended.unwrap_or_else(|| {
        child.kill().ok();
        child.wait().ok();
        panic!("{what} did not end within {DEADLINE:?}");
    })
}

fn output(status: ExitStatus, out: JoinHandle<String>, err: JoinHandle<String>) -> Output {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let text = |reader: JoinHandle<String>| reader.join().expect("a reader does not panic");
    Output { code, stdout: text(out), stderr: text(err) }
}
