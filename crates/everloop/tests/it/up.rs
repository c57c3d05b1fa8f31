//! `everloop up` as a service: the unit, the plist, and the reports to the service manager.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_testkit::wait::try_wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::env::Env;

/// Makes cgroups of its own in every hierarchy and enters them, because a manager takes all
/// processes of the cgroup in which it starts; mounts a `/run/systemd/system` of its own, without
/// which systemd starts no user manager; and becomes one.
const MANAGER: &str = r#"set -eu
roots=$(ls -d /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/systemd/cgroup.procs /sys/fs/cgroup/unified/cgroup.procs 2>/dev/null || true)
for root in $roots; do
  mkdir "$(dirname "$root")/$GROUP"
  echo $$ > "$(dirname "$root")/$GROUP/cgroup.procs"
done
if grep -E '^(0:|[0-9]+:name=systemd):' /proc/self/cgroup | grep -qvxE ".*:/$GROUP"; then
  echo "this manager would take the processes of others" >&2
  exit 1
fi
mount --make-rprivate /
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/system
exec env -u GROUP "$(ls /lib/systemd/systemd /usr/lib/systemd/systemd 2>/dev/null | head -1)" --user --log-target=null"#;

/// A user manager of systemd for one test.
struct UserManager {
    process: Child,
    runtime: PathBuf,
    group: String,
}

impl UserManager {
    fn start(home: &Path, runtime: &Path) -> Self {
        std::fs::create_dir(runtime).expect("the folder is the test's");
        std::fs::set_permissions(runtime, std::fs::Permissions::from_mode(0o700)).expect("the folder is the test's");
        let group = format!("everloop-it-{}", std::process::id());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MANAGER]).env_clear().env("GROUP", &group).env("HOME", home);
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("XDG_RUNTIME_DIR", runtime);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let manager = Self { process: process.expect("util-linux is installed"), runtime: runtime.to_owned(), group };
        let there = || manager.runtime.join("systemd/private").exists().then_some(());
        try_wait_for(Duration::from_secs(60), there)
            .expect("it starts: root, a cgroup file system and systemd are needed");
        manager
    }

    fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("systemctl");
        command.arg("--user").args(args).env("XDG_RUNTIME_DIR", &self.runtime).env_remove("DBUS_SESSION_BUS_ADDRESS");
        let output = command.output().expect("systemd is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A property of everloop's unit.
    fn show(&self, property: &str) -> String {
        self.ctl(&["show", "everloop.service", "--value", "-p", property])
    }
}

impl Drop for UserManager {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        let remove = r#"for group in /sys/fs/cgroup/$0 /sys/fs/cgroup/*/$0; do
            [ ! -d "$group" ] || find "$group" -depth -type d | while read -r folder; do rmdir "$folder"; done
        done 2>/dev/null
        ! ls -d /sys/fs/cgroup/$0 /sys/fs/cgroup/*/$0 >/dev/null 2>&1"#;
        let run = || Command::new("sh").args(["-c", remove, &self.group]).stderr(Stdio::null()).status();
        let gone = || run().is_ok_and(|status| status.success()).then_some(());
        try_wait_for(Duration::from_secs(10), gone);
    }
}

#[test]
fn long_the_unit_runs_is_restarted_and_removed_under_a_real_user_manager() {
    let env = Env::new();
    // systemd takes no path with `..` in it.
    let root = env.project().parent().expect("it is in a folder of the test").to_owned();
    let (home, runtime) = (root.join("home"), root.join("runtime"));
    let env = env.var("XDG_RUNTIME_DIR", runtime.to_str().expect("a plain path"));
    let manager = UserManager::start(&home, &runtime);
    env.run(&["up", "--install"]).ok();
    // The unit is of the type `notify`: it is active when the supervisor reported that it is ready.
    env.wait_for("it is active", || manager.show("ActiveState") == "active");
    assert!(env.run(&["status"]).ok().stdout.contains("supervisor: `everloop up`"));
    let first = manager.show("MainPID");
    kill(Pid::from_raw(first.parse().expect("a number")), Signal::SIGKILL).expect("it runs");
    env.wait_for("it is restarted", || !["0", &first].contains(&manager.show("MainPID").as_str()));
    env.wait_for("it is active again", || manager.show("ActiveState") == "active");
    assert_eq!(manager.show("NRestarts"), "1");
    // The service takes the turns of a loop that is started beside it.
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap=0"]).ok();
    env.run(&["down", "--uninstall"]).ok();
    assert_eq!((manager.show("LoadState"), manager.show("ActiveState")), ("not-found".into(), "inactive".into()));
    assert!(!home.join(".config/systemd/user/everloop.service").exists());
}

#[test]
fn the_unit_passes_systemds_own_check_and_holds_no_secret() {
    let env = Env::new().var("MY_API_KEY", "s3cret").var("EVERLOOP_HUB_URL", "postgres://me:s3cret@db/x");
    let unit = env.run(&["up", "--print-unit", "systemd"]).ok().stdout;
    assert!(!unit.contains("s3cret") && unit.contains("PATH="), "{unit}");
    let passed = unit.lines().filter_map(|line| line.strip_prefix("Environment=\"")?.split_once('='));
    let usual = |name: &str| {
        matches!(name, "PATH" | "TZ" | "LANG")
            || name.starts_with("LC_")
            || name.starts_with("XDG_") && name.ends_with("_HOME")
    };
    let others: Vec<&str> = passed.map(|(name, _)| name).filter(|name| !usual(name)).collect();
    assert_eq!(others, Vec::<&str>::new());
    for line in ["Type=notify", "WatchdogSec=120", "Restart=on-failure", "NoNewPrivileges=yes", "KillMode=process"] {
        assert!(unit.lines().any(|l| l == line), "{line} in {unit}");
    }
    let path = env.project().join("everloop.service");
    std::fs::write(&path, &unit).expect("the folder is the test's");
    let mut check = Command::new("systemd-analyze");
    let checked = check.args(["--user", "verify"]).arg(&path).env("XDG_RUNTIME_DIR", env.project()).output();
    let checked = checked.expect("it is installed");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && !said.contains("everloop.service"), "{said}");
}

#[test]
fn the_plist_is_one() {
    let env = Env::new();
    let plist = env.run(&["up", "--print-unit", "launchd"]).ok().stdout;
    let path = env.project().join("everloop.plist");
    std::fs::write(&path, &plist).expect("the folder is the test's");
    let read = "import plistlib, sys; p = plistlib.load(open(sys.argv[1], 'rb')); \
                assert p['ProgramArguments'][-1] == 'up' and p['RunAtLoad'] and not p['KeepAlive']['SuccessfulExit'], p";
    let checked = Command::new("python3").args(["-c", read]).arg(&path).output().expect("it is installed");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_unit_is_put_in_its_place_and_taken_back_but_never_somebody_elses() {
    let env = Env::new();
    let config = env.project().join("config");
    let env = env.var("XDG_CONFIG_HOME", config.to_str().expect("a plain path"));
    let unit = config.join("systemd/user/everloop.service");
    let made = env.run(&["up", "--install", "--json"]).ok().json();
    assert_eq!(made["unit"].as_str(), unit.to_str());
    let text = std::fs::read_to_string(&unit).expect("it was written");
    assert!(text.contains(env.state().to_str().expect("a plain path")), "{text}");
    env.run(&["up", "--install"]).ok();
    env.run(&["down", "--uninstall"]).ok();
    assert!(!unit.exists());
    std::fs::write(&unit, "[Service]\nExecStart=/bin/true\n").expect("the folder is the test's");
    assert!(env.run(&["up", "--install"]).exits(1).stderr.contains("was not written by everloop"));
    env.run(&["down", "--uninstall"]).exits(1);
    assert!(unit.exists());
}

#[test]
fn the_loop_itself_says_that_it_is_ready_lives_and_goes() {
    let env = Env::new();
    let path = env.project().join("notify");
    let manager = UnixDatagram::bind(&path).expect("the folder is the test's");
    let env = env.var("NOTIFY_SOCKET", path.to_str().expect("a plain path")).var("WATCHDOG_USEC", "600000");
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket takes a deadline");
    let hear = || {
        let mut buffer = [0; 64];
        let n = manager.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
    };
    let up = env.spawn(&["up", "--listen", "off"]);
    assert_eq!(hear().as_deref(), Some("READY=1"));
    let mut last = Instant::now();
    for _ in 0..5 {
        assert_eq!(hear().as_deref(), Some("WATCHDOG=1"));
        assert!(last.elapsed() < Duration::from_secs(20));
        last = Instant::now();
    }
    // A hanging supervisor is silent.
    up.signal(Signal::SIGSTOP);
    manager.set_read_timeout(Some(Duration::from_millis(700))).expect("a socket takes a deadline");
    while hear().is_some() {}
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket takes a deadline");
    up.signal(Signal::SIGCONT);
    assert_eq!(hear().as_deref(), Some("WATCHDOG=1"));
    up.signal(Signal::SIGTERM);
    let last = std::iter::from_fn(hear).find(|said| said != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    up.wait();
}

/// A loop of a terminal that is lost after its first turn.
fn lost(env: &Env, goal: &str) -> String {
    let run = env.spawn(&["run", goal, "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h"]);
    env.wait_for_words(&["why", goal], &["[guard.gap]"]);
    run.signal(Signal::SIGKILL);
    run.wait();
    let shown = env.run(&["show", goal, "--json"]).ok().json()["loop"].clone();
    shown["id"].as_str().expect("a loop has an id").to_owned()
}

#[test]
fn loops_of_lost_terminals_stay_stopped_until_a_person_wants_them() {
    let env = Env::new();
    let (alpha, beta) = (lost(&env, "alpha"), lost(&env, "beta"));
    let args = ["run", "gamma", "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0", "--detach"];
    let said = env.run(&args).ok().stderr;
    assert!(said.contains("leaves 2 loops of terminals that are gone alone; `everloop resume ID`"), "{said}");
    assert!(said.contains(&format!("{alpha} (alpha) in {}", env.project().display())), "{said}");
    env.wait_for_words(&["why", &alpha], &["the terminal that it was started from is gone", "[unattended]"]);
    env.run(&["resume", &alpha]).ok();
    env.wait_for_words(&["why", &alpha], &["at least 1h", "[guard.gap]"]);
    env.wait_for_words(&["why", &beta], &["[unattended]"]);
    env.run(&["down"]).ok();
    // From another folder.
    let up = env.spawn(&["-C", "../home", "up", "--listen", "off"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).stdout.contains("\"up\""));
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    assert!(said.contains("goes on with 2 unfinished loops:") && said.contains("(gamma)"), "{said}");
    assert!(said.contains("leaves 1 loop of terminals that are gone alone") && said.contains("(beta)"), "{said}");
    assert!(said.contains("agent sleep, at most"), "what it may cost is said first: {said}");
}

#[test]
fn the_same_run_goes_on_with_a_loop_that_a_supervisor_left_alone() {
    let env = Env::new();
    let alpha = lost(&env, "alpha");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for_words(&["why", &alpha], &["[unattended]"]);
    let run = env.spawn(&["run", "alpha", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h"]);
    env.wait_for_words(&["why", &alpha], &["[guard.gap]"]);
    run.signal(Signal::SIGINT);
    run.wait().exits(130);
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn one_bad_file_does_not_stop_the_other_loops() {
    let env = Env::new();
    let agent = "echo x >> ran; test $(wc -l < ran) -lt 3 || touch done";
    let run =
        ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "2s", "--in-place", "--detach"];
    env.run(&run).ok();
    env.wait_for("its first turn", || env.project().join("ran").exists());
    env.run(&["down"]).ok();
    env.write("everloop.toml", "no toml [");
    let user = env.project().join("../home/.config/everloop");
    std::fs::create_dir_all(&user).expect("the home is the test's");
    std::fs::write(user.join("config.toml"), "no toml [").expect("the home is the test's");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the loop reaches its goal", || env.project().join("done").exists());
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    assert!(said.contains("config.toml") && said.contains("all other loops go on"), "{said}");
}

#[test]
fn a_loop_whose_agent_is_missing_waits_and_the_others_go_on() {
    let env = Env::new();
    let path = format!("{}:/usr/bin:/bin", env.project().join("bin").display());
    let env = env.var("PATH", &path);
    let a_loop = |name: &str, agent: &str| {
        format!(
            "[agent.{agent}]\ncommand = [\"{agent}\", \"{name}.done\"]\nfree = true\n[loop.{name}]\ngoal = \"{name}\"\n\
             agent = \"{agent}\"\nchecks = [\"test -f {name}.done\"]\nworkspace = \"in-place\"\n"
        )
    };
    env.write("everloop.toml", &(a_loop("first", "late-agent") + &a_loop("second", "touch")));
    env.run(&["trust"]).ok();
    let row = |name: &str| {
        let shown = env.run(&["show", name, "--json"]);
        if shown.code == 0 { shown.json()["loop"].clone() } else { serde_json::Value::Null }
    };
    let reached = |name: &str| row(name)["phase"]["ending"]["is"] == "reached";
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the loop with an agent reaches its goal", || reached("second"));
    let why = env.run(&["why", "first"]).ok().stdout;
    assert!(why.contains("there is no program `late-agent`") && why.contains("resume"), "{why}");
    assert_eq!(row("first")["turns"], 0);
    env.wait_for_words(&["ticket", "list"], &["no turn starts: there is no program `late-agent`"]);
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    let warned: Vec<&str> = said.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert!(warned.len() == 1 && warned[0].contains("(first) waits: there is no program `late-agent`"), "{said}");

    env.script("bin/late-agent", "touch \"$1\"");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the agent is there, and the loop goes on by itself", || reached("first"));
    assert!(!env.run(&["ticket", "list"]).ok().stdout.contains("late-agent"), "its ticket is closed");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    env.run(&["replay"]).ok();
}
