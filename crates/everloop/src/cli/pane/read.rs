//! `everloop pane read`: prints the screen of a pane.

use everloop_agents::tmux::{Colours, ScreenCapture};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::{PaneScreen, Panes};
use serde_json::json;

use super::VerbSession;
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

pub fn read(args: &PaneReadArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let colours = if args.colours { Colours::Escaped } else { Colours::Plain };
    let found = panes.read(&args.name, ScreenCapture { colours, history: args.history })?;
    let PaneScreen { pane, state, title, text } = &found;
    let lines = match colours {
        Colours::Plain => clean_lines(text, usize::MAX),
        // The capture holds no escapes but colours.
        Colours::Escaped => text.lines().map(str::to_owned).collect(),
    };
    let content = json!({
        "pane": pane.name, "state": state.label(), "detail": state, "title": title, "text": text,
    });
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}
