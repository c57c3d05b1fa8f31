//! Notifiers: whether they can be reached, and one message through each.

use everloop_agents::channel::{Receiver, ReceiverAccess};
use everloop_agents::isolation::Means;
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Button, Delivery};

use super::ServiceContext;
use super::runtime::block_on;
use crate::error::Failure;
use crate::isolation;
use crate::outboxes;
use crate::projects::NotifierSender;
use crate::trust;

/// A notifier and how it is.
#[derive(Clone, Debug)]
pub struct NotifierState {
    pub sender: NotifierSender,
    /// Why it cannot be reached now.
    pub trouble: Option<String>,
    /// Messages that wait.
    pub pending: usize,
    /// Whether nothing of it runs outside of an isolation.
    pub is_isolated: bool,
}

/// A message that was sent through a notifier, or not.
#[derive(Clone, Debug)]
pub struct NotifierTrial {
    pub name: String,
    pub kind: &'static str,
    /// Why it did not arrive; untrusted text.
    pub error: Option<String>,
}

/// The notifiers of the user and of the project in the caller's folder, as its file is now.
fn senders(context: &ServiceContext) -> Result<Vec<NotifierSender>, Failure> {
    let file = trust::on_disk(&*context.projects, &context.dir);
    context.projects.notifiers(file.as_ref(), context.now())
}

/// All notifiers and how they are.
pub fn list(context: &ServiceContext) -> Result<Vec<NotifierState>, Failure> {
    let senders = senders(context)?;
    let home = context.home()?;
    let ledger = context.reader(&home)?;
    let now = context.now();
    let mut all = Vec::new();
    for sender in senders {
        let outbox = ledger.as_ref().map(|ledger| outboxes::outbox(ledger, &sender.key())).transpose()?;
        let queue = outbox.unwrap_or_default().queue;
        all.push(NotifierState {
            trouble: queue.trouble(now),
            pending: queue.pending.len(),
            is_isolated: is_confined(&sender.of.receiver),
            sender,
        });
    }
    Ok(all)
}

fn is_confined(receiver: &Receiver) -> bool {
    let ReceiverAccess { own, around } = &receiver.access;
    !receiver.is_command() || Means::of(own.mode.unwrap_or(around.mode)).holds()
}

/// Sends one message through each notifier, or through the one of this name.
pub fn test(context: &ServiceContext, name: Option<&str>) -> Result<Vec<NotifierTrial>, Failure> {
    let mut senders = senders(context)?;
    let names: Vec<String> = senders.iter().map(|sender| sender.of.receiver.name.clone()).collect();
    senders.retain(|sender| name.is_none_or(|name| sender.of.receiver.name == name));
    if senders.is_empty() {
        let (what, hint) = match name {
            Some(name) if !names.is_empty() => {
                (format!("there is no notifier `{name}`"), format!("there are: {}", names.join(", ")))
            }
            _ => ("there are no notifiers".to_owned(), "add `[[notify]]` with a `kind` to everloop.toml".to_owned()),
        };
        return Err(Failure::usage(what).hint(hint));
    }
    let home = context.home()?;
    let mut all = Vec::new();
    for sender in senders {
        let receiver = &sender.of.receiver;
        let isolation = isolation::of_receiver(receiver, home.root());
        let result = block_on(receiver.deliver(&message(context), &isolation))?;
        let error = result.err().map(|failure| failure.why);
        all.push(NotifierTrial { name: receiver.name.clone(), kind: receiver.channel.kind(), error });
    }
    Ok(all)
}

fn message(context: &ServiceContext) -> Delivery {
    Delivery {
        key: format!("test-{:x}", context.now().0),
        severity: Severity::Info,
        title: "everloop: a test".to_owned(),
        text: "Tickets of your loops will arrive here.".to_owned(),
        // It belongs to no ticket: the press is received and ignored.
        buttons: vec![Button { label: "Seen".to_owned(), data: "test".to_owned() }],
        ..Delivery::default()
    }
}
