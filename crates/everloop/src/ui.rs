//! The only place that prints. stdout is data, stderr is talk.
//!
//! - [`text`]: what may be printed and how wide it is; [`paint`]: colours; [`quantities`]: times
//!   and money
//! - [`table`], [`board`], [`status`], [`now`], [`summary`], [`events`], [`agents`], [`usage`],
//!   [`quarantine`], [`sessions`]: what people read
//! - `brief`: the journal with one line per turn
//! - [`answers`]: the same for programs, where it is more than plain data
//! - [`live`]: the view that stays in place while a loop runs; [`svg`]: a picture of a terminal
//!
//! Everything but [`Ui`] and [`live::Live`] is a pure function from state to text.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use everloop_engine::error::Failure;
use serde::Serialize;

pub mod agents;
mod answer;
pub mod answers;
pub mod board;
mod brief;
pub mod events;

pub mod isolation;
pub mod live;
pub mod mesh;
pub mod now;
pub mod paint;
pub mod persona;
pub mod quarantine;
pub mod rhythm;
pub mod sessions;
pub mod status;
pub mod stream;
pub mod summary;
pub mod svg;
pub mod table;
pub mod transcript;

pub mod usage;

pub use brief::{EventLines, LogDetail};
pub use events::event_line;
pub use everloop_engine::{quantities, text};
pub use paint::Paint;
pub use summary::summary;

use live::Live;
use paint::TextSink;

/// Version of everything that `--json` prints.
pub const SCHEMA_VERSION: u32 = 1;
/// The width without a terminal.
const DEFAULT_WIDTH: usize = 80;
/// Prose wider than this is hard to read; a narrower terminal than the least is not laid out for.
const WIDTH_RANGE: std::ops::RangeInclusive<usize> = 20..=160;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// The terminal, or whatever replaces it.
#[derive(Debug)]
pub struct Ui {
    format: Format,
    out_paint: Paint,
    talk_paint: Paint,
    /// The width of `COLUMNS`, used without a terminal.
    columns: Option<usize>,
    stderr: io::Stderr,
    closed: AtomicBool,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    content: &'a T,
}

impl Ui {
    /// Reads the streams and the environment of this process.
    pub fn new(format: Format) -> Self {
        let var = |name: &str| std::env::var(name).ok();
        Self {
            format,
            out_paint: Paint::wanted(TextSink::of(&io::stdout()), var),
            talk_paint: Paint::wanted(TextSink::of(&io::stderr()), var),
            columns: var("COLUMNS").and_then(|columns| columns.parse().ok()),
            stderr: io::stderr(),
            closed: AtomicBool::new(false),
        }
    }

    /// The form of the output.
    pub fn format(&self) -> Format {
        self.format
    }

    pub fn paint(&self) -> Paint {
        self.out_paint
    }

    pub fn talk_paint(&self) -> Paint {
        self.talk_paint
    }

    /// Cells in a line of the terminal.
    pub fn width(&self) -> usize {
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        width.or(self.columns).unwrap_or(DEFAULT_WIDTH).clamp(*WIDTH_RANGE.start(), *WIDTH_RANGE.end())
    }

    /// Prints data to stdout, with a line break behind it. A closed reader is no failure: see
    /// [`Ui::closed`].
    pub fn out(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(Failure::failed("cannot write to stdout").because(&error)),
        }
    }

    /// Whether the reader of stdout is closed; endless output should end then.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn out_lines(&self, lines: &[String]) -> Result<(), Failure> {
        if lines.is_empty() { Ok(()) } else { self.out(&lines.join("\n")) }
    }

    /// Prints an object as JSON to stdout, its version first: one line, or readable on a terminal.
    pub fn json(&self, content: &impl Serialize) -> Result<(), Failure> {
        self.out(&to_json(content, io::stdout().is_terminal())?)
    }

    /// Prints what was done: a line for people, an object for programs.
    pub fn said(&self, text: &str, object: &impl Serialize) -> Result<(), Failure> {
        match self.format {
            Format::Text => self.out(text),
            Format::Json => self.json(object),
        }
    }

    /// Prints to stderr, with a line break behind it. A failure of stderr cannot be reported.
    pub fn talk(&self, text: &str) {
        let mut stderr = self.stderr.lock();
        drop(writeln!(stderr, "{text}"));
    }

    /// Prints a warning to stderr.
    pub fn warn(&self, text: &str) {
        self.talk(&format!("{} {}", self.talk_paint.warn("warning:"), text::clean(text)));
    }

    /// Prints why a command failed; as JSON on stdout for programs.
    pub fn failure(&self, failure: &Failure) {
        if self.format == Format::Json && self.json(&failure.to_json()).is_ok() {
            return;
        }
        let text = failure.render();
        let painted = text.lines().map(|line| self.paint_failure(line)).collect::<Vec<_>>();
        self.talk(&painted.join("\n"));
    }

    fn paint_failure(&self, line: &str) -> String {
        let paint = self.talk_paint;
        match (line.strip_prefix("error:"), line.strip_prefix("hint:")) {
            (Some(rest), _) => format!("{}{}", paint.bad("error:"), text::clean(rest)),
            (_, Some(rest)) => format!("{}{}", paint.good("hint:"), text::clean(rest)),
            (None, None) => text::clean(line),
        }
    }

    /// The view that stays in place; `None` when stderr is no terminal or the output is for
    /// programs.
    pub fn live(&self) -> Option<Live<io::Stderr>> {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let able = self.format == Format::Text && io::stderr().is_terminal() && !dumb;
        able.then(|| Live::new(io::stderr()))
    }
}

/// Something with fields as JSON, its version first.
pub fn to_json(content: &impl Serialize, readable: bool) -> Result<String, Failure> {
    let content = Versioned { schema_version: SCHEMA_VERSION, content };
    let text = if readable { serde_json::to_string_pretty(&content) } else { serde_json::to_string(&content) };
    text.map_err(|error| Failure::failed("cannot write this as JSON").because(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_carries_its_version_first() {
        let text = to_json(&serde_json::json!({ "loops": [1] }), false).expect("an object has a JSON form");
        assert_eq!(text, r#"{"schema_version":1,"loops":[1]}"#);
        assert!(to_json(&[1, 2], false).is_err(), "a bare list has no place for a version");
        let error = to_json(&Failure::usage("no such verb").hint("see --help").to_json(), false);
        let error = error.expect("failures have a JSON form");
        assert!(error.starts_with(r#"{"schema_version":1,"error":{"#) && error.contains(r#""code":2"#), "{error}");
    }

    #[test]
    fn messages_with_terminal_codes_are_disarmed() {
        let ui = Ui { talk_paint: Paint::On, ..Ui::new(Format::Text) };
        assert_eq!(ui.paint_failure("error: \u{1b}]0;x\u{7}bad"), "\u{1b}[31merror:\u{1b}[0m bad");
    }
}
