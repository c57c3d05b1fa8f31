//! `everloop signal`: sends a signal to a persona.

use std::collections::BTreeSet;

use everloop_core::rhythm::signal::SignalClass;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::signal::{self as service, SignalRequest};

use super::VerbSession;
use super::message::send::away;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop signal echo \"the deploy to eu failed\" --class high --tag infra --topic deploy.eu
  everloop signal echo \"nightly report\" --class low --id report-2026-11-18";

/// Sends a signal, which the next turn of the persona reads as data. The same id is taken once.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct SignalArgs {
    /// Name of the persona
    persona: String,
    /// Text of the signal, at most 32 KiB
    #[arg(default_value = "")]
    text: String,
    /// How urgent it is: low wakes at the second one, medium at the first, high also wakes related
    /// personas
    #[arg(long, value_name = "low|medium|high", default_value = "medium", value_parser = class)]
    class: SignalClass,
    /// A word that the persona's `wake_on` and `ignore` compare; repeat for several
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// What it is about, like `deploy.eu`
    #[arg(long, value_name = "TOPIC", default_value = "")]
    topic: String,
    /// Id of the signal at its source, so that it counts once however often it is sent
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

fn class(text: &str) -> Result<SignalClass, String> {
    text.parse().map_err(|error: everloop_core::rhythm::signal::SignalError| error.to_string())
}

pub fn signal(args: SignalArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let SignalArgs { persona, text, class, tags, topic, id } = args;
    let tags: BTreeSet<String> = tags.into_iter().collect();
    let answer = service::signal(session, SignalRequest { persona, text, class, tags, topic, id, from: None })?;
    let said = if answer.repeated {
        format!("persona {} has had signal {} before", answer.persona, clean(&answer.id))
    } else {
        format!("sent signal {} to persona {}{}", clean(&answer.id), answer.persona, away(answer.supervisor))
    };
    session.ui.said(&said, &answer)?;
    Ok(Code::Ok)
}
