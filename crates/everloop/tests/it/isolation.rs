//! Isolation of turns and checks: hostile commands are refused under each means, each of them
//! succeeds without (so that a refusal proves something), and honest work goes on.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::env::Env;

/// One attempt: its name, and a command that succeeds when the attempt does.
const ATTEMPTS: &[(&str, &str)] = &[
    ("ssh", "grep -q c4nary $HOME/.ssh/id_canary"),
    ("cloud", "grep -q c4nary $HOME/.aws/credentials"),
    ("netrc", "grep -q c4nary $HOME/.netrc"),
    ("other-cli", "grep -q c4nary $HOME/.codex/auth.json"),
    ("other-account", "grep -q c4nary $HOME/keys/other"),
    ("state", "cat $STATE/ledger.db > /dev/null"),
    ("hub", "grep -q c4nary $STATE/canary.json"),
    ("token", "cat $STATE/turns/*/job.jsonl $STATE/checks/*/*/job.jsonl 2> /dev/null | grep -q argv"),
    ("environment", "grep -qa k3y-of-the-supervisor /proc/[0-9]*/environ"),
    ("home", "echo x > $HOME/planted"),
    ("beside", "echo x > $HOME/../planted"),
    ("truncate", "truncate -s 0 $HOME/kept && ! test -s $HOME/kept"),
    ("remove", "rm -f $HOME/removed && ! test -e $HOME/removed"),
    ("rename", "mv $HOME/moved-$1 $HOME/gone-$1"),
    ("link", "ln $HOME/.ssh/id_canary ./taken-$1 && grep -q c4nary ./taken-$1"),
    ("profile", "echo x >> $HOME/.profile"),
    ("git-config", "git config --global alias.x '!x'"),
    ("signal", "for_shims 'kill -0 $pid'"),
    ("memory", "for_shims 'grep -q . /proc/$pid/maps'"),
    ("trace", "for_shims 'python3 trace.py $pid'"),
    ("descriptors", "for_shims 'ls /proc/$pid/fd/0'"),
    ("namespace", "unshare -U true"),
    ("person", "env -u EVERLOOP_TURN $EXE resume -n 99"),
    ("message", "env -u EVERLOOP_TURN -u EVERLOOP_SOCKET $EXE --state-dir $STATE message send x hello"),
    ("stop", "env -u EVERLOOP_TURN -u EVERLOOP_SOCKET $EXE --state-dir $STATE/ stop"),
];

/// Attaches to a process for a moment.
const TRACE: &str = "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
if libc.ptrace(16, pid, 0, 0) != 0: sys.exit(1)
os.waitpid(pid, 0x40000000)
libc.ptrace(17, pid, 0, 0)
";

fn world() -> Env {
    let env = Env::new().var("SUPERVISOR_KEY", "k3y-of-the-supervisor");
    let home = env.project().join("../home");
    for dir in [".ssh", ".aws", ".codex", "keys"] {
        fs::create_dir_all(home.join(dir)).expect("a new folder can be filled");
    }
    fs::create_dir_all(env.state()).expect("a new folder can be filled");
    let secrets = [".ssh/id_canary", ".aws/credentials", ".netrc", ".codex/auth.json", "keys/other"];
    for name in secrets.into_iter().chain(["kept", "removed", "moved-turn", "moved-check"]) {
        fs::write(home.join(name), "c4nary\n").expect("a new folder can be filled");
    }
    fs::write(env.state().join("canary.json"), "c4nary\n").expect("a new folder can be filled");
    env.write("everloop.toml", "[account.other]\nfile = { KEY = \"~/keys/other\" }\n");
    env.write("trace.py", TRACE);
    let shims = "for_shims() { for p in /proc/[0-9]*; do pid=${p#/proc/}; \
                 if tr '\\0' '\\n' < $p/cmdline 2>/dev/null | grep -qx __job && \
                 tr '\\0' '\\n' < $p/cmdline 2>/dev/null | grep -q \"^$STATE\"; then eval \"$2\" && return 0; fi; done; return 1; }";
    let state = env.state().display().to_string();
    let exe = env!("CARGO_BIN_EXE_everloop");
    let mut script = format!("STATE={state}\nEXE={exe}\n{shims}\nfor_shims_() {{ for_shims x \"$1\"; }}\n");
    for (name, attempt) in ATTEMPTS {
        let attempt = attempt.replace("for_shims ", "for_shims_ ");
        script.extend(["(", &attempt, ") > /dev/null 2>&1 && touch loot-$1-", name, "\n"]);
    }
    env.script("hostile.sh", &format!("{script}touch done-$1\nexit 0"));
    env
}

const HOSTILE_TURN: &str = "./hostile.sh turn";
const HOSTILE_CHECK: &str = "./hostile.sh check; test -f done-turn";

/// The attempts that succeeded, as `turn-ssh` or `check-ssh`.
fn loot(env: &Env, mode: &str, (agent, check): (&str, &str)) -> BTreeSet<String> {
    let words = ["run", "x", "--check", check, "--agent-cmd", agent, "--min-gap", "0", "--isolation", mode, "-n", "1"];
    let out = env.run(&words);
    // Without isolation one of the attempts stops the loop.
    assert!(out.code == 0 || mode == "none", "{out:?}");
    let names = fs::read_dir(env.project()).expect("the project is there").flatten();
    let names: BTreeSet<String> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
    for (side, _) in [("turn", agent), ("check", check)].into_iter().filter(|(_, run)| run.contains("hostile")) {
        assert!(names.contains(&format!("done-{side}")), "the hostile {side} ran");
    }
    names.iter().filter_map(|name| name.strip_prefix("loot-").map(str::to_owned)).collect()
}

fn refused(mode: &str) {
    assert_eq!(loot(&world(), mode, (HOSTILE_TURN, HOSTILE_CHECK)), BTreeSet::new());
}

/// An attempt that cannot succeed proves nothing.
fn succeeds(side: &str, commands: (&str, &str)) {
    let found = loot(&world(), "none", commands);
    // The checks of the baseline find nothing to resume.
    let names = ATTEMPTS.iter().map(|(name, _)| *name).filter(|name| (side, *name) != ("check", "person"));
    let missing: Vec<&str> = names.filter(|name| !found.contains(&format!("{side}-{name}"))).collect();
    assert_eq!(missing, Vec::<&str>::new(), "{side}");
}

#[test]
fn every_attempt_is_refused_by_default() {
    refused("auto");
}

#[test]
fn every_attempt_is_refused_under_landlock() {
    refused("landlock");
}

#[test]
fn every_attempt_is_refused_under_bubblewrap() {
    refused("bubblewrap");
}

#[test]
fn every_attempt_of_a_turn_succeeds_without_isolation() {
    succeeds("turn", (HOSTILE_TURN, "test -f done-turn"));
}

#[test]
fn every_attempt_of_a_check_succeeds_without_isolation() {
    succeeds("check", ("true", HOSTILE_CHECK));
}

#[test]
fn what_the_operator_opens_is_open() {
    let env = world();
    env.write(
        "everloop.toml",
        "[isolation]\nreadable = [\"~/.aws\"]\nwritable = [\"~/cache\"]\nunreadable = [\"~/kept\"]\n",
    );
    fs::create_dir(env.project().join("../home/cache")).expect("the home is there");
    let agent = "cat $HOME/.aws/credentials > got && echo x > $HOME/cache/made && ! cat $HOME/kept && touch done";
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0", "-n", "1"]).ok();
    assert_eq!(env.read("got"), "c4nary\n");
}

#[test]
fn the_network_of_checks_can_be_cut() {
    let env = Env::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("it is bound").port();
    env.write("reach.py", &format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5)"));
    let inner =
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 5)";
    env.write("inner.py", inner);
    let run = |check: &str, network: &str| {
        env.write("everloop.toml", &format!("[isolation]\ncheck_network = \"{network}\"\n"));
        env.run(&["run", check, "--check", check, "--agent-cmd", "true", "--min-gap", "0", "-n", "1"]).code
    };
    assert_eq!(run("python3 reach.py", "open"), 0);
    assert_eq!(run("! python3 reach.py", "none"), 0);
    assert_eq!(run("! python3 inner.py", "none"), 0);
    assert_eq!(run("! python3 reach.py && python3 inner.py", "loopback"), 0);
}

#[test]
fn temporary_files_go_with_the_turn() {
    let env = Env::new();
    let agent = "mktemp > where; echo $TMPDIR >> where; mktemp -d >> where; touch done";
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]).ok();
    let where_to = env.read("where");
    assert_eq!(where_to.lines().count(), 3, "{where_to}");
    for path in where_to.lines() {
        assert!(path.contains("everloop-") && !fs::exists(path).unwrap_or(true), "{path}");
    }
}

#[test]
fn honest_work_with_git_goes_on() {
    let env = Env::new().git();
    let agent = "git checkout -q -b topic 2>/dev/null; echo a > a && git add a && git -c user.name=a -c user.email=a@b.c commit -qm mine && git log --oneline | \
                 grep -q mine && git stash list && touch done";
    let check = "test -f done && git log -1 --format=%H && git status --short > /dev/null && git diff HEAD~0 --stat";
    let run = ["run", "x", "--check", check, "--agent-cmd", agent, "--min-gap", "0", "-n", "2"];
    env.run(&run).ok();
    assert!(env.project().join("a").exists(), "it landed");
}

#[test]
fn honest_work_with_build_tools_goes_on() {
    let env = Env::new().git();
    env.write("Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    env.write("src/lib.rs", "pub fn two() -> u32 { 1 }\n#[test]\nfn t() { assert_eq!(two(), 2) }\n");
    env.write("package.json", "{\"name\":\"p\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node t.js\"}}\n");
    env.write("t.js", "require('assert').equal(require('fs').readFileSync('n','utf8').trim(), '2')\n");
    env.write(
        "test_p.py",
        "import unittest, tempfile\nclass T(unittest.TestCase):\n def test(self):\n  \
                            tempfile.mkdtemp()\n  assert open('n').read().strip() == '2'\n",
    );
    env.write(".gitignore", "target\n__pycache__\n");
    env.write("n", "1\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "tools"]);
    let var = |name: &str| std::env::var(name).map_or(String::new(), |value| format!("{name}={value} "));
    let cargo = format!("{}{}cargo test -q --offline", var("CARGO_HOME"), var("RUSTUP_HOME"));
    let agent = format!("sed -i 's/{{ 1 }}/{{ 2 }}/' src/lib.rs && echo 2 > n && {cargo} && npm test");
    let mut args = vec!["run", "x", "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    for check in [cargo.as_str(), "npm test", "python3 -m unittest -q test_p"] {
        args.extend(["--check", check]);
    }
    env.run(&args).ok();
}

#[test]
fn the_means_and_their_gaps_are_shown() {
    let env = Env::new();
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"];
    let out = env.run(&args).ok();
    assert!(out.stderr.contains("isolation: Landlock") && out.stderr.contains("not covered:"), "{}", out.stderr);
    let off = env.run(&[
        "run",
        "y",
        "--check",
        "false",
        "--agent-cmd",
        "true",
        "--min-gap",
        "0",
        "-n",
        "1",
        "--isolation",
        "none",
    ]);
    assert!(off.stderr.contains("isolation: none: commands run as you"), "{}", off.stderr);
    let doctor = env.run(&["doctor"]);
    assert!(doctor.stdout.contains("turns and checks are isolated by Landlock"), "{}", doctor.stdout);
}

#[test]
fn a_mode_that_cannot_be_enforced_starts_nothing() {
    let env = Env::new();
    let path = env.project().join("../empty").display().to_string();
    fs::create_dir(&path).expect("a new folder can be filled");
    for program in ["sh", "git", "touch", "true"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh is there");
        let real = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        let real = if real.starts_with('/') { real } else { format!("/bin/{program}") };
        std::os::unix::fs::symlink(real, format!("{path}/{program}")).expect("a new folder can be filled");
    }
    let env = env.var("PATH", &path);
    let args =
        ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "-n", "1", "--isolation", "bubblewrap"];
    let out = env.run(&[&args[..], &["--min-gap", "0"]].concat());
    assert_ne!(out.code, 0);
    assert!(!env.project().join("done").exists());
    assert!(env.run(&["logs"]).stdout.contains("bubblewrap is not installed"), "{}", env.run(&["logs"]).stdout);
}
