//! `everloop pane __turn`: one prompt and its end, as a plain process that a supervisor can run as
//! a job.
//!
//! 0 done · 3 timed out · 4 the program waits for input · 5 it is limited · 6 it has ended. stdout
//! has records in everloop's own format, the final screen among them.

use std::path::PathBuf;
use std::time::Duration;

use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::Panes;
use everloop_engine::services::pane::turn::{PaneTurnNews, PaneTurnRequest};

use super::VerbSession;

/// Waits until the program is idle, types the prompt, waits until it has worked.
#[derive(Debug, clap::Args)]
pub struct PaneTurnArgs {
    /// Name of the pane
    #[arg(long, value_name = "NAME")]
    pane: String,
    /// File with the prompt
    #[arg(long, value_name = "FILE")]
    prompt_file: PathBuf,
    /// Time limit of the whole turn
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    timeout: Duration,
    /// The screen must not have changed for this long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    quiet: Duration,
    /// A question of the program waits for a person for this long
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    answer_within: Duration,
    /// What happened to the pane before the turn, for the turn's output
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// A file that a Stop hook of the program makes; removed before the prompt is typed
    #[arg(long, value_name = "FILE")]
    stop_file: Option<PathBuf>,
}

pub fn turn(args: PaneTurnArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    if let Some(note) = &args.note {
        session.ui.warn(note);
    }
    let request = PaneTurnRequest {
        pane: args.pane,
        prompt_file: args.prompt_file,
        limit: args.timeout,
        quiet: args.quiet,
        stop_file: args.stop_file,
        answer_within: args.answer_within,
    };
    panes.turn(request, &mut |news| match news {
        PaneTurnNews::Warning(text) => {
            session.ui.warn(&text);
            Ok(())
        }
        PaneTurnNews::Record(record) => session.ui.json(&record),
    })?;
    Ok(Code::Ok)
}
