//! `everloop ui`: a login link for the dashboard, opened in a browser.

use std::process::{Command, Stdio};

use everloop_engine::error::{Code, Failure};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use serde_json::json;

use super::VerbSession;
use crate::http::dashboard::link::login_link;

const HELP: &str = "Examples:
  everloop up &                               # the dashboard is on its port
  everloop ui                                 # log in a browser of this machine
  everloop ui --no-open                       # over ssh -L 9300:127.0.0.1:9300, open the link at home

A link works once, for a minute.";

/// Logs a browser in to the dashboard of the running supervisor: prints a link that works once, and
/// opens it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct UiArgs {
    /// Only print the link
    #[arg(long)]
    no_open: bool,
    /// Print the link as a code for the camera of a phone too
    #[arg(long)]
    qr: bool,
}

pub fn ui(args: &UiArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    session.for_a_person("log in to the dashboard")?;
    let link = login_link(&session.home()?)?;
    let mut lines = vec![link.clone()];
    if args.qr {
        let code = QrCode::new(&link).map_err(|e| Failure::failed("the link does not fit into a code").because(&e))?;
        lines.push(code.render::<Dense1x2>().build());
    }
    session.ui.answer(&lines, &json!({ "url": link, "seconds": 60 }))?;
    if !args.no_open {
        open(&link);
    }
    Ok(Code::Ok)
}

/// Opens a page with the desktop's own command. Without a desktop the printed link is enough.
fn open(link: &str) {
    let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !cfg!(target_os = "macos") && !["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|name| named(name)) {
        return;
    }
    let opened =
        Command::new(program).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = opened {
        tracing::debug!(%error, program, "no browser was opened");
    }
}
