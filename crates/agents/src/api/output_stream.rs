//! The output of the API agent: one record per line, without secrets. Text arrives in fragments and
//! leaves in lines.

use std::io::Write;
use std::time::{Duration, Instant};

use everloop_core::stream::AgentEvent;

use crate::redact::{Redactor, Secret};

/// Text waits this long for the rest of its line, so that progress is visible and a log stays
/// readable.
const SPEAK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of text in one record.
const MOST_TEXT: usize = 8 << 10;
/// While the model thinks or writes a call, the output shows this often that bytes still arrive.
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// The stream of one turn.
pub(super) struct OutputStream<'a> {
    out: &'a mut dyn Write,
    redactor: Redactor,
    pending: String,
    spoke: Instant,
    heard: bool,
}

impl<'a> OutputStream<'a> {
    pub(super) fn new(out: &'a mut dyn Write, secrets: &[Secret]) -> Self {
        let redactor = Redactor::new(secrets);
        Self { out, redactor, pending: String::new(), spoke: Instant::now(), heard: true }
    }

    /// Whether the output is still open. If not, further work would be lost.
    pub(super) fn is_heard(&self) -> bool {
        self.heard
    }

    /// Writes one record, after all text that came before it.
    pub(super) fn say(&mut self, said: &AgentEvent) {
        self.flush();
        self.write(said);
    }

    /// Takes a fragment of the model's text.
    pub(super) fn words(&mut self, crumb: &str) {
        self.pending.push_str(crumb);
        while self.pending.len() >= MOST_TEXT
            && let Some(end) = self.last_blank()
        {
            self.speak(end);
        }
        if self.spoke.elapsed() >= SPEAK_EVERY
            && let Some(end) = self.pending.rfind('\n')
        {
            self.speak(end + 1);
        }
    }

    /// Writes pending text, before another record or at the end.
    pub(super) fn flush(&mut self) {
        self.speak(self.pending.len());
    }

    /// Bytes without content arrived: repeats the known record now and then, as a sign of liveness.
    pub(super) fn beat(&mut self, known: &AgentEvent) {
        if self.spoke.elapsed() >= BEAT_EVERY {
            self.write(known);
        }
    }

    /// The position after the last blank that fits: a secret has none, so none is split.
    fn last_blank(&self) -> Option<usize> {
        let head = self.pending.char_indices().take_while(|(at, _)| *at < MOST_TEXT);
        head.filter(|(_, c)| c.is_whitespace()).last().map(|(at, c)| at + c.len_utf8())
    }

    fn speak(&mut self, end: usize) {
        if end == 0 {
            return;
        }
        let rest = self.pending.split_off(end);
        let text = std::mem::replace(&mut self.pending, rest);
        self.write(&AgentEvent::Text { text });
    }

    fn write(&mut self, said: &AgentEvent) {
        self.spoke = Instant::now();
        let Ok(line) = serde_json::to_vec(said) else { return };
        let mut safe = Vec::with_capacity(line.len() + 1);
        self.redactor.push(&line, &mut |bytes| safe.extend_from_slice(bytes));
        self.redactor.finish(&mut |bytes| safe.extend_from_slice(bytes));
        safe.push(b'\n');
        if self.out.write_all(&safe).and_then(|()| self.out.flush()).is_err() {
            self.heard = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(crumbs: &[&str]) -> Vec<AgentEvent> {
        let mut out = Vec::new();
        let secret = Secret { name: "KEY".to_owned(), value: b"sk-0123456789".to_vec() };
        let mut output = OutputStream::new(&mut out, &[secret]);
        for crumb in crumbs {
            output.words(crumb);
        }
        output.flush();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn a_secret_in_crumbs_is_not_said() {
        let said = spoken(&["the key is sk-01", "2345", "6789, is it?\n"]);
        assert_eq!(said, [AgentEvent::Text { text: "the key is [redacted:KEY], is it?\n".to_owned() }]);
    }

    #[test]
    fn words_are_cut_at_blanks() {
        let line = format!("{} sk-0123456789 {}", "x".repeat(MOST_TEXT - 6), "ü ".repeat(MOST_TEXT));
        let crumbs: Vec<String> = line.chars().map(String::from).collect();
        let said = spoken(&crumbs.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(said.len() > 2, "{}", said.len());
        let all: String =
            said.iter().map(|s| if let AgentEvent::Text { text } = s { text.as_str() } else { "" }).collect();
        assert_eq!(all, line.replace("sk-0123456789", "[redacted:KEY]"));
    }
}
