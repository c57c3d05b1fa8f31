//! `everloop trust`: a person's consent to the everloop.toml of a folder, its list and its end.

use std::path::PathBuf;

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::trust::{self as service, TrustedFolder};
use everloop_engine::trust::{Standing, short};
use serde_json::{Value, json};

use super::VerbSession;
use crate::ui::quantities::moment;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop trust
  everloop trust ~/src/project
  everloop trust --list
  everloop trust --revoke ~/src/project

Trust is for one folder and one content: after any change of the file it has to be given again. `run`, `init` and
`config apply` that you type give it, too.";

/// Puts the everloop.toml of a folder in force as it is now: hooks hold sessions there by its
/// checks, `up` adds its loops, its notifiers and mailbox are used. Loops that exist keep their
/// settings: `everloop config apply` changes them.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TrustArgs {
    /// The folder, or one below it [default: this one]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// List trusted folders, and whether their files changed since
    #[arg(long, conflicts_with_all = ["folder", "revoke"])]
    list: bool,
    /// Take the trust in this folder back: nothing of its file is in force
    #[arg(long, value_name = "DIR", conflicts_with = "folder")]
    revoke: Option<PathBuf>,
}

pub fn trust(args: &TrustArgs, session: &VerbSession) -> Result<Code, Failure> {
    if args.list {
        return list(session);
    }
    if let Some(dir) = &args.revoke {
        let root = service::revoke(session, dir)?;
        let text = format!("everloop.toml of {} is not trusted any more", root.display());
        session.ui.said(&text, &json!({ "dir": root, "revoked": true }))?;
        return Ok(Code::Ok);
    }
    let trusted = service::trust(session, args.folder.as_deref())?;
    let mut lines: Vec<String> = trusted.commands.iter().map(|line| format!("  {}", clean(line))).collect();
    let root = trusted.root.display();
    lines.push(format!("trusted everloop.toml in {root} (sha256 {}), with what stands above", short(&trusted.hash)));
    let data = json!({ "dir": trusted.root, "hash": trusted.hash, "commands": trusted.commands });
    session.ui.answer(&lines, &data)?;
    Ok(Code::Ok)
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let folders = service::list(session)?;
    let look = session.ui.look(session.now());
    let line = |folder: &TrustedFolder| {
        let note = match folder.standing {
            Standing::Trusted => "",
            Standing::Changed | Standing::Untrusted => ", changed since: the file as it is now is not trusted",
            Standing::Gone => ", gone since",
        };
        let (by, via) = (clean(&folder.by), clean(&folder.via));
        let at = moment(folder.at, look.now, &look.zone);
        format!("{} (sha256 {}; `{via}` by {by}, {at}){note}", folder.root.display(), short(&folder.hash))
    };
    let mut lines: Vec<String> = folders.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no folder is trusted; `everloop trust` trusts the everloop.toml of this one".to_owned());
    }
    session.ui.answer(&lines, &json!({ "folders": folders.iter().map(as_json).collect::<Vec<_>>() }))?;
    Ok(Code::Ok)
}

fn as_json(folder: &TrustedFolder) -> Value {
    let TrustedFolder { root, hash, by, via, at, standing } = folder;
    json!({ "dir": root, "hash": hash, "by": by, "via": via, "at": at, "state": standing })
}
