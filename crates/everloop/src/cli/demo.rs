//! `everloop demo`: a real loop with a scripted agent in half a minute, or real experiments on a
//! metric. Everything is real except the agent.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everloop_engine::error::{Code, Failure};

use super::VerbSession;
use crate::ui::{Ui, svg};

pub mod agent;
mod project;
pub mod proposer;
mod research;

/// Makes a small repository with five failing checks in a temporary folder and lets everloop work
/// on it: a good turn, a lying one, one that edits a test, a supervisor killed in the middle, a
/// pause, and the goal. With `research`: experiments on a metric that varies, with a keep, a
/// discard, a crash that is mended, luck, a cheat, and a killed supervisor.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// What is shown [default: a loop with checks]
    #[arg(value_enum, value_name = "WHAT")]
    what: Option<Show>,
    /// Make it here and keep it, instead of in a temporary folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write what it prints as a picture of a terminal, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What a demo shows besides a loop with checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Show {
    /// Experiments on a metric, with a chart at the end
    Research,
}

/// The hidden verb under which this binary plays the agent.
pub const AGENT_ARG: &str = "__demo-agent";
/// Title of the picture.
const TITLE: &str = "everloop demo";
/// The demo is over long before; a hang must not look like work.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The turn during which the supervisor is killed.
const KILLED_TURN: u32 = 4;

pub fn demo(args: &DemoArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let begun = Instant::now();
    let root = match &args.keep {
        Some(dir) if dir.exists() => {
            return Err(Failure::usage(format!("`{}` exists already", dir.display())).hint("name a new folder"));
        }
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("everloop-demo-{}", std::process::id())),
    };
    fs::create_dir_all(&root).map_err(|e| Failure::failed(format!("cannot make `{}`", root.display())).because(&e))?;
    let (root, kept) = (root.canonicalize()?, args.keep.is_some());
    let stage = Stage { root, kept, ui: &session.ui, printed: RefCell::default() };
    let (title, result) = match args.what {
        None => (TITLE, stage.play()),
        Some(Show::Research) => (research::TITLE, stage.research()),
    };
    if args.keep.is_none() {
        drop(fs::remove_dir_all(&stage.root));
    } else {
        session.ui.talk(&format!("kept in {}", stage.root.display()));
    }
    let code = result?;
    if let Some(path) = &args.svg {
        let path = session.dir.join(path);
        let picture = svg::terminal(title, &stage.printed.take());
        let cannot = |e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e);
        fs::write(&path, picture).map_err(cannot)?;
    }
    session.ui.talk(&format!("the demo took {} s", begun.elapsed().as_secs()));
    Ok(code)
}

/// The file of what the last run printed as its result.
const SUMMARY: &str = "summary.txt";

/// Explains a line of output, if it needs an explanation.
type Comment<'a> = &'a dyn Fn(&str) -> Option<&'static str>;

/// When the supervisor is killed.
struct Kill {
    /// In this turn,
    turn: u32,
    /// as soon as the agent has begun this act.
    act: u32,
}

/// The demo's folder: `project`, `state`, `acts`.
struct Stage<'a> {
    root: PathBuf,
    /// It stays when the demo is over.
    kept: bool,
    ui: &'a Ui,
    /// Everything that was printed, without colours.
    printed: RefCell<Vec<String>>,
}

impl Stage<'_> {
    fn play(&self) -> Result<Code, Failure> {
        let project = self.root.join("project");
        project::make(&project, &project::TOOL)?;
        fs::create_dir_all(self.root.join("acts"))?;
        self.say("A repository with five checks, none of which passes. The agent is a script; all else is real.");
        self.say(
            "Turn 1 is good, turn 2 lies, turn 3 edits a test, turn 4 loses its supervisor, turn 5 needs a pause.",
        );
        let agent = format!("{} {AGENT_ARG} {}", quoted(&std::env::current_exe()?), quoted(&self.root.join("acts")));
        let acts = self.root.join("acts").display().to_string();
        let mut words = vec!["run", "a small tool that greets, adds and counts", "--min-gap", "2s", "-n", "20"];
        words.extend(["--agent-cmd", &agent, "--writable", &acts]);
        words.extend(project::CHECKS.iter().flat_map(|check| ["--check", check]));
        let code = self.run_and_kill(&words, &Kill { turn: KILLED_TURN, act: KILLED_TURN }, &comment)?;
        match code {
            Some(0) => {
                self.say("Reached: proved by five commands, not by the agent's word.");
                Ok(Code::Ok)
            }
            code => Err(unexpected(code)),
        }
    }

    /// Runs everloop with these words, kills it in the middle of a turn, and runs it again to its
    /// end. Prints its output and its summary, and returns its exit code.
    fn run_and_kill(&self, words: &[&str], kill: &Kill, comment: Comment<'_>) -> Result<Option<i32>, Failure> {
        let mut first = self.start(words)?;
        let mut ended = self.watch(&mut first, Some(kill), comment)?;
        if ended.is_none() {
            self.say(
                "The supervisor was killed with SIGKILL in the middle of a turn. Starting the same command again:",
            );
            let mut second = self.start(words)?;
            ended = self.watch(&mut second, None, comment)?;
        }
        let summary = fs::read_to_string(self.root.join(SUMMARY))?;
        self.show(&summary)?;
        Ok(ended.and_then(|status| status.code()))
    }

    /// Prints the result of a command.
    fn show(&self, text: &str) -> Result<(), Failure> {
        self.printed.borrow_mut().extend(text.trim_end().lines().map(str::to_owned));
        self.ui.out(text.trim_end())
    }

    fn say(&self, text: &str) {
        self.printed.borrow_mut().push(format!("demo: {text}"));
        self.ui.talk(&format!("{} {}", self.ui.talk_paint().strong("demo:"), text));
    }

    /// This program, in the demo's world.
    fn everloop(&self) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--state-dir").arg(self.root.join("state")).arg("-C").arg(self.root.join("project"));
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn start(&self, words: &[&str]) -> Result<Child, Failure> {
        let out = File::create(self.root.join(SUMMARY))?;
        let mut command = self.everloop()?;
        command.args(words).stdout(out).stderr(Stdio::piped());
        command.spawn().map_err(|e| Failure::failed("cannot start everloop itself").because(&e))
    }

    /// Prints the supervisor's output, with comments. Kills it in the middle of a turn, if it is to
    /// be killed; then there is no status.
    fn watch(&self, child: &mut Child, kill: Option<&Kill>, note: Comment<'_>) -> Result<Option<ExitStatus>, Failure> {
        let stderr = child.stderr.take().ok_or_else(|| Failure::failed("cannot read everloop's output"))?;
        let mut killed = false;
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let line = format!("  {line}");
            self.ui.talk(&line);
            self.printed.borrow_mut().push(line.clone());
            if let Some(comment) = note(&line) {
                self.say(comment);
            }
            if let Some(kill) = kill.filter(|kill| line.contains(&format!("turn {} started", kill.turn))) {
                self.wait_for_agent(kill.act)?;
                child.kill()?;
                killed = true;
            }
        }
        let status = child.wait()?;
        Ok((!killed).then_some(status))
    }

    /// Makes sure that the agent is at work before its supervisor is killed.
    fn wait_for_agent(&self, act: u32) -> Result<(), Failure> {
        let sign = self.root.join("acts").join(format!("{act}.begun"));
        let begun = Instant::now();
        while !sign.exists() {
            if begun.elapsed() > WAIT_TIMEOUT {
                return Err(Failure::failed("the scripted agent did not begin"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn unexpected(code: Option<i32>) -> Failure {
    Failure::failed(format!("the demo's loop ended with exit code {code:?}"))
        .hint("please report it, with the lines above")
}

/// Explains a line of output.
fn comment(line: &str) -> Option<&'static str> {
    let ended = line.contains(" ended: ");
    if ended && line.contains("no-op") && !line.contains("-5.") {
        Some("^ the agent claims \"all done\"; nothing was changed, so nothing counts")
    } else if ended && line.contains("refused") {
        Some("^ it edited a test to make it pass: refused, and kept on a ref for you to look at")
    } else if line.contains("requested a delay") {
        Some("^ the agent requested a pause: the loop sleeps without a process or a call, and wakes by itself")
    } else {
        None
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `everloop demo` of one day, as it printed it.
    const RECORDED: &str = include_str!("demo/recorded.txt");

    #[test]
    fn the_picture_in_docs_is_that_of_the_recording() {
        let lines: Vec<String> = RECORDED.lines().map(str::to_owned).collect();
        everloop_testkit::docs::assert_current("demo.svg", &svg::terminal(TITLE, &lines), "picture");
    }
}
