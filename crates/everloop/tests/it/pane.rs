//! `everloop pane` with a real tmux: commands and their output, also when something goes wrong.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::env::Env;

/// A world with a tmux server that ends with it.
struct World {
    env: Env,
}

impl World {
    fn new() -> Self {
        Self { env: Env::new().var("SECRET_KEY", "hunter2") }
    }

    fn state_of(&self, name: &str) -> String {
        let list = self.env.run(&["pane", "list", "--json"]).ok().json();
        let panes = list["panes"].as_array().cloned().unwrap_or_default();
        let pane = panes.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no `{name}` in {list}"));
        pane["state"].as_str().unwrap_or_default().to_owned()
    }

    fn shows(&self, name: &str, text: &str) {
        let what = format!("`{name}` shows {text:?}");
        self.env.wait_for(&what, || self.env.run(&["pane", "read", name]).stdout.contains(text));
    }

    fn kill_server(&self) {
        let socket = self.env.state().join("panes/tmux.sock");
        let mut command = Command::new("tmux");
        command.arg("-S").arg(socket).arg("kill-server").stdout(Stdio::null()).stderr(Stdio::null());
        // There may be none.
        command.status().ok();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_server();
    }
}

#[test]
fn a_pane_is_started_read_typed_into_and_killed() {
    let world = World::new();
    let env = &world.env;
    assert!(env.run(&["pane", "list"]).ok().stdout.contains("no panes"));
    let script = "echo \"key=$SECRET_KEY other=$HOME\"; exec cat";
    env.run(&["pane", "start", "one", "--env", "SECRET_KEY", "--", "sh", "-c", script]).ok();
    world.shows("one", "key=hunter2");
    let typed = env.run(&["pane", "type", "one", "--json", "-x #(touch x) $(touch x);\u{3}"]).ok().json();
    assert_eq!(typed["typed"]["stripped"]["U+0003"], 1, "{typed}");
    world.shows("one", "\n-x #(touch x) $(touch x);\n-x #(touch x) $(touch x);");
    let read = env.run(&["pane", "read", "one", "--json"]).ok().json();
    assert!(read["text"].as_str().is_some_and(|t| t.contains("#(touch x)")), "{read}");
    let warned = env.run(&["pane", "type", "one", "a\u{1b}b"]).ok();
    assert!(warned.stderr.contains("U+001B 1×"), "{}", warned.stderr);
    let record = std::fs::read_to_string(env.state().join("panes/one.json")).expect("the pane is remembered");
    assert!(!record.contains("hunter2"), "{record}");
    env.run(&["pane", "kill", "one"]).ok();
    assert!(!env.project().join("x").exists());
    assert!(env.run(&["pane", "list"]).ok().stdout.contains("no panes"));
}

/// A person's terminal with a pane in it; it is closed when this is dropped.
struct Terminal(Child);

impl Terminal {
    fn attach(world: &World, name: &str) -> Self {
        let line = format!("{} pane attach {name}", env!("CARGO_BIN_EXE_everloop"));
        let mut command = world.env.program("script");
        command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::null());
        let terminal = Self(command.spawn().expect("script(1) gives a program a terminal"));
        let socket = world.env.state().join("panes/tmux.sock");
        let clients = || Command::new("tmux").arg("-S").arg(&socket).arg("list-clients").output();
        world.env.wait_for("it is attached", || clients().is_ok_and(|listed| !listed.stdout.is_empty()));
        terminal
    }

    fn type_keys(&mut self, keys: &str) {
        self.0.stdin.as_mut().expect("it is piped").write_all(keys.as_bytes()).expect("it reads");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_person_types_by_hand_into_an_attached_pane() {
    let world = World::new();
    world.env.run(&["pane", "start", "one", "--", "cat"]).ok();
    let mut terminal = Terminal::attach(&world, "one");
    terminal.type_keys("by hand\r");
    world.shows("one", "by hand\nby hand");
}

#[test]
fn mistakes_are_answered_with_a_next_step() {
    let world = World::new();
    let env = &world.env;
    let none = env.run(&["pane", "read", "one"]).exits(2);
    assert!(none.stderr.contains("everloop pane start NAME"), "{}", none.stderr);
    env.run(&["pane", "start", "one", "--", "cat"]).ok();
    let other = env.run(&["pane", "read", "two"]).exits(2);
    assert!(other.stderr.contains("there are: one"), "{}", other.stderr);
    let taken = env.run(&["pane", "start", "one", "--", "cat"]).exits(2);
    assert!(taken.stderr.contains("everloop pane respawn one"), "{}", taken.stderr);
    env.run(&["pane", "start", "Bad Name", "--", "cat"]).exits(2);
    env.run(&["pane", "start", "two", "--", "not-a-program-anywhere"]).exits(2);
    env.run(&["pane", "start", "two"]).exits(2);
    env.run(&["pane", "type", "one"]).exits(2);
    let attach = env.run(&["pane", "attach", "one"]).exits(2);
    assert!(attach.stderr.contains("terminal"), "{}", attach.stderr);
    let reserved = env.run(&["pane", "adopt", "mine", "--target", "%0", "--socket", "nowhere.sock"]).exits(1);
    assert!(reserved.stderr.contains("tmux"), "{}", reserved.stderr);
}

#[test]
fn without_tmux_the_hint_says_how_to_get_it() {
    let world = World::new();
    let empty = world.env.project().join("empty");
    std::fs::create_dir(&empty).expect("the project can be written to");
    let mut command = world.env.command(&["pane", "start", "one", "--", "/bin/cat"]);
    let output = command.env("PATH", &empty).output().expect("the binary was built for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("apt-get install tmux"), "{said}");
}

#[test]
fn respawn_brings_back_a_pane_whose_server_was_killed() {
    let world = World::new();
    let env = &world.env;
    env.run(&["pane", "start", "one", "--env", "SECRET_KEY", "--", "sh", "-c", "echo key=$SECRET_KEY; exec cat"]).ok();
    world.shows("one", "key=hunter2");
    world.kill_server();
    env.wait_for("the pane is seen to be dead", || world.state_of("one") == "dead");
    let refused = env.run(&["pane", "type", "one", "hello"]).exits(4);
    assert!(refused.stderr.contains("everloop pane respawn one"), "{}", refused.stderr);
    env.run(&["pane", "respawn", "one"]).ok();
    world.shows("one", "key=hunter2");
    env.run(&["pane", "type", "one", "hello"]).ok();
    world.shows("one", "hello\nhello");
}

#[test]
fn a_turn_prints_the_answer_and_its_code_tells_how_it_ended() {
    let world = World::new();
    let env = &world.env;
    let agent = r#"
        box() { printf '\033[2J\033[H\033]2;%s\007%s\n────────────────────\n❯ \n────────────────────\n  %s' "$1" "$2" "$3"; }
        stty -echo; box '✳ Claude Code' hi footer
        while read -r line; do
            box '◐ Claude Code' busy 'esc to interrupt'; sleep 0.5
            case $line in
                work) box '✳ Claude Code' 'the answer' footer ;;
                limit) box '✳ Claude Code' no '⚠ Usage limit reached · limit resets 9:30pm' ;;
                ask) printf '\033[2J\033[H────────────────────\n Proceed?\n ❯ 1. Yes\n Esc to cancel' ;;
                die) exit 3 ;;
            esac
        done"#;
    env.script("agent", agent);
    env.run(&["pane", "start", "agent", "--kind", "claude", "--", "./agent"]).ok();
    let turn = |prompt: &str, timeout: &str| {
        env.write("prompt", prompt);
        env.run(&[
            "pane",
            "__turn",
            "--pane",
            "agent",
            "--prompt-file",
            "prompt",
            "--timeout",
            timeout,
            "--quiet",
            "1s",
        ])
    };
    let done = turn("work", "30s").ok();
    assert!(done.stdout.contains(r#""said":"text","text":"the answer\n"#), "{}", done.stdout);
    assert!(done.stdout.trim_end().ends_with(r#""said":"result","ok":true,"text":"footer"}"#), "{}", done.stdout);
    for (prompt, code, word) in [
        ("limit", 5, "limited until 9:30pm"),
        ("ask", 4, "waiting for an answer: Proceed?"),
        ("die", 6, "dead, status 3"),
        ("hang", 3, "after the prompt was typed"),
    ] {
        env.run(&["pane", "respawn", "agent"]).ok();
        let ended = turn(prompt, if prompt == "hang" { "4s" } else { "30s" }).exits(code);
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
    }
    env.write("empty", " \n");
    env.run(&["pane", "__turn", "--pane", "agent", "--prompt-file", "empty"]).exits(2);
    let help = env.run(&["pane", "--help"]).ok().stdout;
    assert!(!help.contains("__turn") && help.contains("Examples"), "{help}");
}

/// Looks like claude, asks before it works, and exits when it is refused.
const ASKER: &str = r#"
rule='────────────────────'
draw() { printf '\033[2J\033[H\033]2;%s\007%s\n%s\n❯ \n%s\n  %s' "$1" "$2" "$rule" "$rule" "$3"; }
ask() { printf '\033[2J\033[H%s\n May I write made.txt?\n ❯ 1. Yes\n   2. No\n Esc to cancel' "$rule"; }
stty -echo; draw '✳ Claude Code' hi footer
while read -r line; do
    draw '◐ Claude Code' busy 'esc to interrupt'
    while timeout --foreground 1 cat | grep -q ''; do :; done
    ask
    read -r line; printf '%s\n' "$line" >> ../typed
    draw '◐ Claude Code' busy 'esc to interrupt'; echo made > made.txt; sleep 0.3
    draw '✳ Claude Code' 'did it' footer
done"#;

/// A question in a pane is a ticket; text is refused, a key that a person names is the answer.
#[test]
fn a_question_in_a_pane_waits_for_a_key_and_takes_no_text() {
    let world = World::new();
    let env = &world.env;
    env.script("asker", ASKER);
    env.run(&["pane", "start", "helper", "--kind", "claude", "--", "./asker"]).ok();
    env.write("everloop.toml", "[agent.helper]\nkind = \"pane\"\npane = \"helper\"\n");
    let running = env.spawn(&[
        "run",
        "x",
        "--check",
        "test -f made.txt",
        "--agent",
        "helper",
        "-n",
        "1",
        "--min-gap",
        "0",
        "--in-place",
    ]);
    env.wait_for("the question is a ticket", || env.run(&["ticket", "list"]).stdout.contains("waits for a person"));
    let refused = env.run(&["pane", "type", "helper", "no, wait"]).exits(4);
    assert!(refused.stderr.contains("waiting for an answer: May I write made.txt?"), "{}", refused.stderr);
    assert!(refused.stderr.contains("everloop pane key helper"), "{}", refused.stderr);
    assert!(!env.project().join("../typed").exists() && !env.project().join("made.txt").exists());
    env.run(&["pane", "key", "helper", "sideways"]).exits(2);
    env.run(&["pane", "key", "helper", "enter"]).ok();
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(env.read("made.txt").trim(), "made");
    let open = env.run(&["ticket", "list"]).ok().stdout;
    assert!(!open.contains("waits for a person"), "{open}");
}

/// The shim of a turn ends whatever was started in it; a tmux server would go with all panes on it.
#[test]
fn no_server_is_started_inside_a_turn() {
    let world = World::new();
    let env = &world.env;
    let (binary, state) = (env!("CARGO_BIN_EXE_everloop"), env.state());
    let said = env.project().join("said");
    let body = format!(
        "{binary} --state-dir '{}' pane start inner -- cat > '{said}' 2>&1; echo \"code $?\" >> '{said}'",
        state.display(),
        said = said.display()
    );
    let agent = env.script("agent", &body);
    env.run(&["run", "x", "--check", "false", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let said = std::fs::read_to_string(&said).expect("the agent wrote it");
    assert!(said.contains("a turn may not do this") && said.contains("code 2"), "{said}");
    assert!(env.run(&["pane", "list"]).ok().stdout.contains("no panes"));
}

/// A service manager ends a service with all of its control group; the panes stay.
#[test]
fn the_server_leaves_the_control_group_of_a_service() {
    let world = World::new();
    let env = &world.env;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let root = mounts.lines().find(|l| l.contains(" - cgroup2 ")).and_then(|l| l.split(' ').nth(4));
    let group = root.map(|r| std::path::Path::new(r).join(format!("test-{}.service", std::process::id())));
    let start = env.command(&["pane", "start", "one", "--", "cat"]);
    // Where groups cannot be created, this process is in no group of its own either; then only the
    // session can be checked.
    let made = group.filter(|g| std::fs::create_dir(g).is_ok());
    let mut shell = Command::new("sh");
    let enter = made.as_ref().map_or(":".to_owned(), |g| format!("echo $$ > '{}'", g.join("cgroup.procs").display()));
    shell.arg("-c").arg(format!("{enter}; exec \"$@\"")).arg("sh").arg(start.get_program()).args(start.get_args());
    shell.env_clear().envs(start.get_envs().filter_map(|(n, v)| Some((n, v?)))).current_dir(env.project());
    assert!(shell.stdout(Stdio::null()).status().expect("there is a shell").success());
    env.wait_for("the pane lives", || ["working", "idle"].contains(&world.state_of("one").as_str()));
    if let Some(group) = made {
        let left = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        assert_eq!(left, "", "still in the group of the service");
        std::fs::remove_dir(&group).expect("an empty group can be removed");
    }
    env.run(&["pane", "type", "one", "hello"]).ok();
}

/// Looks like claude and makes one file per prompt where it runs. With the first file there, it
/// hangs once.
const WORKER: &str = r#"
marks=$1
draw() { printf '\033[2J\033[H\033]2;%s\007%s\n────────────────────\n❯ \n────────────────────\n  %s' "$1" "$2" "$3"; }
stty -echo; draw '✳ Claude Code' hi footer
while read -r line; do
    draw '◐ Claude Code' busy 'esc to interrupt'
    # The rest of the prompt, and Enter.
    while timeout --foreground 1 cat | grep -q ''; do :; done
    pwd >> "$marks/places"
    if [ -e one ] && ! [ -e "$marks/hung" ]; then : > "$marks/hung"; sleep 1000; fi
    if [ -e one ]; then echo 2 > two; else echo 1 > one; fi
    draw '✳ Claude Code' "did it" footer
done"#;

/// A person's tmux server, which everloop may not touch.
struct Person {
    socket: std::path::PathBuf,
}

impl Person {
    fn new(env: &Env, program: &str) -> Self {
        let person = Self { socket: env.project().join("../person.sock") };
        person.tmux(&["new-session", "-d", "-s", "mine", "-x", "100", "-y", "30", program]);
        person
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket).args(args).env_remove("TMUX");
        let output = command.stdin(Stdio::null()).output().expect("tmux is there");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The server and everything that runs on it.
    fn processes(&self) -> String {
        self.tmux(&["list-panes", "-a", "-F", "#{pid} #{pane_id} #{pane_pid} #{pane_dead}"])
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn long_a_loop_in_a_worktree_survives_the_death_of_its_pane_between_and_within_turns() {
    let world = World { env: Env::new().git() };
    let env = &world.env;
    let person = Person::new(env, "cat");
    let before = person.processes();
    let worker = env.script("../worker", WORKER);
    let marks = env.project().join("../marks");
    std::fs::create_dir(&marks).expect("the folder is ours");
    env.run(&["pane", "start", "helper", "--kind", "claude", "--", &worker, &marks.display().to_string()]).ok();
    env.write(
        "everloop.toml",
        "[agent.helper]\nkind = \"pane\"\npane = \"helper\"\n[defaults.guard]\nmin_gap = \"3s\"\nbackoff_first = \"1s\"\n",
    );
    let words = ["run", "both", "--check", "test -f one", "--check", "test -f two", "--agent", "helper"];
    let running = env.spawn(&words);
    let turns = || serde_json::from_str::<serde_json::Value>(&env.run(&["show", "--json"]).stdout).unwrap_or_default();
    env.wait_for("the first turn has ended", || turns()["loop"]["turns"] == 1);
    world.kill_server();
    env.wait_for("the second turn hangs", || marks.join("hung").exists());
    world.kill_server();
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    // Landed like the work of any other agent.
    assert_eq!((env.read("one").trim(), env.read("two").trim()), ("1", "2"));
    assert!(env.git_run(&["log", "--format=%s", "main"]).lines().count() >= 2);
    let places = std::fs::read_to_string(marks.join("places")).expect("it worked");
    let places: Vec<&str> = places.lines().collect();
    assert!(
        places.len() >= 3
            && places.iter().all(|p| *p == places[0])
            && places[0].starts_with(&env.state().display().to_string()),
        "{places:?}"
    );
    // The output of the turns has the reason of the restart.
    let said = turns_errors(env);
    assert!(said.contains("its program works in") && said.contains("1 of 3 in an hour"), "{said}");
    assert!(said.contains("the pane or its tmux server is gone") && said.contains("3 of 3 in an hour"), "{said}");
    assert_eq!(person.processes(), before);
}

/// The stderr of all turns' commands.
fn turns_errors(env: &Env) -> String {
    let turns = std::fs::read_dir(env.state().join("turns")).expect("there were turns").flatten();
    let mut said = String::new();
    for file in turns.flat_map(|turn| std::fs::read_dir(turn.path()).into_iter().flatten().flatten()) {
        if file.file_name().to_string_lossy().contains("err") {
            said.push_str(&std::fs::read_to_string(file.path()).unwrap_or_default());
        }
    }
    said
}

#[test]
fn a_persons_pane_is_not_moved_into_a_worktree() {
    let world = World { env: Env::new().git() };
    let env = &world.env;
    let person = Person::new(env, "cat");
    let before = person.processes();
    let socket = person.socket.display().to_string();
    let adopt = ["pane", "adopt", "mine", "--target", "mine:0.0", "--socket", &socket, "--kind", "claude"];
    env.wait_for("its program has the terminal", || env.run(&adopt).code == 0);
    env.write("everloop.toml", "[agent.helper]\nkind = \"pane\"\npane = \"mine\"\n[defaults.guard]\nmin_gap = \"0\"\n");
    let out = env.run(&["run", "x", "--check", "false", "--agent", "helper", "-n", "1"]).exits(3);
    let said = format!("{}{}{}", out.stdout, out.stderr, env.run(&["show"]).stdout);
    assert!(said.contains("`mine` was adopted and works in"), "{said}");
    assert!(said.contains("--in-place"), "{said}");
    assert_eq!(person.processes(), before);
}

/// Looks like claude; its first prompt meets a limit, the next one is worked on.
const LIMITED: &str = r#"
rule='────────────────────'
draw() { printf '\033[2J\033[H\033]2;%s\007%s\n%s\n❯ \n%s\n  %s' "$1" "$2" "$rule" "$rule" "$3"; }
stty -echo; draw '✳ Claude Code' hi footer
while read -r line; do
    draw '◐ Claude Code' busy 'esc to interrupt'
    while timeout --foreground 1 cat | grep -q ''; do :; done
    echo prompted >> ../prompts
    if [ -e ../limited ]; then
        echo made > made.txt; draw '✳ Claude Code' 'did it' footer
    else
        : > ../limited
        said="You've hit your 5-hour limit · resets $(cat ../resets) (UTC)"
        draw '✳ Claude Code' "❯ do it
  ⎿  $said" "⚠ Usage limit reached · limit resets $(cat ../resets)"
    fi
done"#;

/// The reset that stands on the screen is waited for; nothing is typed before it.
#[test]
fn a_limit_on_the_screen_holds_the_account_until_its_reset() {
    let world = World { env: Env::new().fast(20) };
    let env = &world.env;
    env.script("agent", LIMITED);
    // Far enough away for a busy machine to read it in time.
    let reset = jiff::Timestamp::from_millisecond((env.now() + Duration::from_secs(400)).0).expect("a time");
    env.write("../resets", &reset.to_zoned(jiff::tz::TimeZone::UTC).strftime("%-I:%M%P").to_string());
    env.run(&["pane", "start", "helper", "--kind", "claude", "--", "./agent"]).ok();
    env.wait_for("it shows its prompt", || world.state_of("helper") == "idle");
    env.write("everloop.toml", "[agent.helper]\nkind = \"pane\"\npane = \"helper\"\n");
    let check = ["run", "x", "--check", "test -f made.txt", "--agent", "helper"];
    let running = env.spawn(&[&check[..], &["-n", "3", "--min-gap", "0", "--in-place"]].concat());
    env.wait_for("the account is held", || env.run(&["why"]).stdout.contains("guard.limit"));
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.contains("You've hit your 5-hour limit") && why.contains("it goes on in"), "{why}");
    let guard = env.run(&["guard", "status"]).stdout;
    assert!(guard.contains("account:default/pane") && guard.contains("5-hour limit"), "{guard}");
    let refused = env.run(&["pane", "type", "helper", "go on"]).exits(5);
    assert!(refused.stderr.contains("limited until"), "{}", refused.stderr);
    assert_eq!(env.read("../prompts").lines().count(), 1, "nothing is typed before the reset");
    running.wait().ok();
    assert_eq!(env.read("../prompts").lines().count(), 2);
    let events = |kind: &str| -> Vec<serde_json::Value> {
        let log = env.run(&["logs", "--json"]).ok().stdout;
        let all = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record"));
        all.filter(|record| record["event"]["event"] == kind).collect()
    };
    let limited = events("limited")[0].clone();
    let until = limited["event"]["until"].as_i64().expect("the reset was read");
    assert!(until >= reset.as_millisecond() - 60_000 && until <= reset.as_millisecond() + 120_000, "{until} {reset}");
    assert_eq!(until % 60_000, 0, "the time on the screen is a whole minute, the guard's own wait is none");
    let starts: Vec<i64> = events("turn_started").iter().filter_map(|record| record["at"].as_i64()).collect();
    // On a busy machine a turn may come before the program shows its prompt; it types nothing.
    let met = limited["at"].as_i64().expect("a time");
    assert!(starts.iter().all(|at| *at <= met || *at >= until), "{starts:?} {met} {until}");
    assert!(starts.last().is_some_and(|at| *at >= until), "{starts:?} {until}");
    env.run(&["replay"]).ok();
}

/// Looks like claude, and works by itself when the file `go` is there: until Escape, or for a while.
const RESTLESS: &str = r#"
rule='────────────────────'
draw() { printf '\033[2J\033[H\033]2;%s\007%s\n%s\n❯ \n%s\n  %s' "$1" "$2" "$rule" "$rule" "$3"; }
stty -echo -icanon; draw '✳ Claude Code' hi footer
while :; do
    if [ -e ../go ]; then
        draw '◐ Claude Code' busy 'esc to interrupt'
        timeout --foreground 3 dd bs=1 count=1 status=none | grep -q . && echo key >> ../keys
        rm -f ../go
        draw '✳ Claude Code' hi footer
    fi
    sleep 0.1
done"#;

/// Work that a CLI begins by itself is counted, or interrupted while the guard holds it.
#[test]
fn a_cli_that_goes_on_by_itself_is_a_start_or_is_interrupted() {
    let world = World { env: Env::new().fast(20) };
    let env = &world.env;
    env.script("agent", RESTLESS);
    env.run(&["pane", "start", "helper", "--kind", "claude", "--", "./agent"]).ok();
    let supervisor = env.spawn(&["up"]);
    let goes_on = |what: &str, done: &dyn Fn() -> bool| {
        env.wait_for(what, || {
            // It is at rest before each time, so that the watch sees the change.
            if !env.project().join("../go").exists() {
                env.let_pass(Duration::from_secs(20));
                env.write("../go", "");
            }
            done()
        });
    };
    let log = || env.run(&["logs", "-n", "100"]).ok().stdout;
    goes_on("the start is counted", &|| log().contains("claude was started by itself in pane helper"));
    assert!(!env.project().join("../keys").exists(), "a permitted start is not interrupted");
    env.run(&["guard", "hold", "--reason", "not now"]).ok();
    let started = log().matches("was started by itself").count();
    goes_on("it is interrupted", &|| env.project().join("../keys").exists());
    env.wait_for_words(
        &["logs", "-n", "100"],
        &["`helper` went on by itself and was interrupted: everything is held", "not now"],
    );
    env.wait_for_words(&["ticket", "list"], &["the program in pane `helper` went on by itself"]);
    assert!(log().matches("was started by itself").count() <= started + 1, "one may have begun before the hold");
    let (started, keys) = (log().matches("was started by itself").count(), env.read("../keys"));
    let person = Terminal::attach(&world, "helper");
    goes_on("it is counted", &|| log().matches("was started by itself").count() > started);
    assert_eq!(env.read("../keys"), keys, "a person at the pane is not interrupted");
    drop(person);
    drop(supervisor);
    env.run(&["replay"]).ok();
}

/// Looks like claude, and writes a transcript as it does: each answer in two parts.
const METERED: &str = r#"
rule='────────────────────'
draw() { printf '\033[2J\033[H\033]2;%s\007%s\n%s\n❯ \n%s\n  %s' "$1" "$2" "$rule" "$rule" "$3"; }
id=0b6f0c1e-8a34-4c1e-9d3f-000000000001
mkdir -p "$CLAUDE_CONFIG_DIR/sessions" "$CLAUDE_CONFIG_DIR/projects/-work"
started=$(sed 's/.*) //' "/proc/$$/stat" | cut -d' ' -f20)
printf '{"pid":%s,"status":"idle","procStart":"%s","sessionId":"%s"}' "$$" "$started" "$id" \
    > "$CLAUDE_CONFIG_DIR/sessions/$$.json"
answer() {
    for output in 1 7; do
        printf '{"type":"assistant","message":{"id":"%s","usage":{"input_tokens":10,"output_tokens":%s,' "$1" "$output"
        printf '"cache_read_input_tokens":100,"cache_creation_input_tokens":0}}}\n'
    done >> "$CLAUDE_CONFIG_DIR/projects/-work/$id.jsonl"
}
answer before
stty -echo; draw '✳ Claude Code' hi footer
while read -r line; do
    draw '◐ Claude Code' busy 'esc to interrupt'
    while timeout --foreground 1 cat | grep -q ''; do :; done
    answer one; answer two; echo made > made.txt
    draw '✳ Claude Code' 'did it' footer
done"#;

/// Usage comes from the transcript: each answer once, and only those of the turn.
#[test]
fn a_turn_in_a_pane_reports_what_its_session_used() {
    let world = World::new();
    let env = &world.env;
    env.script("agent", METERED);
    let folder = env.project().join("../claude-home").display().to_string();
    let config = format!("CLAUDE_CONFIG_DIR={folder}");
    env.run(&["pane", "start", "helper", "--kind", "claude", "--env", &config, "--", "./agent"]).ok();
    env.write("everloop.toml", "[agent.helper]\nkind = \"pane\"\npane = \"helper\"\n");
    let used = || env.run(&["pane", "list", "--json"]).ok().json()["panes"][0]["used"]["output"].as_u64();
    env.wait_for("the transcript is found", || used() == Some(7));
    let check = ["run", "x", "--check", "test -f made.txt", "--agent", "helper"];
    env.run(&[&check[..], &["-n", "1", "--min-gap", "0", "--in-place"]].concat()).ok();
    let usage = env.run(&["usage", "--json"]).ok().json();
    assert_eq!(usage["total"]["tokens"], 2 * 117, "{usage}");
    assert_eq!(used(), Some(21), "the list shows all of the session");
    let spent = env.the_loop()["spent"].clone();
    assert_eq!(spent["tokens"], 2 * 117, "budgets count it: {spent}");
}
