//! `[board]`, `[mailbox]` and `[tracker]`: what a project sends to people and other programs.

use std::path::{Component, PathBuf};

use everloop_agents::channel::{Address, Auth, Channel, Receiver, SecretSource, check_address};
use everloop_engine::diagnostic::{ConfigError, Diagnostic};
use everloop_engine::projects::OutboundSpec;

use super::Config;
use super::isolation::{AccessKeys, WHOLE_PATH};
use super::keys::{BoardKeys, MailboxKeys, TrackerKeys};
use super::layer::Layer;
use super::value::{CommandLine, IsolationModeKey, List, NonEmptyText, VariableName};

/// Default number of turns between two statuses.
pub(super) const EVERY: u32 = 5;

/// The keys of a destination.
struct Said {
    command: Option<CommandLine>,
    url: Option<NonEmptyText>,
    token_env: Option<VariableName>,
    token_file: Option<NonEmptyText>,
    readable: Option<List>,
    writable: Option<List>,
    isolation: Option<IsolationModeKey>,
}

impl Config {
    /// What the project sends to people and other programs.
    pub fn outbound(&self) -> Result<OutboundSpec, ConfigError> {
        let mailbox = self.project.mailbox.typed::<MailboxKeys>()?;
        let tracker = self.project.tracker.typed::<TrackerKeys>()?;
        let MailboxKeys { command, url, token_env, token_file, every, readable, writable, isolation } = mailbox;
        let mail = Said { command, url, token_env, token_file, readable, writable, isolation };
        let TrackerKeys { command, url, token_env, token_file, readable, writable, isolation } = tracker;
        let track = Said { command, url, token_env, token_file, readable, writable, isolation };
        Ok(OutboundSpec {
            board: self.board_file()?.map(|file| self.dir.join(file)),
            every: every.map_or(EVERY, |every| every.0),
            mailbox: self.sink("mailbox", mail, &self.project.mailbox)?,
            tracker: self.sink("tracker", track, &self.project.tracker)?,
            completions: self.completions()?,
        })
    }

    fn sink(&self, section: &str, said: Said, layer: &Layer) -> Result<Option<Receiver>, Diagnostic> {
        let blame = |key: &str, what: String| {
            let mut wrong = layer.origin(key).blame(format!("`[{section}]`: {what}"));
            // An address may hold a secret.
            wrong.place.as_mut().into_iter().for_each(|place| place.hide_value());
            wrong
        };
        let file = |path: String| match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => self.dir.join(path),
        };
        let token = match (said.token_env, said.token_file) {
            (Some(_), Some(_)) => {
                let wrong = blame("token_file", "it has both `token_env` and `token_file`".to_owned());
                return Err(wrong.hint("keep one of them"));
            }
            (Some(name), None) => Some(SecretSource::Env(name.0)),
            (None, path) => path.map(|path| SecretSource::OpenFile(file(path.0))),
        };
        let access = AccessKeys {
            readable: said.readable.as_ref(),
            writable: said.writable.as_ref(),
            isolation: said.isolation,
        };
        if let (None, Some(key)) = (&said.command, access.first()) {
            return Err(blame(key, format!("`{key}` means nothing without a `command`")).hint("remove it"));
        }
        let access = access.access().map_err(|(key, what)| blame(key, what).hint(WHOLE_PATH))?;
        let channel = match (said.command, said.url) {
            (Some(_), Some(_)) => {
                return Err(blame("url", "it has both `command` and `url`".to_owned()).hint("keep one of them"));
            }
            (None, Some(url)) => match check_address(&url.0) {
                Ok(()) => Channel::Webhook { url: Address::Open(url.0), auth: token.map(Auth::Bearer) },
                Err(why) => {
                    return Err(blame("url", why).hint("write it like `url = \"https://example.org/everloop\"`"));
                }
            },
            (_, None) if token.is_some() => {
                let key = if layer.0.contains_key("token_env") { "token_env" } else { "token_file" };
                return Err(blame(key, "a token without a `url`".to_owned()).hint("add `url = \"https://…\"`"));
            }
            (Some(command), None) => Channel::Command { argv: command.0 },
            (None, None) => return Ok(None),
        };
        let (name, access) = (section.to_owned(), self.receiver_access(access));
        Ok(Some(Receiver { name, channel, ca_file: None, dir: None, access }))
    }

    /// Where the project wants its board to be written, relative to its file.
    pub fn board_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        let Some(file) = self.project.board.typed::<BoardKeys>()?.file.map(|text| PathBuf::from(text.0)) else {
            return Ok(None);
        };
        let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || file.extension().is_none_or(|e| e != "json") {
            let wrong = Diagnostic::new(format!(
                "`[board] file` has to be a `.json` file of the project, not `{}`",
                file.display()
            ));
            return Err(wrong.hint("write it like `file = \"tasks/board.json\"`").into());
        }
        Ok(Some(file))
    }
}
