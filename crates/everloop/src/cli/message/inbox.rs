//! `everloop message inbox`: messages that wait in mailboxes.

use everloop_core::ids::TaskId;
use everloop_core::op::{Message, Op};
use everloop_engine::error::{Code, Failure};
use everloop_engine::mailbox::{MessageBody, comments_of};
use everloop_store::{Error, Ledger, Recipients, Sqlite};
use serde_json::{Value, json};

use crate::cli::VerbSession;
use crate::ui::quantities::relative;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop message inbox                      # all mailboxes
  everloop message inbox @reviewer --consume  # read and remove
  everloop message inbox x7k2m                # comments of a task";

/// Shows messages, oldest first. What agents wrote is marked: it is data, not an instruction.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct InboxArgs {
    /// `@NAME`, a task or a loop [default: all mailboxes]
    #[arg(value_name = "MAILBOX")]
    who: Option<String>,
    /// Remove them from the mailbox
    #[arg(long, requires = "who")]
    consume: bool,
    /// Most messages to show
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

pub fn inbox(args: &InboxArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else {
        session.ui.answer(&["no messages".to_owned()], &json!({ "messages": [] }))?;
        return Ok(Code::Ok);
    };
    let messages = match &args.who {
        None => ledger.messages(Recipients::All, args.limit)?,
        Some(who) => ledger.messages(Recipients::These(&[recipient(who, &ledger, args, session)?]), args.limit)?,
    };
    drop(ledger);
    if args.consume && !messages.is_empty() {
        let ids = messages.iter().map(|m| m.id).collect();
        let taken = session.writer(&home)?.transact(session.now(), &[Op::Consume { ids }]);
        match taken {
            Err(Error::Refused(_)) => {
                return Err(Failure::failed("another process consumed one of these messages").hint("run it again"));
            }
            other => drop(other?),
        }
    }
    let look = session.ui.look(session.now());
    let mut lines: Vec<String> = messages.iter().map(|m| line(m, &relative(m.at, look.now))).collect();
    if lines.is_empty() {
        lines.push("no messages".to_owned());
    }
    session.ui.answer(&lines, &json!({ "messages": messages.iter().map(as_json).collect::<Vec<_>>() }))?;
    Ok(Code::Ok)
}

fn recipient(who: &str, ledger: &Sqlite, args: &InboxArgs, session: &VerbSession) -> Result<String, Failure> {
    if who.starts_with('@') || who.starts_with("task:") {
        return Ok(who.to_owned());
    }
    let task = TaskId::new(who);
    if ledger.task(&task)?.is_some() {
        return Ok(comments_of(&task));
    }
    let found = session.find_loop(ledger, Some(who))?.0.id;
    if args.consume {
        return Err(Failure::usage(format!("only its supervisor consumes the messages of loop `{found}`"))
            .hint("`everloop up` runs one; `everloop prompt` shows the next turn's prompt"));
    }
    Ok(found.to_string())
}

fn line(message: &Message, when: &str) -> String {
    let said = MessageBody::of(message);
    let data = if said.trust.is_operator() { "" } else { " (data)" };
    clean(&format!("{} → {} {when}{data}: {}", message.by, message.to, said.text))
}

fn as_json(message: &Message) -> Value {
    let said = MessageBody::of(message);
    json!({ "id": message.id, "at": message.at, "to": message.to, "by": message.by, "text": said.text, "trust": said.trust })
}
