//! `everloop demo`: a real loop with a scripted agent in half a minute. Everything is real except
//! the agent.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_engine::error::{Code, Failure};

use super::VerbSession;
use crate::ui::{Ui, svg};

pub mod agent;
mod project;

/// Makes a small repository with five failing checks in a temporary folder and lets everloop work
/// on it: a good turn, a lying one, one that edits a test, a supervisor killed in the middle, a
/// pause, and the goal.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Make it here and keep it, instead of in a temporary folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write what it prints as a picture of a terminal, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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
    let stage = Stage { root: root.canonicalize()?, ui: &session.ui, printed: RefCell::default() };
    let result = stage.play();
    if args.keep.is_none() {
        drop(fs::remove_dir_all(&stage.root));
    } else {
        session.ui.talk(&format!("kept in {}", stage.root.display()));
    }
    let code = result?;
    if let Some(path) = &args.svg {
        let path = session.dir.join(path);
        let picture = svg::terminal(TITLE, &stage.printed.take());
        let cannot = |e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e);
        fs::write(&path, picture).map_err(cannot)?;
    }
    session.ui.talk(&format!("the demo took {} s", begun.elapsed().as_secs()));
    Ok(code)
}

/// The demo's folder: `project`, `state`, `acts`.
struct Stage<'a> {
    root: PathBuf,
    ui: &'a Ui,
    /// Everything that was printed, without colours.
    printed: RefCell<Vec<String>>,
}

impl Stage<'_> {
    fn play(&self) -> Result<Code, Failure> {
        let project = self.root.join("project");
        project::make(&project)?;
        fs::create_dir_all(self.root.join("acts"))?;
        self.say("A repository with five checks, none of which passes. The agent is a script; all else is real.");
        self.say(
            "Turn 1 is good, turn 2 lies, turn 3 edits a test, turn 4 loses its supervisor, turn 5 needs a pause.",
        );
        let mut first = self.start(&project)?;
        let killed = self.watch(&mut first, Some(KILLED_TURN))?;
        if killed.is_none() {
            self.say(
                "The supervisor was killed with SIGKILL in the middle of a turn. Starting the same command again:",
            );
            let mut second = self.start(&project)?;
            let code = self.watch(&mut second, None)?;
            return self.finish(&mut second, code);
        }
        self.finish(&mut first, killed)
    }

    fn say(&self, text: &str) {
        self.printed.borrow_mut().push(format!("demo: {text}"));
        self.ui.talk(&format!("{} {}", self.ui.talk_paint().strong("demo:"), text));
    }

    fn start(&self, project: &Path) -> Result<Child, Failure> {
        let exe = std::env::current_exe()?;
        let agent = format!("{} {AGENT_ARG} {}", quoted(&exe), quoted(&self.root.join("acts")));
        let mut command = Command::new(exe);
        command.arg("--state-dir").arg(self.root.join("state")).arg("-C").arg(project);
        command.args(["run", "a small tool that greets, adds and counts", "--min-gap", "2s", "-n", "20"]);
        command.args(["--agent-cmd", &agent]).arg("--writable").arg(self.root.join("acts"));
        for check in project::CHECKS {
            command.args(["--check", check]);
        }
        let out = File::create(self.root.join("summary.txt"))?;
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        command.spawn().map_err(|e| Failure::failed("cannot start everloop itself").because(&e))
    }

    /// Prints the supervisor's output. Kills it in the middle of the turn `kill_in`; then there is
    /// no exit code.
    fn watch(&self, child: &mut Child, kill_in: Option<u32>) -> Result<Option<i32>, Failure> {
        let stderr = child.stderr.take().ok_or_else(|| Failure::failed("cannot read everloop's output"))?;
        let mut killed = false;
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let line = format!("  {line}");
            self.ui.talk(&line);
            self.printed.borrow_mut().push(line.clone());
            let comment = comment(&line);
            if let Some(comment) = comment {
                self.say(comment);
            }
            if kill_in.is_some_and(|n| line.contains(&format!("turn {n} started"))) {
                self.wait_for_agent(KILLED_TURN)?;
                child.kill()?;
                killed = true;
            }
        }
        let status = child.wait()?;
        Ok(if killed { None } else { Some(status.code().unwrap_or(1)) })
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

    fn finish(&self, child: &mut Child, code: Option<i32>) -> Result<Code, Failure> {
        drop(child.wait());
        let summary = fs::read_to_string(self.root.join("summary.txt"))?;
        self.printed.borrow_mut().extend(summary.trim_end().lines().map(str::to_owned));
        self.ui.out(summary.trim_end())?;
        match code {
            Some(0) => {
                self.say("Reached: proved by five commands, not by the agent's word.");
                Ok(Code::Ok)
            }
            code => Err(Failure::failed(format!("the demo's loop ended with exit code {code:?}"))
                .hint("please report it, with the lines above")),
        }
    }
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
