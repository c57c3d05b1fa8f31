//! `everloop research report`: a run as one HTML page, and its chart as PNG.

use std::path::PathBuf;

use everloop_core::research::report::Report;
use everloop_core::research::steps::next_steps;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::research as service;
use serde_json::json;

use super::super::report::write;
use super::VerbSession;
use crate::png::png;
use crate::ui::text::clean;

/// Writes a report as one HTML file.
#[derive(Debug, clap::Args)]
pub struct ReportFlags {
    /// Loop id or name [default: the run in this folder]
    id: Option<String>,
    /// Where the page is written
    #[arg(short, long, value_name = "FILE", default_value = "research-report.html")]
    output: PathBuf,
    /// Write the chart as a picture, too
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

pub fn report(flags: &ReportFlags, session: &mut VerbSession) -> Result<Code, Failure> {
    let run = service::show(session, flags.id.as_deref())?;
    let (spec, research) = run.parts()?;
    let steps = next_steps(&run.rows, &spec.plan, research.sigma());
    let (diffs, steps): (_, Vec<String>) =
        (service::kept_patches(&run), steps.into_iter().map(|step| step.text).collect());
    let page = Report {
        name: &run.name,
        goal: &run.goal,
        chart: run.chart()?,
        plan: &spec.plan,
        diffs: &diffs,
        asleep_ms: u64::try_from(run.state.spend.asleep.as_millis()).unwrap_or(u64::MAX),
        total_microusd: run.state.spend.spent.microusd,
        false_keeps: research.false_keeps,
        next_steps: &steps,
        frontier: &run.frontier,
        secondary: &spec.metric.pareto,
    };
    let shown = write(&session.dir.join(&flags.output), page.html().as_bytes())?;
    let picture = match &flags.png {
        Some(file) => Some(write(&session.dir.join(file), &png(&page.chart.svg())?)?),
        None => None,
    };
    let mut text = format!("wrote {}", clean(&shown));
    text.extend(picture.as_deref().map(|file| format!(" and {}", clean(file))));
    session.ui.said(&text, &json!({ "loop": run.id, "file": shown, "png": picture }))?;
    Ok(Code::Ok)
}
