//! `everloop demo research`: real experiments on a small real problem. The strategy of a guessing
//! game is improved, measured by games that draw other numbers every time.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use everloop_engine::error::{Code, Failure};

use super::proposer::{KILLED, PROPOSER_ARG, START};
use super::{Kill, Stage, project, quoted, unexpected};

/// Title of the picture.
pub const TITLE: &str = "everloop demo research";
/// A mean that only the last change of the script reaches.
const GOAL_VALUE: &str = "7.6";
/// One turn of the script mends a crash, so turns are one ahead of experiments.
const KILLED_TURN: u32 = KILLED + 1;
/// Name of the report.
const REPORT: &str = "report.html";

const GAME: project::Content = project::Content {
    message: "a guessing game",
    files: &[("guess.awk", START), ("metric.sh", include_str!("metric.sh")), (".gitignore", "*.tmp\n")],
};

impl Stage<'_> {
    /// Plays the experiments, then prints chart, rows and summary, and writes the report.
    pub(super) fn research(&self) -> Result<Code, Failure> {
        project::make(&self.root.join("project"), &GAME)?;
        let (acts, games) = (self.root.join("acts"), self.root.join("games"));
        for folder in [&acts, &games] {
            fs::create_dir_all(folder)?;
        }
        self.say("A program guesses numbers; the metric is the mean of its guesses, and varies from run to run.");
        self.say(
            "The agent is a script; changes, measurements and decisions are real. It helps, makes it worse, crashes, \
             has luck, cheats, and loses its supervisor.",
        );
        let agent = format!("{} {PROPOSER_ARG} {} {{prompt_file}}", quoted(&std::env::current_exe()?), quoted(&acts));
        let metric = format!("sh metric.sh {}", quoted(&games));
        let (acts, games) = (acts.display().to_string(), games.display().to_string());
        let mut words = vec!["research", "guess the number with fewer guesses", "--metric", &metric];
        words.extend(["--metric-name", "guesses", "--direction", "lower", "--goal-value", GOAL_VALUE, "-n", "9"]);
        words.extend(["--agent-cmd", &agent, "--min-gap", "0", "--writable", &acts, "--writable", &games]);
        let code = self.run_and_kill(&words, &Kill { turn: KILLED_TURN, act: KILLED }, &comment)?;
        if code != Some(0) {
            return Err(unexpected(code));
        }
        self.show(&self.answer(&["research", "show"])?)?;
        let report = self.root.join(REPORT);
        self.answer(&["research", "report", "-o", &report.display().to_string()])?;
        let report = if self.kept { report } else { saved(&report)? };
        self.say(&format!("The champion is really better: it won a race. The same as a page: {}", report.display()));
        Ok(Code::Ok)
    }

    /// What everloop prints to these words.
    fn answer(&self, words: &[&str]) -> Result<String, Failure> {
        let out = self.everloop()?.args(words).output()?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
        }
        let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        Err(Failure::failed(format!("`everloop {}` failed: {why}", words.join(" "))))
    }
}

/// A copy of the report that outlives the demo's folder.
fn saved(report: &Path) -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("everloop-demo-research-{}.html", std::process::id()));
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot write `{}`", path.display())).because(&e);
    let page = fs::read(report)?;
    // Never through a link or over a file of others: the folder belongs to all.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| file.write_all(&page))
        .map_err(cannot)?;
    Ok(path)
}

/// Explains a line of output.
fn comment(line: &str) -> Option<&'static str> {
    let decided = |n: u32, status: &str| line.contains(&format!("experiment {n}: {status}"));
    if decided(1, "keep") {
        Some("^ better in every look of the race: kept, the next experiment starts from it")
    } else if decided(2, "discard") {
        Some("^ worse at the first look: discarded, and still there (`everloop research diff 2`)")
    } else if line.contains("the change crashed") {
        Some("^ a crash is no value; the same experiment goes on with a turn that mends it")
    } else if decided(3, "keep") {
        Some("^ mended, measured, kept")
    } else if decided(4, "discard") {
        Some("^ it only added a comment, and its first look was lucky; measured again, the luck was gone")
    } else if decided(5, "refused") {
        Some("^ it edited the script that measures: refused, not even measured")
    } else {
        None
    }
}
