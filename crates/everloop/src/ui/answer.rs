//! One answer in two forms: lines for people, data for programs.

use std::io::{self, BufRead, IsTerminal, Write};

use everloop_core::time::Time;
use everloop_engine::error::Failure;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::status::StatusStyle;
use super::{Format, Ui};

impl Ui {
    /// Prints an answer to stdout: `lines` for people, `content` (an object) for programs.
    pub fn answer(&self, lines: &[String], content: &impl Serialize) -> Result<(), Failure> {
        match self.format() {
            Format::Text => self.out_lines(lines),
            Format::Json => self.json(content),
        }
    }

    /// Whether a person can confirm; a script cannot.
    pub fn asks(&self) -> bool {
        self.format() == Format::Text && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Prints a question on stderr; a bare return means yes.
    pub fn agrees(&self, question: &str) -> Result<bool, Failure> {
        let mut stderr = io::stderr().lock();
        write!(stderr, "{} [Y/n] ", self.talk_paint().strong(question)).and_then(|()| stderr.flush())?;
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer)?;
        Ok(read > 0 && matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes"))
    }

    /// Prints a numbered list and a question on stderr; the position of the chosen line, `None` when
    /// the answer is no number of the list.
    pub fn chooses(&self, question: &str, lines: &[String]) -> Result<Option<usize>, Failure> {
        let mut stderr = io::stderr().lock();
        for (i, line) in lines.iter().enumerate() {
            writeln!(stderr, "  {}) {line}", i + 1)?;
        }
        write!(stderr, "{} [1-{}] ", self.talk_paint().strong(question), lines.len()).and_then(|()| stderr.flush())?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let number = answer.trim().parse::<usize>().ok().filter(|n| (1..=lines.len()).contains(n));
        Ok(number.map(|n| n - 1))
    }

    /// The time, zone, colours and width of listings.
    pub fn look(&self, now: Time) -> StatusStyle {
        StatusStyle { now, zone: TimeZone::system(), paint: self.paint(), width: self.width() }
    }
}
