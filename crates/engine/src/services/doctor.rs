//! Looks for problems on this machine, and mends what is safe to mend.
//!
//! - `machine`: git, containment, disk, clock; `state`: folder, database, journal, supervisor
//! - `work`: agents, leftovers of loops, processes without owner
//! - here: the configuration of the folder

use std::path::PathBuf;

use everloop_core::spec::AgentSpec;
use serde::Serialize;

use super::ServiceContext;
use super::runtime::block_on;
use crate::error::Failure;
use crate::state_folder::{Ownership, StateFolder};
use crate::text::count;

mod machine;
mod state;
mod work;

/// Examine this machine.
#[derive(Debug)]
pub struct DoctorRequest {
    /// Mend leftovers of ended loops, processes without owner, a stale wake pipe.
    pub fix: bool,
    /// `None` in a folder without one.
    pub configuration: Option<FolderConfiguration>,
}

/// The configuration of the caller's folder.
#[derive(Debug)]
pub struct FolderConfiguration {
    pub file: PathBuf,
    /// Its loops, or the mistakes in it.
    pub loops: Result<Vec<ConfiguredLoop>, Failure>,
}

/// A loop of a configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredLoop {
    pub name: String,
    /// The folder in which it would work.
    pub dir: PathBuf,
    pub agents: Vec<AgentSpec>,
    pub warnings: Vec<String>,
}

/// How an examined item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DoctorLevel {
    Ok,
    /// Was bad, is mended now.
    Fixed,
    Warn,
    Fail,
}

/// One examined item.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorFinding {
    pub area: &'static str,
    pub level: DoctorLevel,
    /// Text that is not trusted.
    pub text: String,
    pub hint: Option<String>,
}

/// Findings of one area.
struct Chart {
    area: &'static str,
    findings: Vec<DoctorFinding>,
}

impl Chart {
    fn new(area: &'static str) -> Self {
        Self { area, findings: Vec::new() }
    }

    fn note(&mut self, level: DoctorLevel, text: impl Into<String>) -> &mut DoctorFinding {
        self.findings.push(DoctorFinding { area: self.area, level, text: text.into(), hint: None });
        self.findings.last_mut().expect("it was just pushed")
    }

    fn ok(&mut self, text: impl Into<String>) {
        self.note(DoctorLevel::Ok, text);
    }

    fn warn(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.note(DoctorLevel::Warn, text).hint = Some(hint.into());
    }

    fn fail(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.note(DoctorLevel::Fail, text).hint = Some(hint.into());
    }

    fn fixed(&mut self, text: impl Into<String>) {
        self.note(DoctorLevel::Fixed, text);
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
    fn new(fix: bool, home: &StateFolder, context: &ServiceContext) -> Result<Self, Failure> {
        if !fix {
            return Ok(Remedy::Look);
        }
        Ok(match home.own("doctor", context.now())? {
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

/// Examines the machine, the state folder, the loops' leftovers and the configuration.
pub fn doctor(context: &ServiceContext, request: DoctorRequest) -> Result<Vec<DoctorFinding>, Failure> {
    let home = context.home()?;
    // Read before the lock is taken for mending: afterwards the owner is this process.
    let supervisor = home.owner();
    let remedy = Remedy::new(request.fix, &home, context)?;
    let mut findings = block_on(machine::look(&home, context.now()))??;
    let (about_state, ledger) = state::look(context, &home, supervisor.as_ref(), &remedy);
    findings.extend(about_state);
    findings.extend(block_on(work::look(&home, ledger.as_ref(), &remedy, context.now()))??);
    findings.extend(request.configuration.map_or_else(Vec::new, configuration));
    Ok(findings)
}

fn configuration(found: FolderConfiguration) -> Vec<DoctorFinding> {
    let mut chart = Chart::new("config");
    match found.loops {
        Ok(loops) => {
            chart.ok(format!("{} in {}", count(loops.len() as u64, "loop"), found.file.display()));
            for warning in loops.iter().flat_map(|l| &l.warnings) {
                chart.warn(warning.clone(), "everloop config check");
            }
            let mut agents = Chart::new("config");
            for one in loops {
                work::agents_of(&mut agents, &format!("`{}`", one.name), &one.dir, one.agents);
            }
            // A loop that was never started cannot fail yet.
            let failed = agents.findings.iter_mut().filter(|f| f.level == DoctorLevel::Fail);
            failed.for_each(|f| f.level = DoctorLevel::Warn);
            chart.findings.append(&mut agents.findings);
        }
        Err(failure) => chart.fail(failure.message, "everloop config check"),
    }
    chart.findings
}
