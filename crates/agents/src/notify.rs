//! Brings a message to a person. One attempt with a deadline; `core::notify` decides when to try
//! again.
//!
//! - `secret`: tokens, looked up when they are needed and kept out of every text
//! - `telegram` (also answers), `post` (Slack, ntfy, SMS, webhook)
//! - `mail`: what a mail looks like; `smtp`: how it is handed over

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::notify::{Notification, Severity, Undelivered};
use tokio::sync::oneshot;

use crate::exchange::{DeliveryError, tell};

mod mail;
mod post;
mod secret;
mod smtp;
pub mod telegram;

pub use crate::http_client::check_address;
pub use mail::{Mail, Via, is_address};
pub use post::{Auth, Form};
pub use secret::SecretSource;
pub use smtp::{Encryption, Server};

/// A program that takes longer is ended.
const COMMAND_WITHIN: Duration = Duration::from_secs(20);

/// A channel to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notifier {
    /// The name in the configuration.
    pub name: String,
    /// How it is reached.
    pub way: Channel,
    /// A PEM file of certificates that are trusted besides those of this machine.
    pub ca_file: Option<PathBuf>,
}

/// How a message reaches a person.
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
    Webhook {
        url: Address,
        /// What it is signed with.
        secret: Option<SecretSource>,
    },
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

impl Notifier {
    /// Tries once to deliver a message, without blocking the thread of the caller.
    pub async fn deliver(self, message: Notification) -> Result<(), Undelivered> {
        let argv = match &self.way {
            Channel::Desktop => desktop(&message),
            Channel::Command { argv } | Channel::Mail(Mail { via: Via::Command(argv), .. }) => argv.clone(),
            _ => return in_a_thread(self, message).await,
        };
        let input = match &self.way {
            Channel::Mail(mail) => String::from_utf8_lossy(&mail.render(&message)?.formatted()).into_owned(),
            _ => format!("{}\n", post::as_json(&message)),
        };
        let dir = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let dir = if dir.is_dir() { dir } else { Path::new("/").to_owned() };
        let told = tell(&argv, &dir, &input, COMMAND_WITHIN).await;
        told.map_err(|failed| {
            let refused = matches!(failed, DeliveryError::Refused(_));
            let (DeliveryError::Away(why) | DeliveryError::Refused(why)) = failed;
            Undelivered { why, retry_after: None, refused }
        })
    }

    /// The same, while this thread waits.
    fn send(&self, message: &Notification) -> Result<(), Undelivered> {
        let ca = self.ca_file.as_deref();
        match &self.way {
            Channel::Telegram(bot) => telegram::send(bot, ca, message),
            Channel::Slack { url } => post::slack(url, ca, message),
            Channel::Ntfy { url, token, link } => post::ntfy((url, token.as_ref(), link.as_deref()), ca, message),
            Channel::Sms(form) => post::sms(form, ca, message),
            Channel::Webhook { url, secret } => post::webhook(url, secret.as_ref(), ca, message),
            Channel::Mail(mail) => match &mail.via {
                Via::Server(server) => smtp::hand_over(server, ca, mail, message),
                Via::Command(_) => Err(broken("a command is not run here")),
            },
            Channel::Desktop | Channel::Command { .. } => Err(broken("a command is not run here")),
        }
    }
}

/// A thread of its own: it ends with its deadlines, and a supervisor that stops does not wait for
/// it.
async fn in_a_thread(notifier: Notifier, message: Notification) -> Result<(), Undelivered> {
    let (done, answer) = oneshot::channel();
    let started = std::thread::Builder::new().name("notify".to_owned()).spawn(move || {
        // The receiver is gone only when the supervisor is.
        done.send(notifier.send(&message)).ok();
    });
    if let Err(e) = started {
        return Err(broken(&format!("no thread could be started: {e}")));
    }
    answer.await.unwrap_or_else(|_| Err(broken("the attempt broke off")))
}

fn broken(why: &str) -> Undelivered {
    Undelivered { why: why.to_owned(), retry_after: None, refused: false }
}

/// The desktop's own program; texts are arguments, never part of a script.
fn desktop(message: &Notification) -> Vec<String> {
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
