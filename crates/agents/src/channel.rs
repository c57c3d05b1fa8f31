//! Sends a [`Delivery`] through a channel. One attempt with a deadline; `core::outbound` decides
//! when to try again.
//!
//! - `secret`: tokens, looked up when they are needed and kept out of every text
//! - `web`: one POST; `post`: what Slack, ntfy, SMS gateways and webhooks get by it; `telegram`
//!   (also answers)
//! - `mail`: what a mail looks like; `smtp`: how it is handed over
//! - `command`: the only place that starts a command of a channel

use std::path::{Path, PathBuf};

use everloop_core::isolation::{CommandAccess, Isolation, IsolationSpec};
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Delivery, Undelivered};
use tokio::sync::oneshot;

use crate::short_command::ShortCommand;

mod command;
mod mail;
mod post;
mod secret;
mod smtp;
pub mod telegram;
mod web;

pub use crate::http_client::check_address;
pub use mail::{Mail, Via, is_address};
pub use post::{Auth, Form};
pub use secret::SecretSource;
pub use smtp::{Encryption, Server};

/// What receives deliveries: a notifier, a mailbox or a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The name in the configuration.
    pub name: String,
    pub channel: Channel,
    /// A PEM file of certificates that are trusted besides those of this machine.
    pub ca_file: Option<PathBuf>,
    /// The folder of its command; the home folder of the user without one.
    pub dir: Option<PathBuf>,
    /// What its command may reach.
    pub access: ReceiverAccess,
}

/// What the configuration opens for the command of a receiver, and what it hides from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverAccess {
    pub own: CommandAccess,
    /// The mode of `[isolation]`, and the files with secrets of accounts.
    pub around: IsolationSpec,
}

/// How a delivery is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A bot writes into a chat, with buttons.
    Telegram(telegram::Bot),
    /// An incoming webhook.
    Slack {
        /// The whole address is the secret.
        url: SecretSource,
    },
    /// A topic of ntfy.
    Ntfy {
        /// Server and topic.
        url: String,
        /// For topics that are protected.
        token: Option<SecretSource>,
        /// Where a press leads; `{ticket}` is replaced.
        link: Option<String>,
    },
    /// A gateway that turns a request into an SMS.
    Sms(Form),
    /// A mail, through a server or a command.
    Mail(Mail),
    /// A request with everything as JSON.
    Webhook { url: Address, auth: Option<Auth> },
    /// A note on the screen of this machine.
    Desktop,
    /// A command, with everything as JSON on standard input.
    Command { argv: Vec<String> },
}

/// An address, which may be a secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// In the open.
    Open(String),
    /// The whole address is a secret.
    Hidden(SecretSource),
}

impl Channel {
    /// The kind as one word of the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Channel::Telegram(_) => "telegram",
            Channel::Slack { .. } => "slack",
            Channel::Ntfy { .. } => "ntfy",
            Channel::Sms(_) => "sms",
            Channel::Mail(_) => "mail",
            Channel::Webhook { .. } => "webhook",
            Channel::Desktop => "desktop",
            Channel::Command { .. } => "command",
        }
    }
}

impl Receiver {
    /// Whether a command delivers, and not everloop itself.
    pub fn is_command(&self) -> bool {
        let by_command = |mail: &Mail| matches!(mail.via, Via::Command(_));
        match &self.channel {
            Channel::Desktop | Channel::Command { .. } => true,
            Channel::Mail(mail) => by_command(mail),
            _ => false,
        }
    }

    /// The folder that its command runs in.
    pub fn folder(&self) -> PathBuf {
        let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|dir| dir.is_dir());
        self.dir.clone().or_else(home).unwrap_or_else(|| Path::new("/").to_owned())
    }

    /// Tries once to deliver, without blocking the thread of the caller. A command reaches what
    /// `isolation` opens.
    pub async fn deliver(&self, delivery: &Delivery, isolation: &Isolation) -> Result<(), Undelivered> {
        let json = || format!("{}\n", post::as_json(delivery));
        let (argv, input) = match &self.channel {
            Channel::Desktop => (desktop(delivery), json()),
            Channel::Command { argv } => {
                let words = delivery.report.as_ref().map(|report| report.words.as_slice()).unwrap_or_default();
                ([argv.as_slice(), words].concat(), json())
            }
            Channel::Mail(mail @ Mail { via: Via::Command(argv), .. }) => {
                (argv.clone(), String::from_utf8_lossy(&mail.render(delivery)?.formatted()).into_owned())
            }
            _ => return in_a_thread(self.clone(), delivery.clone()).await,
        };
        let dir = self.folder();
        command::run(&ShortCommand { argv: &argv, dir: &dir, input: &input, isolation, within: command::WITHIN }).await
    }

    /// The same, while this thread waits.
    fn send(&self, delivery: &Delivery) -> Result<(), Undelivered> {
        let ca = self.ca_file.as_deref();
        match &self.channel {
            Channel::Telegram(bot) => telegram::send(bot, ca, delivery),
            Channel::Slack { url } => post::slack(url, ca, delivery),
            Channel::Ntfy { url, token, link } => post::ntfy((url, token.as_ref(), link.as_deref()), ca, delivery),
            Channel::Sms(form) => post::sms(form, ca, delivery),
            Channel::Webhook { url, auth } => post::webhook(url, auth.as_ref(), ca, delivery),
            Channel::Mail(Mail { via: Via::Command(_), .. }) | Channel::Desktop | Channel::Command { .. } => {
                Err(Undelivered::away("a command is not run here"))
            }
            Channel::Mail(mail @ Mail { via: Via::Server(server), .. }) => smtp::hand_over(server, ca, mail, delivery),
        }
    }
}

/// A thread of its own: it ends with its deadlines, and a supervisor that stops does not wait for
/// it.
async fn in_a_thread(receiver: Receiver, delivery: Delivery) -> Result<(), Undelivered> {
    let (done, answer) = oneshot::channel();
    let started = std::thread::Builder::new().name("deliver".to_owned()).spawn(move || {
        // The other end is gone only when the supervisor is.
        done.send(receiver.send(&delivery)).ok();
    });
    if let Err(e) = started {
        return Err(Undelivered::away(format!("no thread could be started: {e}")));
    }
    answer.await.unwrap_or_else(|_| Err(Undelivered::away("the attempt broke off")))
}

/// The desktop's own program; texts are arguments, never part of a script.
fn desktop(message: &Delivery) -> Vec<String> {
    let words: Vec<&str> = if cfg!(target_os = "macos") {
        let show = "display notification (item 2 of argv) with title (item 1 of argv)";
        vec!["osascript", "-e", "on run argv", "-e", show, "-e", "end run", &message.title, &message.text]
    } else {
        let urgency = match message.severity {
            Severity::Info => "low",
            Severity::Warning => "normal",
            Severity::Critical => "critical",
        };
        vec!["notify-send", "-a", "everloop", "-u", urgency, "--", &message.title, &message.text]
    };
    words.into_iter().map(str::to_owned).collect()
}
