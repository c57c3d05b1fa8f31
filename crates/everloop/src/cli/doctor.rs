//! `everloop doctor`: looks for problems on this machine, and mends what is safe to mend.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::doctor::{
    self as service, ConfiguredLoop, DoctorFinding, DoctorLevel, DoctorRequest, FolderConfiguration,
};
use serde_json::json;

use super::{VerbSession, config as config_verb};
use crate::config::{self, ResolvedLoop};
use crate::ui::text::{clean, count};

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

pub fn doctor(args: &DoctorArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let request = DoctorRequest { fix: args.fix, configuration: configuration(session) };
    let findings = service::doctor(session, request)?;
    let failed = findings.iter().any(|f| f.level == DoctorLevel::Fail);
    session.ui.answer(&lines(&findings, session), &json!({ "ok": !failed, "findings": findings }))?;
    Ok(if failed { Code::Failed } else { Code::Ok })
}

/// The configuration here, resolved.
fn configuration(session: &VerbSession) -> Option<FolderConfiguration> {
    let file = config::find(&session.dir)?.join(config::PROJECT_FILE);
    let resolved = |one: ResolvedLoop| ConfiguredLoop {
        agents: one.agents().cloned().collect(),
        name: one.name,
        dir: one.workspace.dir,
        warnings: one.warnings,
    };
    let checked = config_verb::load(session).and_then(|c| Ok(c.check(&config_verb::this_moment(session))?));
    Some(FolderConfiguration { file, loops: checked.map(|loops| loops.into_iter().map(resolved).collect()) })
}

fn lines(findings: &[DoctorFinding], session: &VerbSession) -> Vec<String> {
    let paint = session.ui.paint();
    let mut lines = Vec::new();
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            lines.push(paint.strong(area));
        }
        let mark = match finding.level {
            DoctorLevel::Ok => paint.good("ok   "),
            DoctorLevel::Fixed => paint.good("fixed"),
            DoctorLevel::Warn => paint.warn("warn "),
            DoctorLevel::Fail => paint.bad("fail "),
        };
        lines.push(format!("  {mark} {}", clean(&finding.text)));
        if let Some(hint) = &finding.hint {
            lines.push(format!("        hint: {}", clean(hint)));
        }
    }
    let of = |level| findings.iter().filter(|f| f.level == level).count() as u64;
    let sum = [count(of(DoctorLevel::Warn), "warning"), count(of(DoctorLevel::Fail), "failure")].join(", ");
    lines.push(if of(DoctorLevel::Warn) + of(DoctorLevel::Fail) == 0 { "all is well".to_owned() } else { sum });
    lines
}
