//! `everloop doctor`: looks for problems on this machine, and mends what is safe to mend.
//!
//! - `machine`: git, containment, disk, clock; `state`: folder, database, journal, supervisor
//! - `work`: agents, leftovers of loops, processes without owner; the configuration here

use everloop_engine::error::{Code, Failure};
use everloop_engine::state_folder::{Ownership, StateFolder};
use serde::Serialize;
use serde_json::json;

use super::{VerbSession, config as config_verb, up};
use crate::config;
use crate::ui::text::{clean, count};

mod machine;
mod state;
mod work;

const HELP: &str = "Examples:
  everloop doctor
  everloop doctor --fix

Exits with 1 when something fails; warnings alone exit with 0.";

/// Checks the machine, the state folder, the loops' leftovers and the configuration.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    /// Mend what is safe to mend: leftovers of ended loops, processes without owner, a stale wake
    /// pipe
    #[arg(long)]
    fix: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    /// Was bad, is mended now.
    Fixed,
    Warn,
    Fail,
}

/// One checked item.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    area: &'static str,
    level: Level,
    text: String,
    hint: Option<String>,
}

/// Findings of one area.
struct Chart {
    area: &'static str,
    findings: Vec<Finding>,
}

impl Chart {
    fn new(area: &'static str) -> Self {
        Self { area, findings: Vec::new() }
    }

    fn note(&mut self, level: Level, text: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding { area: self.area, level, text: text.into(), hint: None });
        self.findings.last_mut().expect("it was just pushed")
    }

    fn ok(&mut self, text: impl Into<String>) {
        self.note(Level::Ok, text);
    }

    fn warn(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.note(Level::Warn, text).hint = Some(hint.into());
    }

    fn fail(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.note(Level::Fail, text).hint = Some(hint.into());
    }

    fn fixed(&mut self, text: impl Into<String>) {
        self.note(Level::Fixed, text);
    }
}

/// Whether leftovers may be mended.
enum Remedy {
    Look,
    /// No supervisor runs while this one mends.
    Mend {
        _ownership: Ownership,
    },
    /// Wanted, but a supervisor runs.
    Busy,
}

impl Remedy {
    fn new(fix: bool, home: &StateFolder, session: &VerbSession) -> Result<Self, Failure> {
        if !fix {
            return Ok(Remedy::Look);
        }
        Ok(match home.own("doctor", session.now())? {
            Ok(ownership) => Remedy::Mend { _ownership: ownership },
            Err(_) => Remedy::Busy,
        })
    }

    fn mends(&self) -> bool {
        matches!(self, Remedy::Mend { .. })
    }

    /// The command that mends.
    fn hint(&self) -> &'static str {
        match self {
            Remedy::Look | Remedy::Mend { .. } => "everloop doctor --fix",
            Remedy::Busy => "a supervisor runs: everloop down, then everloop doctor --fix",
        }
    }
}

pub fn doctor(args: &DoctorArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    // Read before the lock is taken for mending: afterwards the owner is this process.
    let supervisor = home.owner();
    let remedy = Remedy::new(args.fix, &home, session)?;
    let mut findings = up::block_on(machine::look(&home, session))??;
    let (about_state, ledger) = state::look(&home, supervisor.as_ref(), &remedy, session);
    findings.extend(about_state);
    findings.extend(up::block_on(work::look(&home, ledger.as_ref(), &remedy, session))??);
    findings.extend(configuration(session));
    let failed = findings.iter().any(|f| f.level == Level::Fail);
    session.ui.answer(&lines(&findings, session), &json!({ "ok": !failed, "findings": findings }))?;
    Ok(if failed { Code::Failed } else { Code::Ok })
}

fn configuration(session: &VerbSession) -> Vec<Finding> {
    let mut chart = Chart::new("config");
    let Some(dir) = config::find(&session.dir) else { return Vec::new() };
    let checked = config_verb::load(session).and_then(|c| Ok(c.check(&config_verb::this_moment(session))?));
    match checked {
        Ok(loops) => {
            chart.ok(format!("{} in {}", count(loops.len() as u64, "loop"), dir.join(config::PROJECT_FILE).display()));
            for warning in loops.iter().flat_map(|l| &l.warnings) {
                chart.warn(warning.clone(), "everloop config check");
            }
            let mut agents = Chart::new("config");
            for one in &loops {
                let specs = one.agents().cloned().collect();
                work::agents_of(&mut agents, &format!("`{}`", one.name), &one.workspace.dir, specs);
            }
            // A loop that was never started cannot fail yet.
            agents.findings.iter_mut().filter(|f| f.level == Level::Fail).for_each(|f| f.level = Level::Warn);
            chart.findings.append(&mut agents.findings);
        }
        Err(failure) => chart.fail(failure.message, "everloop config check"),
    }
    chart.findings
}

fn lines(findings: &[Finding], session: &VerbSession) -> Vec<String> {
    let paint = session.ui.paint();
    let mut lines = Vec::new();
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            lines.push(paint.strong(area));
        }
        let mark = match finding.level {
            Level::Ok => paint.good("ok   "),
            Level::Fixed => paint.good("fixed"),
            Level::Warn => paint.warn("warn "),
            Level::Fail => paint.bad("fail "),
        };
        lines.push(format!("  {mark} {}", clean(&finding.text)));
        if let Some(hint) = &finding.hint {
            lines.push(format!("        hint: {}", clean(hint)));
        }
    }
    let of = |level| findings.iter().filter(|f| f.level == level).count() as u64;
    let sum = [count(of(Level::Warn), "warning"), count(of(Level::Fail), "failure")].join(", ");
    lines.push(if of(Level::Warn) + of(Level::Fail) == 0 { "all is well".to_owned() } else { sum });
    lines
}
