//! A newcomer's first hour: each step is typed, what it prints is asserted, and the whole is the page
//! `docs/first-hour.md`. `UPDATE_DOCS=1 cargo test -p everloop --test it tour` writes the page.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use everloop_testkit::docs::assert_current;
use everloop_testkit::wait::{DEADLINE, try_wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::env::{Background, Env, Output, processes_of};

const TITLE: &str = "# The first hour

What a newcomer types, and what everloop prints: made and checked by `tests/it/tour.rs`. Ids, times
and commits are replaced by fixed ones; lines about isolation are left out.
";

/// Ids that stand for the real ones, in the order in which loops appear.
const IDS: [&str; 12] =
    ["k3f9", "m2p4", "q7r5", "t8w6", "b4d7", "c5e8", "f6g3", "h9j2", "n3s4", "p5u6", "r7v8", "x2y9"];

/// The walk, and the page that it writes.
struct Tour {
    env: Env,
    page: String,
    ids: Vec<String>,
}

impl Tour {
    fn new() -> Self {
        let env = Env::new();
        let root = env.project().join("..");
        let bin = root.join("bin");
        fs::create_dir(&bin).expect("the folder is the test's");
        let flag = root.join("go").display().to_string();
        program(&bin, "greeter", "echo Hello > greeting.txt");
        program(&bin, "toucher", "touch \"$1\"");
        program(&bin, "editor", "touch \"$1\"; echo edited >> notes.txt");
        program(&bin, "slow", &format!("echo I wait; until test -e {flag}; do sleep 0.05; done; touch \"$1\""));
        program(&bin, "stubborn", "trap '' INT TERM; while :; do sleep 1; done");
        let path = format!("{}:/usr/bin:/bin", bin.canonicalize().expect("it was made").display());
        let env = env.var("PATH", &path);
        Self { env, page: TITLE.to_owned(), ids: Vec::new() }
    }

    fn chapter(&mut self, title: &str, words: &str) {
        write!(self.page, "\n## {title}\n\n{words}\n").expect("writing to a string cannot fail");
    }

    /// Prose between commands.
    fn say(&mut self, words: &str) {
        write!(self.page, "\n{words}\n").expect("writing to a string cannot fail");
    }

    /// Runs everloop and writes down what it prints.
    #[track_caller]
    fn everloop(&mut self, args: &[&str], code: i32) -> String {
        let out = self.env.run(args).exits(code);
        self.record(args, &out)
    }

    /// Writes down what a command printed: messages before results, as on a terminal.
    fn record(&mut self, args: &[&str], out: &Output) -> String {
        let words = args.iter().map(|word| shlex::try_quote(word).expect("no word holds a NUL"));
        let line = words.collect::<Vec<_>>().join(" ");
        self.note_ids();
        let printed = format!("{}{}", out.stderr, out.stdout);
        self.block(format!("everloop {line}").trim_end(), &printed);
        printed
    }

    /// Runs a line of shell and writes it down.
    #[track_caller]
    fn shell(&mut self, line: &str) -> String {
        let mut command = Command::new("sh");
        let template = self.env.command(&[]);
        command.env_clear().args(["-c", line]).current_dir(self.env.project());
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = command.output().expect("there is a shell");
        let printed = format!("{}{}", String::from_utf8_lossy(&out.stderr), String::from_utf8_lossy(&out.stdout));
        assert!(out.status.success(), "{line}: {printed}");
        self.block(line, &printed);
        printed
    }

    fn block(&mut self, line: &str, printed: &str) {
        let fit = printed
            .lines()
            .filter(|l| !l.to_lowercase().contains("isolation:"))
            .map(|l| self.tidy(l))
            .collect::<Vec<_>>();
        let text = fit.join("\n");
        write!(self.page, "\n```console\n$ {}\n", self.tidy(line)).expect("writing to a string cannot fail");
        self.page.push_str(text.trim_end());
        self.page.push_str(if text.is_empty() { "```\n" } else { "\n```\n" });
    }

    /// Learns the ids of new loops.
    fn note_ids(&mut self) {
        let status = self.env.run(&["status", "--json"]);
        let loops = if status.code == 0 { status.json()["loops"].clone() } else { return };
        for id in loops.as_array().into_iter().flatten().filter_map(|l| l["id"].as_str()) {
            if !self.ids.iter().any(|known| known == id) {
                self.ids.push(id.to_owned());
            }
        }
    }

    /// A line without what differs from run to run.
    fn tidy(&self, line: &str) -> String {
        let mut line = line.replace(&self.env.project().display().to_string(), "~/hello");
        let state = self.env.state().display().to_string();
        line = line.replace(&state, "~/.local/state/everloop");
        // A `sleep` of an agent that is stopped may live a moment longer than its shell.
        line = line.replace(", a process left behind had to be killed", "");
        for (real, shown) in self.ids.iter().zip(IDS) {
            line = line.replace(real.as_str(), shown);
        }
        let is_row = line.trim_start().starts_with(['✓', '✗', '!', '~', '?']);
        let words: Vec<String> = line.split(' ').map(tidy_word).collect();
        let line = words.join(" ");
        if !is_row {
            return line;
        }
        // How long a check took moves the columns.
        let kept: Vec<&str> = line.split_whitespace().filter(|word| *word != "1s").collect();
        format!("{}{}", " ".repeat(line.len() - line.trim_start().len()), kept.join(" "))
    }

    /// Starts a run whose agent waits.
    fn start_slow(&self, args: &[&str]) -> Background {
        fs::remove_file(self.flag()).ok();
        let run = self.env.spawn(args);
        self.env.wait_for_agent();
        run
    }

    fn flag(&self) -> PathBuf {
        self.env.project().join("../go")
    }

    fn let_go(&self) {
        fs::write(self.flag(), "").expect("the folder is the test's");
    }

    /// One more Ctrl-C, which has arrived when this returns.
    #[track_caller]
    fn interrupt(&self, run: &Background, now: bool) {
        run.signal(Signal::SIGINT);
        self.env.wait_for("the wish arrives", || self.env.the_loop()["stop"]["now"] == now);
    }
}

fn program(bin: &std::path::Path, name: &str, body: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("the folder is the test's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file was just written");
}

/// Clock times, durations, commits and process numbers are always the same.
fn tidy_word(word: &str) -> String {
    let bare = word.trim_start_matches('(');
    let core = bare.trim_end_matches([',', ';', '.', ')', '`', ':']);
    let (open, rest) = (&word[..word.len() - bare.len()], &bare[core.len()..]);
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let clock = core.split(':').collect::<Vec<_>>();
    let number = core.strip_suffix("ms").or_else(|| core.strip_suffix('s')).unwrap_or_default();
    let hex = core.len() >= 7 && core.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase());
    if clock.len() == 3 && clock.iter().all(|part| digits(part)) {
        format!("{open}21:04:05{rest}")
    } else if number.split('.').all(digits) && number.split('.').count() <= 2 {
        format!("{open}1s{rest}")
    } else if hex {
        format!("{open}4f92f6e{rest}")
    } else {
        word.to_owned()
    }
}

#[test]
fn long_a_newcomers_first_hour() {
    let mut tour = Tour::new();
    an_empty_folder(&mut tour);
    mistakes(&mut tour);
    a_repository(&mut tour);
    uncommitted_changes(&mut tour);
    ctrl_c(&mut tour);
    more_turns(&mut tour);
    a_second_terminal(&mut tour);
    everything_is_killed(&mut tour);
    assert_current("first-hour.md", &tour.page, "--test it tour");
}

fn an_empty_folder(tour: &mut Tour) {
    tour.chapter("An empty folder", "A goal, a command that decides, and an agent: here any command is one.");
    let said = tour.everloop(&["run", "a file that greets"], 2);
    assert!(said.contains("nothing here looks like a test") && said.contains("--check 'CMD'"), "{said}");
    let run = ["run", "a file that greets", "--check", "grep -q Hello greeting.txt", "--agent-cmd", "greeter"];
    let said = tour.everloop(&run, 0);
    assert!(said.contains("works directly in") && said.contains("reached, all checks pass"), "{said}");
    tour.say("Without git the agent works in the folder itself. The same command again has nothing to do:");
    let said = tour.everloop(&run, 0);
    assert!(said.contains("baseline: 1 of 1 check passes") && !said.contains("turn 1 started"), "{said}");
}

fn mistakes(tour: &mut Tour) {
    tour.chapter("Mistakes", "Every refusal says what to type instead.");
    assert!(tour.everloop(&["statsu"], 2).contains("status"));
    let said = tour.everloop(&["run", "x", "--check", "true", "--agent-cmd", "my-agnet {prompt}"], 2);
    assert!(said.contains("there is no program `my-agnet`"), "{said}");
    let said = tour.everloop(&["run", "x", "--check", "true", "--agent", "codex"], 2);
    assert!(said.contains("npm install -g @openai/codex"), "{said}");
    let said = tour.everloop(&["run", "tests", "--check", "pytset -q", "--agent-cmd", "toucher x"], 4);
    assert!(said.contains("every check that does not pass is broken"), "{said}");
    tour.say("No turn was started: an agent cannot make a check pass that cannot run.");
    tour.everloop(&["stop", "tests"], 0);
}

fn a_repository(tour: &mut Tour) {
    tour.chapter("A repository", "With git, agents work in private clones, and finished work lands on your branch.");
    tour.shell("git init -q -b main && git status --short");
    let said = tour.everloop(&["run", "a file", "--check", "test -f one", "--agent-cmd", "toucher one"], 0);
    assert!(said.contains("finished work moves onto main") && said.contains("landed as"), "{said}");
    assert!(said.contains("not in git: greeting.txt"), "{said}");
    assert_eq!(tour.shell("git ls-tree --name-only main"), "one\n");
}

fn uncommitted_changes(tour: &mut Tour) {
    tour.chapter("Uncommitted changes", "Yours stay untouched, and work that does not touch them lands beside them.");
    tour.shell("echo mine > notes.txt && git add notes.txt && git commit -q -m notes && echo more >> notes.txt");
    let said = tour.everloop(&["run", "two", "--check", "test -f two", "--agent-cmd", "toucher two"], 0);
    assert!(said.contains("uncommitted changes in notes.txt") && said.contains("landed as"), "{said}");
    tour.say("Work on the same file waits, and the last lines say how to take it:");
    let said = tour.everloop(&["run", "three", "--check", "test -f three", "--agent-cmd", "editor three"], 0);
    assert!(said.contains("which the work changes, too") && said.contains("merge --ff-only"), "{said}");
    assert_eq!(tour.env.read("notes.txt"), "mine\nmore\n");
    tour.say("Once nothing is in the way, one verb takes it:");
    tour.shell("git restore notes.txt");
    tour.everloop(&["take", "three"], 0);
    assert_eq!(tour.env.read("notes.txt"), "mine\nedited\n");
}

const FOUR: [&str; 8] = ["run", "four", "--check", "test -f four", "--agent-cmd", "slow four", "--min-gap", "0"];

/// An agent that no signal but SIGKILL ends.
const LEAVE: [&str; 8] = ["run", "leave", "--check", "test -f leave", "--agent-cmd", "stubborn", "--min-gap", "0"];

fn ctrl_c(tour: &mut Tour) {
    tour.chapter("Ctrl-C", "The first one ends the loop after its turn, and each says what the next one does.");
    let run = tour.start_slow(&FOUR);
    tour.interrupt(&run, false);
    run.signal(Signal::SIGINT);
    let out = run.wait().exits(130);
    let said = tour.record(&FOUR, &out);
    assert!(said.contains("ends after this turn; Ctrl-C again stops the agent now"), "{said}");
    assert!(said.contains("stopping the agent, nothing is lost; Ctrl-C again leaves at once"), "{said}");
    tour.say("The same command goes on:");
    tour.let_go();
    let said = tour.everloop(&FOUR, 0);
    assert!(said.contains("resuming loop") && said.contains("landed as"), "{said}");
    tour.say("A third Ctrl-C leaves at once, for an agent that does not want to stop:");
    let run = tour.start_slow(&LEAVE);
    tour.interrupt(&run, false);
    tour.interrupt(&run, true);
    run.signal(Signal::SIGINT);
    let out = run.wait().exits(130);
    let said = tour.record(&LEAVE, &Output { stderr: steps(&out.stderr), stdout: String::new(), ..out });
    assert!(said.contains("leaving at once; the next `everloop run` or `everloop up` finds the turn again"), "{said}");
    let again = tour.env.run(&LEAVE).exits(3).stderr;
    assert!(again.contains("resuming loop"), "{again}");
}

fn more_turns(tour: &mut Tour) {
    tour.chapter("More turns", "A loop that used up a limit says so, and gets more by the same words.");
    let run = ["run", "five", "--check", "test -f five", "--agent-cmd", "toucher 5", "-n", "1", "--min-gap", "0"];
    let said = tour.everloop(&run, 3);
    assert!(said.contains("turns"), "{said}");
    let said = tour.everloop(&["resume", "five", "-n", "2"], 0);
    assert!(said.contains("goes on; at most"), "{said}");
    tour.everloop(&["stop", "five"], 0);
    let said = tour.everloop(&["stop", "five"], 2);
    assert!(said.contains("was stopped by") && said.contains("everloop resume"), "{said}");
}

fn a_second_terminal(tour: &mut Tour) {
    tour.chapter("A second terminal", "`--detach` hands a loop to the background; any terminal can look and join.");
    fs::remove_file(tour.flag()).ok();
    let six = ["run", "six", "--check", "test -f six", "--agent-cmd", "slow six"];
    let said = tour.everloop(&[&six[..], &["--detach"]].concat(), 0);
    assert!(said.contains("runs in the background"), "{said}");
    tour.env.wait_for_agent();
    let said = tour.everloop(&["why", "six"], 0);
    assert!(said.contains("has the agent at work on turn 1"), "{said}");
    tour.say("The same `run` joins it. Ctrl-C takes the same steps there:");
    let run = tour.env.spawn(&six);
    tour.env.wait_for("it follows", || catches_interrupts(run.pid()));
    tour.interrupt(&run, false);
    run.signal(Signal::SIGINT);
    let out = run.wait().exits(130);
    let said = tour.record(&six, &Output { stderr: steps(&out.stderr), stdout: String::new(), ..out });
    assert!(said.contains("ends after this turn") && said.contains("stopping the agent, nothing is lost"), "{said}");
    let said = tour.everloop(&["down"], 0);
    assert!(said.contains("stop"), "{said}");
}

fn everything_is_killed(tour: &mut Tour) {
    tour.chapter("Everything is killed", "As after a lost machine: no process is left, and nothing is lost.");
    let seven = ["run", "seven", "--check", "test -f seven", "--agent-cmd", "slow seven", "--min-gap", "0"];
    let run = tour.start_slow(&seven);
    run.signal(Signal::SIGKILL);
    run.wait();
    let gone = try_wait_for(DEADLINE, || {
        let alive = processes_of(&tour.env.state());
        for pid in &alive {
            kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
        }
        alive.is_empty().then_some(())
    });
    assert!(gone.is_some(), "everything is dead");
    tour.say("A supervisor does not go on with it by itself, because it was not detached:");
    let up = tour.env.spawn(&["up", "--listen", "off"]);
    tour.env.wait_for_words(&["why", "seven"], &["[unattended]"]);
    tour.env.run(&["down"]).ok();
    let out = up.wait().exits(143);
    let said = tour.record(&["up", "--listen", "off"], &Output { stderr: first_lines(&out.stderr), ..out });
    assert!(said.contains("leaves 1 loop of terminals that are gone alone"), "{said}");
    tour.say("The same command does:");
    tour.let_go();
    let said = tour.everloop(&seven, 0);
    assert!(said.contains("resuming loop") && said.contains("reached, all checks pass"), "{said}");
    tour.env.run(&["replay"]).ok();
}

/// What the steps of Ctrl-C print.
fn steps(text: &str) -> String {
    let shown = text.lines().filter(|line| line.contains("Ctrl-C again") || line.starts_with("leaving at once"));
    shown.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a process has a handler for SIGINT.
fn catches_interrupts(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|caught| caught & (1 << (Signal::SIGINT as i32 - 1)) != 0)
}

/// What a supervisor prints before it works.
fn first_lines(text: &str) -> String {
    let shown = text.lines().take_while(|line| !line.starts_with("supervising"));
    shown.flat_map(|line| [line, "\n"]).collect()
}
