//! `everloop mesh trust` and `mesh sign`: the keys whose loops this node runs and whose reports it
//! merges, and the signature of this node's own key.

use everloop_core::mesh::MeshLoop;
use everloop_core::mesh::keys::TrustedKey;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::mesh::trust::{self as service, KeyChoice};
use serde_json::json;

use crate::cli::VerbSession;
use crate::ui::table::Table;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop mesh trust
  everloop mesh trust builder-2
  everloop mesh trust --revoke builder-2

Compare a fingerprint with what `everloop mesh trust` shows on that machine (the line `this node`) before you trust it:
anything that can write to the hub can list a key there. The trust list is this node's own; other nodes have theirs.";

/// Lists the keys of the mesh, and says which of them this node trusts.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TrustArgs {
    /// Trust this node, key or fingerprint
    #[arg(value_name = "NODE|KEY", conflicts_with_all = ["all", "list", "revoke"])]
    named: Option<String>,
    /// Trust every key that the hub lists now
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    all: bool,
    /// List all keys and change nothing [default]
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Do not trust this node, key or fingerprint any more
    #[arg(long, value_name = "NODE|KEY")]
    revoke: Option<String>,
}

/// A loop to sign.
#[derive(Debug, clap::Args)]
pub struct SignArgs {
    /// Id of the loop
    id: String,
    /// Sign without a question
    #[arg(long)]
    yes: bool,
}

pub fn trust(args: &TrustArgs, session: &VerbSession) -> Result<Code, Failure> {
    if let Some(named) = &args.revoke {
        return revoke(named, session);
    }
    let choice = match &args.named {
        Some(named) => KeyChoice::Named(named.clone()),
        None if args.all => KeyChoice::All,
        None => return list(session),
    };
    let trusted = service::trust(session, &choice)?;
    let said = |trusted: &TrustedKey| {
        format!("node `{}` is trusted here: {}", clean(trusted.node.as_str()), trusted.key.fingerprint())
    };
    session.ui.answer(&trusted.iter().map(said).collect::<Vec<_>>(), &json!({ "trusted": trusted }))?;
    Ok(Code::Ok)
}

fn revoke(named: &str, session: &VerbSession) -> Result<Code, Failure> {
    let gone = service::revoke(session, named)?;
    let said = |key: &TrustedKey| {
        format!("node `{}` is not trusted here any more: {}", clean(key.node.as_str()), key.key.fingerprint())
    };
    session.ui.answer(&gone.iter().map(said).collect::<Vec<_>>(), &json!({ "revoked": gone }))?;
    Ok(Code::Ok)
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let keys = service::list(session)?;
    let mut table = Table::new(&["NODE", "TRUST", "FINGERPRINT"]);
    for key in &keys {
        let trust = if key.is_listed { key.trust } else { "trusted, not in the hub" };
        let shown = key.fingerprint.clone().or_else(|| key.why.as_deref().map(clean));
        table.row([clean(key.node.as_str()), trust.to_owned(), shown.unwrap_or_default()]);
    }
    session.ui.answer(&table.lines(session.ui.width()), &json!({ "keys": keys }))?;
    Ok(Code::Ok)
}

pub fn sign(args: &SignArgs, session: &VerbSession) -> Result<Code, Failure> {
    let unsigned = service::to_sign(session, &args.id)?;
    for line in commands(&unsigned.state) {
        session.ui.talk(&line);
    }
    if !args.yes {
        if !session.ui.asks() {
            return Err(Failure::usage("nothing was signed: a person has to look at it")
                .hint(format!("when this is what nodes shall run: everloop mesh sign {} --yes", args.id)));
        }
        if !session.ui.agrees("sign this, so that nodes which trust your key run it?")? {
            return Ok(Code::Ok);
        }
    }
    let shown = unsigned.sign(session)?;
    session.ui.said(&format!("loop `{}` is signed by {shown}", args.id), &json!({ "id": args.id, "key": shown }))?;
    Ok(Code::Ok)
}

/// What a node would run of a loop.
fn commands(state: &MeshLoop) -> Vec<String> {
    let wanted = &state.spec.wanted;
    let mut lines = vec![
        format!("Loop      {} ({})", clean(state.id.as_str()), clean(&state.name)),
        format!("Goal      {}", clean(&wanted.goal)),
        format!("Work      {} on {}", clean(&state.spec.branch), clean(&state.spec.remote)),
    ];
    lines.extend(wanted.workspace.setup.iter().map(|setup| format!("Setup     {}", clean(setup))));
    lines.extend(wanted.checks.iter().map(|check| format!("Check     {}", clean(&check.run))));
    for agent in wanted.agents() {
        lines.push(format!("Agent     {} {}", clean(&agent.name), clean(&agent.argv.join(" "))));
    }
    lines
}
