//! `everloop pane read`: prints the screen of a pane.

use everloop_agents::tmux::{Colours, ScreenCapture, TmuxServer};
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use super::{VerbSession, failure};
use crate::ui::text::clean_lines;

/// Prints the screen of a pane, also after its program has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  everloop pane read helper\n  everloop pane read helper --history 500 --colours")]
pub struct PaneReadArgs {
    /// Name of the pane
    name: String,
    /// Lines above the visible screen; agents that draw a full screen have none
    #[arg(long, default_value_t = 0, value_name = "N")]
    history: u32,
    /// Keep escapes for colours
    #[arg(long)]
    colours: bool,
}

pub fn read(args: &PaneReadArgs, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    let pane = server.pane(&args.name).map_err(failure)?;
    let (sight, state) = server.see(&pane).map_err(failure)?;
    let colours = if args.colours { Colours::Escaped } else { Colours::Plain };
    let text = server.read(&pane, ScreenCapture { colours, history: args.history }).map_err(failure)?;
    let text = text.trim_end();
    let lines = match colours {
        Colours::Plain => clean_lines(text, usize::MAX),
        // The capture holds no escapes but colours.
        Colours::Escaped => text.lines().map(str::to_owned).collect(),
    };
    let content = json!({
        "pane": pane.name, "state": state.label(), "detail": state, "title": sight.title, "text": text,
    });
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}
