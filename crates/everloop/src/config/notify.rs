//! `[[notify]]`: where tickets are sent, how, and when not. Secrets are named here, never read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use everloop_agents::channel::{
    Address, Auth, Channel, Encryption, Form, Mail, Receiver, ReceiverAccess, SecretSource, Server, Via,
};
use everloop_agents::channel::{check_address, is_address, telegram};
use everloop_core::isolation::CommandAccess;
use everloop_core::outbound::tickets::{REPEATS, Route, Severity};
use everloop_engine::diagnostic::{ConfigError, Diagnostic};
use everloop_engine::projects::NotifierSpec;

use super::isolation::{AccessKeys, WHOLE_PATH};
use super::layer::{Layer, Origin};
use super::settings::section;
use super::value::{
    Amount, CommandLine, Flag, Hours, IsolationModeKey, List, NonEmptyText, NotifyKind, PlainVariables, VariableName,
    Weight, Weights,
};
use super::{Config, ResolveContext};

section! {
    /// A recipient of tickets. The available keys depend on the kind.
    #[schemars(extend("required" = ["kind"]))]
    pub struct NotifyKeys;

    /// How it is called in `everloop ticket notifiers` and `status`. Without it, like its kind.
    name: NonEmptyText;

    /// How tickets are sent.
    kind: NotifyKind;

    /// Only tickets that matter at least so much: `info`, `warning` or `critical`.
    min_severity: Weight = Severity::Info.label();

    /// Only tickets of these weights.
    only: Weights;

    /// Hours in which only critical tickets are sent: `"22:00-07:00"` in local time, or with an
    /// offset: `"22:00-07:00+02:00"`.
    quiet_hours: Hours;

    /// How often a ticket is repeated at most, after 15 minutes, 30, 60 and so on up to 4 hours.
    /// `everloop ticket ack` ends it.
    repeats: Amount = i64::from(REPEATS);

    /// `telegram`, `ntfy`, `sms`, `webhook`: where to, if not the usual place.
    url: NonEmptyText;

    /// `slack`, `sms`, `webhook`: the variable that holds the address, where the address itself is
    /// the secret.
    url_env: VariableName;

    /// The same in the first line of a file that only you can read.
    url_file: NonEmptyText;

    /// `telegram`, `ntfy`, `sms`: the variable that holds the token.
    token_env: VariableName;

    /// The same in the first line of a file that only you can read.
    token_file: NonEmptyText;

    /// `telegram`: the number of the chat (or `@name` of a channel). All of its members can answer.
    chat: NonEmptyText;

    /// `telegram`: whether buttons and replies are listened to.
    answers: Flag = true;

    /// `ntfy`: the topic.
    topic: NonEmptyText;

    /// `ntfy`: where a press on the message leads; `{ticket}` is replaced.
    link: NonEmptyText;

    /// `mail`: addresses; `sms`: numbers, for `{to}`.
    to: List;

    /// `mail`: from which address.
    from: NonEmptyText;

    /// `mail`: the server: `"smtp://HOST:587"` (STARTTLS) or `"smtps://HOST:465"`.
    smtp: NonEmptyText;

    /// `mail`, `sms`: the name to log in with.
    user: NonEmptyText;

    /// `mail`, `sms`: the variable that holds the password.
    password_env: VariableName;

    /// The same in the first line of a file that only you can read.
    password_file: NonEmptyText;

    /// `webhook`: the variable that holds the key with which requests are signed
    /// (`X-Everloop-Signature: sha256=…`, HMAC).
    secret_env: VariableName;

    /// The same in the first line of a file that only you can read.
    secret_file: NonEmptyText;

    /// `sms`: the fields of the request; `{to}`, `{text}` and `{key}` are replaced.
    fields: PlainVariables;

    /// `sms`: whether the fields travel as JSON instead of as a form.
    json: Flag;

    /// `command`: gets the message as JSON on standard input; `mail`: gets the mail, instead of
    /// `smtp`.
    command: CommandLine;

    /// `command`, `mail`: paths that the command may read although they hold secrets:
    /// `["~/.ssh"]`, `["~/.config/gh"]`.
    readable: List;

    /// `command`, `mail`: paths that the command may write, besides its own folder for temporary
    /// files.
    writable: List;

    /// `command`, `mail`, `desktop`: by which means the command is isolated, where it differs from
    /// `[isolation] mode`.
    isolation: IsolationModeKey;

    /// A PEM file of certificates that are trusted besides those of this machine.
    ca_file: NonEmptyText;
}

/// A section, and what it is read with.
struct Given<'a> {
    keys: &'a NotifyKeys,
    layer: &'a Layer,
    place: &'a Origin,
    name: &'a str,
    moment: &'a ResolveContext,
}

impl Config {
    /// The user's notifiers, which get all tickets, and the project's, which get those of its
    /// loops.
    pub fn notifiers(&self, moment: &ResolveContext) -> Result<(Vec<NotifierSpec>, Vec<NotifierSpec>), ConfigError> {
        let mut wrong = Vec::new();
        let mut read = |sections: &[(Layer, Origin)]| -> Vec<NotifierSpec> {
            let mut taken = BTreeSet::new();
            let mut found = Vec::new();
            for (layer, place) in sections {
                match self.notifier(layer, place, moment) {
                    Ok(notify) if !taken.insert(notify.receiver.name.clone()) => {
                        let message = format!("two notifiers are called `{}`", notify.receiver.name);
                        wrong.push(place.blame(message).hint("give each a `name` of its own"));
                    }
                    Ok(notify) => found.push(notify),
                    Err(diagnostic) => wrong.push(diagnostic),
                }
            }
            found
        };
        let (user, project) = (read(&self.user.notify), read(&self.project.notify));
        ConfigError::unless_empty(wrong)?;
        Ok((user, project))
    }

    fn notifier(&self, layer: &Layer, place: &Origin, moment: &ResolveContext) -> Result<NotifierSpec, Diagnostic> {
        let (mut spec, own) = one(layer, place, moment)?;
        spec.receiver.access = self.receiver_access(own);
        Ok(spec)
    }
}

/// A notifier, and what its section opens for its command.
fn one(layer: &Layer, place: &Origin, moment: &ResolveContext) -> Result<(NotifierSpec, CommandAccess), Diagnostic> {
    let keys: NotifyKeys = layer.typed()?;
    let Some(kind) = keys.kind else {
        return Err(place.blame("`[[notify]]` has no `kind`").hint("add `kind = \"desktop\"`"));
    };
    let name = keys.name.as_ref().map_or(kind.label(), |text| text.0.trim()).to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
        let message = format!("`{name}` is not a good name");
        return Err(layer.origin("name").blame(message).hint("use up to 40 letters, digits, `-` and `_`"));
    }
    let given = Given { keys: &keys, layer, place, name: &name, moment };
    given.no_others(kind)?;
    let channel = given.channel(kind)?;
    let route = Route {
        min_severity: keys.min_severity.map_or(Severity::Info, |weight| weight.0),
        only: keys.only.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        quiet_hours: keys.quiet_hours.map(|hours| hours.0),
        repeats: keys.repeats.map_or(REPEATS, |n| u32::try_from(n.0).unwrap_or(u32::MAX)),
    };
    let ca_file = keys.ca_file.as_ref().map(|text| given.path(&text.0));
    let access =
        AccessKeys { readable: keys.readable.as_ref(), writable: keys.writable.as_ref(), isolation: keys.isolation };
    let access = access.access().map_err(|(key, what)| layer.origin(key).blame(what).hint(WHOLE_PATH))?;
    let receiver = Receiver { name, channel, ca_file, dir: None, access: ReceiverAccess::default() };
    Ok((NotifierSpec { receiver, route }, access))
}

/// Keys that every kind has.
const ALWAYS: [&str; 7] = ["name", "kind", "min_severity", "only", "quiet_hours", "repeats", "ca_file"];

/// Keys that only some kinds have.
fn own_keys(kind: NotifyKind) -> &'static [&'static str] {
    match kind {
        NotifyKind::Telegram => &["url", "token_env", "token_file", "chat", "answers"],
        NotifyKind::Slack => &["url_env", "url_file"],
        NotifyKind::Ntfy => &["url", "topic", "token_env", "token_file", "link"],
        NotifyKind::Sms => &[
            "url",
            "url_env",
            "url_file",
            "to",
            "fields",
            "json",
            "token_env",
            "token_file",
            "user",
            "password_env",
            "password_file",
        ],
        NotifyKind::Mail => &[
            "to",
            "from",
            "smtp",
            "user",
            "password_env",
            "password_file",
            "command",
            "readable",
            "writable",
            "isolation",
        ],
        NotifyKind::Webhook => &["url", "url_env", "url_file", "secret_env", "secret_file"],
        NotifyKind::Desktop => &["isolation"],
        NotifyKind::Command => &["command", "readable", "writable", "isolation"],
    }
}

impl Given<'_> {
    /// A key that means nothing here is a mistake, not a wish.
    fn no_others(&self, kind: NotifyKind) -> Result<(), Diagnostic> {
        let known = own_keys(kind);
        match self.layer.0.keys().find(|key| !ALWAYS.contains(&key.as_str()) && !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let message = format!("`{key}` means nothing for a notifier of the kind `{}`", kind.label());
                let hint =
                    if known.is_empty() { "remove it".to_owned() } else { format!("it has: {}", known.join(", ")) };
                Err(self.hidden(key, message).hint(hint))
            }
        }
    }

    fn channel(&self, kind: NotifyKind) -> Result<Channel, Diagnostic> {
        let keys = self.keys;
        match kind {
            NotifyKind::Telegram => {
                let base = keys.url.as_ref().map_or(telegram::BASE, |text| text.0.as_str());
                Ok(Channel::Telegram(telegram::Bot {
                    base: self.address("url", base)?,
                    token: self.must_secret("token")?,
                    chat: self.must("chat", keys.chat.as_ref())?,
                    answers: keys.answers.is_none_or(|flag| flag.0),
                }))
            }
            NotifyKind::Slack => Ok(Channel::Slack { url: self.must_secret("url")? }),
            NotifyKind::Ntfy => {
                let base = keys.url.as_ref().map_or("https://ntfy.sh", |text| text.0.trim_end_matches('/'));
                let topic = self.must("topic", keys.topic.as_ref())?;
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if !topic.chars().all(plain) {
                    return Err(self.hidden("topic", "`topic` has characters that no topic has".to_owned()));
                }
                let url = self.address("url", &format!("{base}/{topic}"))?;
                let link = keys.link.as_ref().map(|text| text.0.clone());
                Ok(Channel::Ntfy { url, token: self.secret("token")?, link })
            }
            NotifyKind::Sms => self.sms().map(Channel::Sms),
            NotifyKind::Mail => self.mail().map(Channel::Mail),
            NotifyKind::Webhook => {
                let auth = self.secret("secret")?.map(Auth::Signature);
                Ok(Channel::Webhook { url: self.location()?, auth })
            }
            NotifyKind::Desktop => Ok(Channel::Desktop),
            NotifyKind::Command => {
                let command = keys.command.as_ref().ok_or_else(|| self.lacks("command", "[\"my-program\"]"))?;
                Ok(Channel::Command { argv: command.0.clone() })
            }
        }
    }

    fn sms(&self) -> Result<Form, Diagnostic> {
        let keys = self.keys;
        let fields =
            keys.fields.as_ref().ok_or_else(|| self.lacks("fields", "{ To = \"{to}\", Body = \"{text}\" }"))?;
        if !fields.0.values().any(|value| value.contains("{text}")) {
            let message = "no field of the SMS has `{text}`, so the message would be empty".to_owned();
            return Err(self.hidden("fields", message).hint("write it like `{ To = \"{to}\", Body = \"{text}\" }`"));
        }
        let auth = match (self.secret("token")?, keys.user.as_ref(), self.secret("password")?) {
            (Some(token), None, None) => Some(Auth::Bearer(token)),
            (None, Some(user), Some(password)) => Some(Auth::Basic { user: user.0.clone(), password }),
            (None, None, None) => None,
            _ => {
                let message = "an SMS gateway takes either a token or a user with a password".to_owned();
                return Err(self.place.blame(message).hint("keep one of them"));
            }
        };
        Ok(Form {
            url: self.location()?,
            fields: fields.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            to: keys.to.as_ref().map(|list| list.0.join(",")).unwrap_or_default(),
            json: keys.json.is_some_and(|flag| flag.0),
            auth,
        })
    }

    fn mail(&self) -> Result<Mail, Diagnostic> {
        let keys = self.keys;
        let to = keys.to.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        if to.is_empty() {
            return Err(self.lacks("to", "[\"me@example.com\"]"));
        }
        let from = self.must("from", keys.from.as_ref())?;
        for (key, address) in to.iter().map(|to| ("to", to)).chain([("from", &from)]) {
            if !is_address(address) {
                let message = format!("`{}` is no plain address", everloop_engine::text::clean(address));
                return Err(self.layer.origin(key).blame(message).hint("write it like `me@example.com`"));
            }
        }
        let via = match (&keys.command, &keys.smtp) {
            (Some(command), None) => Via::Command(command.0.clone()),
            (None, Some(server)) => Via::Server(self.server(&server.0)?),
            (Some(_), Some(_)) => {
                let message = "a mail leaves either by `smtp` or by `command`".to_owned();
                return Err(self.layer.origin("command").blame(message).hint("keep one of them"));
            }
            (None, None) => return Err(self.lacks("smtp", "smtp://HOST:587")),
        };
        Ok(Mail { to, from, via })
    }

    fn server(&self, text: &str) -> Result<Server, Diagnostic> {
        let bad = || {
            let hint = "write it like `smtp://mail.example.com:587` or `smtps://mail.example.com:465`";
            self.hidden("smtp", "`smtp` is no address of a mail server".to_owned()).hint(hint)
        };
        let (encryption, rest, usual) = match text.trim().split_once("://") {
            Some(("smtp", rest)) => (Encryption::Start, rest, 587),
            Some(("smtps", rest)) => (Encryption::Whole, rest, 465),
            _ => return Err(bad()),
        };
        let (host, port) = match rest.trim_end_matches('/').rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
            None => (rest.trim_end_matches('/'), usual),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad());
        }
        let login = match (&self.keys.user, self.secret("password")?) {
            (Some(user), Some(password)) => Some((user.0.clone(), password)),
            (None, None) => None,
            (Some(_), None) => return Err(self.lacks("password_env", "MAIL_PASSWORD")),
            (None, Some(_)) => return Err(self.lacks("user", "me@example.com")),
        };
        Ok(Server { host: host.to_owned(), port, encryption, login })
    }

    /// An address in the open, or one that is a secret.
    fn location(&self) -> Result<Address, Diagnostic> {
        match (self.keys.url.as_ref(), self.secret("url")?) {
            (Some(url), None) => Ok(Address::Open(self.address("url", &url.0)?)),
            (None, Some(secret)) => Ok(Address::Hidden(secret)),
            (Some(_), Some(_)) => {
                Err(self.hidden("url", "the address is given twice".to_owned()).hint("keep one of them"))
            }
            (None, None) => Err(self.lacks("url_env", "MY_URL")),
        }
    }

    fn address(&self, key: &str, url: &str) -> Result<String, Diagnostic> {
        check_address(url).map_err(|why| self.hidden(key, format!("`{key}`: {why}")))?;
        Ok(url.trim().to_owned())
    }

    /// `NAME_env` or `NAME_file`.
    fn secret(&self, what: &str) -> Result<Option<SecretSource>, Diagnostic> {
        let keys = self.keys;
        let (env, file) = match what {
            "token" => (&keys.token_env, &keys.token_file),
            "url" => (&keys.url_env, &keys.url_file),
            "password" => (&keys.password_env, &keys.password_file),
            _ => (&keys.secret_env, &keys.secret_file),
        };
        match (env, file) {
            (Some(env), None) => Ok(Some(SecretSource::Env(env.0.clone()))),
            (None, Some(file)) => Ok(Some(SecretSource::File(self.path(&file.0)))),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                let message = format!("both `{what}_env` and `{what}_file` are there");
                Err(self.hidden(&format!("{what}_file"), message).hint("keep one of them"))
            }
        }
    }

    fn must_secret(&self, what: &str) -> Result<SecretSource, Diagnostic> {
        self.secret(what)?.ok_or_else(|| self.lacks(&format!("{what}_env"), "NAME_OF_A_VARIABLE"))
    }

    fn must(&self, key: &str, value: Option<&NonEmptyText>) -> Result<String, Diagnostic> {
        value.map(|text| text.0.trim().to_owned()).ok_or_else(|| self.lacks(key, "…"))
    }

    fn path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), &self.moment.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        }
    }

    fn lacks(&self, key: &str, example: &str) -> Diagnostic {
        let example = if example.starts_with(['[', '{']) { example.to_owned() } else { format!("\"{example}\"") };
        let message = format!("notifier `{}` has no `{key}`", self.name);
        self.place.blame(message).hint(format!("add `{key} = {example}`"))
    }

    /// What stands behind a key may be a secret by mistake.
    fn hidden(&self, key: &str, message: String) -> Diagnostic {
        let mut diagnostic = self.layer.origin(key).blame(message);
        diagnostic.place.as_mut().into_iter().for_each(|place| place.hide_value());
        diagnostic
    }
}
