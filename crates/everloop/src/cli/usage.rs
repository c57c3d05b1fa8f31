//! `everloop usage`: what turns used.

use everloop_core::pacing::{AHEAD_PERMILLE, Window};
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::usage::{UsageRequest, usage as sum_up};
use everloop_engine::tally::{By, UsageTally};
use serde_json::{Value, json};

use super::choices;
use super::{VerbSession, logs};
use crate::ui::usage::usage_lines;

const HELP: &str = "Examples:
  everloop usage
  everloop usage --by account --since 7d
  everloop usage k3f9 --by day --json

`~` marks figures that are everloop's estimate and not the agent's report, `*` those that come from the agent's telemetry
because its stream reported less or nothing.";

/// Shows turns, tokens and money, and how full the windows of the accounts are.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct UsageArgs {
    /// Loop id or name [default: all]
    id: Option<String>,
    /// Dimension of the sums
    #[arg(long, value_parser = choices::sums(), default_value = "loop", value_name = "WHAT")]
    by: By,
    /// Only turns that ended after this: `7d` (ago), `21:00`, `2026-11-15`, `2026-11-15 21:00`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

pub fn usage(args: &UsageArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let since = args.since.as_deref().map(|text| logs::past(text, session)).transpose()?;
    let tally = sum_up(session, &UsageRequest { word: args.id.clone(), by: args.by, since })?;
    let look = session.ui.look(session.now());
    session.ui.answer(&usage_lines(&tally, &look), &as_json(&tally, look.now))?;
    Ok(Code::Ok)
}

fn as_json(tally: &UsageTally, now: Time) -> Value {
    let rows: Vec<Value> = tally.rows.iter().map(|(key, sum)| json!({ "key": key, "usage": sum })).collect();
    let window = |((account, _), window): (&(String, String), &Window)| {
        let pace = window.pace(now);
        json!({
            "account": account,
            "window": window.quota.window,
            "used_permille": window.quota.used_permille,
            "reset_at": window.quota.reset_at,
            "seen_at": window.seen,
            "over": window.is_over(now),
            "at_reset_permille": pace.map(|p| p.at_reset_permille),
            "empty_at": pace.and_then(|p| p.empty_at),
            "paced_until": window.hold(AHEAD_PERMILLE, now).filter(|_| tally.paced.contains(account)),
        })
    };
    json!({
        "by": tally.by.label(),
        "since": tally.since,
        "rows": rows,
        "total": tally.total,
        "windows": tally.windows.iter().map(window).collect::<Vec<_>>(),
    })
}
