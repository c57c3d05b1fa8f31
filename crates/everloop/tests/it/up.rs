//! `everloop up` as a service: the unit, the plist, and the reports to the service manager.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::env::Env;

#[test]
fn the_unit_passes_systemds_own_check_and_holds_no_secret() {
    let env = Env::new().var("MY_API_KEY", "s3cret").var("EVERLOOP_HUB_URL", "postgres://me:s3cret@db/x");
    let unit = env.run(&["up", "--print-unit", "systemd"]).ok().stdout;
    assert!(!unit.contains("s3cret") && unit.contains("PATH="), "{unit}");
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

#[test]
fn what_a_supervisor_of_all_loops_goes_on_with_is_named_first() {
    let env = Env::new();
    for goal in ["alpha", "beta"] {
        let run = env.spawn(&["run", goal, "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0"]);
        env.wait_for("it is there", || env.run(&["status"]).stdout.contains(goal));
        run.signal(Signal::SIGKILL);
        run.wait();
    }
    let args = ["run", "gamma", "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0", "--detach"];
    let said = env.run(&args).ok().stderr;
    assert!(said.contains("goes on with 2 other unfinished loops:"), "{said}");
    env.run(&["down"]).ok();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).stdout.contains("\"up\""));
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    assert!(said.contains("goes on with 3 unfinished loops:"), "{said}");
    assert_eq!(said.matches(&format!(" in {}", env.project().display())).count(), 3, "{said}");
}
