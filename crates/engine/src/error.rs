//! The one place where errors become a kind, a hint and an exit code. `ui` prints them.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;

use everloop_core::event::LoopEnd;
use everloop_core::op::Refusal;
use serde_json::{Value, json};

use crate::diagnostic::{ConfigError, Diagnostic};

/// How the program ends; the whole table of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Reached, or done.
    Ok = 0,
    Failed = 1,
    Usage = 2,
    /// The goal is not reached: turns, time or budget ended, or a person ended it.
    NotReached = 3,
    NeedsPerson = 4,
    /// The guard holds everything.
    Held = 5,
    Away = 6,
    BadConfig = 7,
    /// Ended by an interrupt from the keyboard.
    Interrupted = 130,
    /// Ended by a request to terminate.
    Terminated = 143,
}

impl Code {
    /// All of them, in the order of their numbers.
    pub const ALL: [Code; 10] = [
        Code::Ok,
        Code::Failed,
        Code::Usage,
        Code::NotReached,
        Code::NeedsPerson,
        Code::Held,
        Code::Away,
        Code::BadConfig,
        Code::Interrupted,
        Code::Terminated,
    ];

    /// The code with this number; another number is a failure.
    pub fn from_exit(number: u8) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Code::Failed)
    }

    /// The exit code of the process.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The meaning as the help and the man page print it.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Ok => "reached, or done",
            Code::Failed => "failed",
            Code::Usage => "invalid usage",
            Code::NotReached => "not reached: turns, time or budget ended, or it was stopped",
            Code::NeedsPerson => "waiting for a person",
            Code::Held => "held by the guard",
            Code::Away => "the supervisor is away",
            Code::BadConfig => "bad configuration",
            Code::Interrupted => "interrupted (SIGINT)",
            Code::Terminated => "terminated (SIGTERM)",
        }
    }

    /// The code for an ended loop.
    pub fn of(ending: &LoopEnd) -> Self {
        match ending {
            LoopEnd::Reached => Code::Ok,
            LoopEnd::Exhausted { .. } | LoopEnd::Stopped { .. } => Code::NotReached,
            LoopEnd::Failed { .. } => Code::Failed,
        }
    }
}

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: Code,
    /// A lower-case fragment: what was tried on what.
    pub message: String,
    /// The cause chain, outermost first.
    pub causes: Vec<String>,
    /// The next command or change.
    pub hint: Option<String>,
    /// Positions in configuration files.
    pub places: Vec<Diagnostic>,
}

impl Failure {
    /// A failure without causes, hint or places.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None, places: Vec::new() }
    }

    /// A failure with [`Code::Failed`]: the operation was tried and did not succeed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Code::Failed, message)
    }

    /// A failure with [`Code::Usage`]: the request itself is invalid.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// A failure with [`Code::BadConfig`]: a configuration file is invalid.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Code::BadConfig, message)
    }

    /// A failure with [`Code::Away`]: a supervisor, server or file is unavailable.
    pub fn away(message: impl Into<String>) -> Self {
        Self::new(Code::Away, message)
    }

    /// Sets the hint: the command or change that helps.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an error and its sources.
    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Some errors repeat their source in their own text; once is enough.
            if self.causes.last().is_none_or(|last| !last.contains(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// As text for a person, without colour, ending in a line break.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for place in &self.places {
            text.push_str(&place.render());
            if self.places.len() > 1 {
                text.push('\n');
            }
        }
        // A single position is complete in itself; several need a sum.
        if self.places.len() != 1 {
            writeln!(text, "error: {}", self.message).expect("writing to a string cannot fail");
        }
        for cause in &self.causes {
            writeln!(text, "  cause: {cause}").expect("writing to a string cannot fail");
        }
        if let Some(hint) = &self.hint {
            writeln!(text, "hint: {hint}").expect("writing to a string cannot fail");
        }
        text
    }

    /// As data for a program; `ui` adds the schema version.
    pub fn to_json(&self) -> Value {
        let of_place = || self.places.iter().find_map(|p| p.hint.as_ref());
        let mut error = json!({
            "code": self.code.number(),
            "message": self.message,
            "causes": self.causes,
            "hint": self.hint.as_ref().or_else(of_place),
        });
        if !self.places.is_empty() {
            error["places"] = self.places.iter().map(Diagnostic::to_json).collect();
        }
        json!({ "error": error })
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let message = match error.diagnostics.as_slice() {
            [one] => one.message.clone(),
            many => {
                let files: BTreeSet<&str> = many.iter().filter_map(|d| Some(d.place.as_ref()?.file.as_str())).collect();
                let within: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
                let within = if within.is_empty() { "the configuration".to_owned() } else { within.join(" and ") };
                format!("{} mistakes in {within}", many.len())
            }
        };
        Self { places: error.diagnostics, ..Self::config(message) }
    }
}

/// What helps when the ledger is gone or broken.
pub const RECOVER: &str =
    "`everloop recover --dry-run` shows what the mirror brings back, `everloop recover` rebuilds the ledger from it";

impl From<everloop_store::Error> for Failure {
    fn from(error: everloop_store::Error) -> Self {
        use everloop_store::Error as Ledger;
        let failure = Self::failed(error.to_string());
        let failure = match std::error::Error::source(&error) {
            Some(source) => failure.because(source),
            None => failure,
        };
        if error.is_broken_file() {
            return failure.hint(RECOVER);
        }
        let is_hub = |path: &std::path::Path| path.starts_with("postgres:");
        match error {
            Ledger::Refused(Refusal::Rights { .. }) => Self { code: Code::BadConfig, ..failure }.hint(
                "do it on a machine with the login of a leader, or give this login its rights: \
                 everloop mesh hub init --print-sql --role NAME",
            ),
            Ledger::Missing { path } if is_hub(&path) => failure.hint("create it: everloop mesh hub init"),
            Ledger::Older { path, .. } if is_hub(&path) => failure.hint("migrate it: everloop mesh hub migrate"),
            Ledger::Away { .. } => Self { code: Code::Away, ..failure }
                .hint("nothing is lost; try again, or check it: everloop mesh hub check"),
            Ledger::Unknown { .. } => failure.hint("check whether it took effect before trying again"),
            Ledger::Denied { .. } => Self { code: Code::BadConfig, ..failure }
                .hint("check user, password and database in the address; rights: everloop mesh hub init --print-sql"),
            Ledger::BadUrl { .. } => Self { code: Code::BadConfig, ..failure }
                .hint("write `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`"),
            Ledger::Unverified { .. } => Self { code: Code::BadConfig, ..failure }.hint(
                "add `sslmode=verify-full` to the address and join again: everloop mesh join; `--insecure-hub` accepts \
                 that anything on the way can read and change all of it",
            ),
            Ledger::OtherHub { .. } | Ledger::SetBack { .. } => Self { code: Code::NeedsPerson, ..failure }
                .hint("find out what changed the database before any node goes on; nothing was written to it"),
            Ledger::Damaged(_) => failure.hint(
                "nothing was guessed at; `everloop doctor` shows how far the journal is intact; to rebuild it from the \
                 mirror, move `ledger.db` away and run `everloop recover`",
            ),
            Ledger::Unreadable { .. } => failure.hint(RECOVER),
            Ledger::Newer { .. } => failure.hint("use the everloop that wrote it, or a newer one"),
            Ledger::Full { .. } => failure.hint("free some disk space; nothing is lost"),
            Ledger::Busy { .. } => failure.hint("try again; another everloop is writing"),
            _ => failure,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::SourceText;

    #[test]
    fn the_table_of_exit_codes_is_the_promised_one() {
        let numbers: Vec<u8> = Code::ALL.iter().map(|c| c.number()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 130, 143]);
        assert_eq!(Code::of(&LoopEnd::Reached), Code::Ok);
        assert_eq!(Code::of(&LoopEnd::Exhausted { bound: "turns".to_owned() }), Code::NotReached);
        assert_eq!(Code::of(&LoopEnd::Failed { why: "gone".to_owned() }), Code::Failed);
    }

    #[test]
    fn a_failure_prints_its_causes_and_its_hint() {
        let inner = std::io::Error::other("disk is full");
        let failure = Failure::failed("could not write `state.db`").because(&inner).hint("free some space");
        insta::assert_snapshot!(failure.render(), @r"
        error: could not write `state.db`
          cause: disk is full
        hint: free some space
        ");
        assert_eq!(failure.to_json()["error"]["code"], 1);
    }

    #[test]
    fn several_mistakes_are_summed_up_and_one_is_not() {
        let one = Diagnostic::new("unknown key `x`").hint("remove it");
        let single = Failure::from(ConfigError::from(one.clone()));
        assert_eq!(single.render(), "error: unknown key `x`\nhint: remove it\n");
        assert_eq!(single.code, Code::BadConfig);
        let both = Failure::from(ConfigError { diagnostics: vec![one.clone(), one] });
        assert!(both.render().ends_with("error: 2 mistakes in the configuration\n"), "{}", both.render());
        assert_eq!(both.to_json()["error"]["places"].as_array().map(Vec::len), Some(2));
        let source = SourceText { name: "everloop.toml".to_owned(), text: "x = 1\n".to_owned() };
        let placed = Diagnostic::new("unknown key `x`").at(&source, &(0..1));
        let named = Failure::from(ConfigError { diagnostics: vec![placed.clone(), placed] });
        assert!(named.render().ends_with("error: 2 mistakes in `everloop.toml`\n"), "{}", named.render());
    }
}
