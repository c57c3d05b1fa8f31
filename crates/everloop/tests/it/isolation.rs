//! Isolation of turns and checks: honest work goes on, and what a person opens is open. What is
//! refused is in `tests/attack`.

use std::fs;
use std::process::Command;

use super::env::Env;

#[test]
fn what_a_person_opens_is_open() {
    let env = Env::new();
    fs::create_dir_all(env.project().join("../home/.aws")).expect("the home is there");
    for name in [".aws/credentials", "kept"] {
        fs::write(env.project().join("../home").join(name), "c4nary\n").expect("the home is there");
    }
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
    assert!(doctor.stdout.contains("notifiers, mailboxes and trackers are isolated by Landlock"), "{}", doctor.stdout);
}

#[test]
fn status_and_why_name_a_loop_that_runs_without() {
    let env = Env::new();
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h"];
    let _open = env.spawn(&[&run[..], &["--isolation", "none"]].concat());
    env.wait_for_words(&["status"], &["isolation none: commands run as you"]);
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.contains("Isolation: none: commands run as you") && why.contains("not covered: your files"), "{why}");
    env.run(&["stop", "--now"]).ok();
    env.wait_for("it is over", || !env.run(&["status"]).ok().stdout.contains("isolation none"));
    let env = Env::new();
    let _isolated = env.spawn(&run);
    env.wait_for_words(&["why"], &["Isolation: Landlock"]);
    assert!(!env.run(&["status"]).ok().stdout.contains("isolation"), "only loops without are listed");
}

/// The home of a world with a file in a hidden folder.
fn with_key() -> Env {
    let env = Env::new();
    env.write("../home/.ssh/id_canary", "c4nary\n");
    env
}

#[test]
fn setup_commands_are_isolated() {
    let env = with_key();
    let setup = "if grep -q c4nary $HOME/.ssh/id_canary; then echo read it; exit 1; fi";
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0", "-n", "1"];
    let under = |mode: &str| env.run(&[&run[..], &["--setup", setup, "--new", "--isolation", mode]].concat());
    assert_ne!(under("none").code, 0, "without isolation it reads the key");
    under("auto").ok();
}

#[test]
fn a_file_that_appears_beside_a_hidden_place_stays_closed() {
    let env = with_key();
    let agent =
        "cat $HOME/kept && touch ready; until test -e $HOME/late; do sleep 0.05; done; cat $HOME/late || touch done";
    env.write("../home/kept", "before\n");
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0", "-n", "1"];
    let run = env.spawn(&[&run[..], &["--in-place", "--isolation", "landlock"]].concat());
    env.wait_for("the turn has begun", || env.project().join("ready").exists());
    env.write("../home/late", "after\n");
    run.wait().ok();
}

/// A program with the set-user-ID bit, such as `sudo`, works with the rights of its caller.
#[test]
fn no_command_gains_rights_by_a_program_that_it_starts() {
    let env = Env::new();
    let look = "grep -q 'NoNewPrivs:[[:space:]]1' /proc/self/status";
    for mode in ["landlock", "bubblewrap"] {
        let agent = format!("{look} && touch done");
        let run = ["run", mode, "--check", &format!("test -f done && {look}"), "--agent-cmd", &agent];
        env.run(&[&run[..], &["--min-gap", "0", "-n", "1", "--isolation", mode]].concat()).ok();
        std::fs::remove_file(env.project().join("done")).expect("it was made in place");
    }
}

#[test]
fn a_container_is_the_persons_own_command_line() {
    let env = Env::new();
    let used = env.project().join("../tmp/used").display().to_string();
    let boxed = env.script("../box", &format!("echo \"$1 $2\" >> {used}; cd \"$1\" && shift 2 && exec \"$@\""));
    let keys = format!(
        "[isolation]\nmode = \"container\"\ncontainer = [\"{boxed}\", \"{{dir}}\", \"{{tmp}}\", \"{{command}}\"]\n"
    );
    env.write("everloop.toml", &keys);
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let used = env.read("../tmp/used");
    assert!(used.lines().count() >= 3, "a turn and its checks: {used}");
    assert!(used.lines().all(|line| line.contains("/everloop-")), "each has a folder for temporary files: {used}");
    let a_loop = "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"true\"]\n";
    env.write("everloop.toml", &format!("[isolation]\nmode = \"container\"\n{a_loop}"));
    let missing = env.run(&["config", "check"]).exits(7).stderr;
    assert!(missing.contains("has no `container` command line"), "{missing}");
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
