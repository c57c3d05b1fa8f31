//! Removes secrets from a stream of bytes, also when a secret is split over chunks: known values
//! first, then what has the shape of a secret.
//!
//! - `shapes`: the keys of vendors and other forms, as data; `search`: how they are found

mod search;
mod shapes;

use aho_corasick::{AhoCorasick, MatchKind};

use search::ShapeRedactor;

/// Shorter values are words that occur by chance (`true`, `1234`); hiding them would only make
/// output unreadable.
pub const SHORTEST_SECRET: usize = 6;

/// A value that must not appear.
#[derive(Clone, Debug)]
pub struct Secret {
    /// The name in its replacement, `[redacted:NAME]`.
    pub name: String,
    pub value: Vec<u8>,
}

/// Replaces secrets in a stream. Bytes that may belong to one whose end is not there yet are held
/// until the next chunk.
#[derive(Debug)]
pub struct Redactor {
    values: ValueRedactor,
    shapes: ShapeRedactor,
}

impl Redactor {
    /// A redactor for these secrets, too short ones left out, and for all known shapes.
    pub fn new(secrets: &[Secret]) -> Self {
        Self { values: ValueRedactor::new(secrets), shapes: ShapeRedactor::default() }
    }

    /// Takes the next chunk and returns what is certain.
    pub fn push(&mut self, piece: &[u8], sink: &mut impl FnMut(&[u8])) {
        let Self { values, shapes } = self;
        values.push(piece, &mut |bytes| shapes.push(bytes, sink));
    }

    /// The stream is over: returns what was held back.
    pub fn finish(&mut self, sink: &mut impl FnMut(&[u8])) {
        let Self { values, shapes } = self;
        values.finish(&mut |bytes| shapes.push(bytes, sink));
        shapes.finish(sink);
    }
}

/// Makes what all redactors of a process share, so that processes forked from it have it.
pub fn prepare() {
    search::prepare();
}

/// Replaces known values.
#[derive(Debug)]
struct ValueRedactor {
    search: Option<AhoCorasick>,
    patterns: Vec<Vec<u8>>,
    labels: Vec<Vec<u8>>,
    held: Vec<u8>,
}

impl ValueRedactor {
    fn new(secrets: &[Secret]) -> Self {
        let mut patterns = Vec::new();
        let mut labels = Vec::new();
        for secret in secrets {
            for form in forms(&secret.value) {
                patterns.push(form);
                labels.push(format!("[redacted:{}]", secret.name).into_bytes());
            }
        }
        let search = (!patterns.is_empty())
            .then(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns).ok())
            .flatten();
        // A set of patterns too big for the automaton cannot be searched for: then nothing may
        // pass.
        Self { search, patterns, labels, held: Vec::new() }
    }

    fn push(&mut self, piece: &[u8], sink: &mut impl FnMut(&[u8])) {
        let Some(search) = &self.search else {
            if self.patterns.is_empty() {
                sink(piece);
            }
            return;
        };
        if self.held.is_empty() {
            let kept_from = pass(search, &self.labels, (piece, beginning(&self.patterns, piece)), sink);
            self.held.extend_from_slice(&piece[kept_from..]);
            return;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        let kept_from = pass(search, &self.labels, (&text, beginning(&self.patterns, &text)), sink);
        text.drain(..kept_from);
        self.held = text;
    }

    fn finish(&mut self, sink: &mut impl FnMut(&[u8])) {
        let text = std::mem::take(&mut self.held);
        if let Some(search) = &self.search {
            let done = pass(search, &self.labels, (&text, text.len()), sink);
            debug_assert_eq!(done, text.len(), "at the end nothing is kept back");
        }
    }
}

/// Redacts a whole text at once.
pub fn redact(secrets: &[Secret], text: &[u8]) -> Vec<u8> {
    let mut redactor = Redactor::new(secrets);
    let mut out = Vec::with_capacity(text.len());
    redactor.push(text, &mut |bytes| out.extend_from_slice(bytes));
    redactor.finish(&mut |bytes| out.extend_from_slice(bytes));
    out
}

/// A text without what has the shape of a secret: for what is kept and came from no account.
pub fn without_secrets(text: &str) -> String {
    String::from_utf8_lossy(&redact(&[], text.as_bytes())).into_owned()
}

/// The value as it is, and as it appears inside a JSON string.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let value = value.trim_ascii();
    if value.len() < SHORTEST_SECRET {
        return Vec::new();
    }
    let mut forms = vec![value.to_vec()];
    if let Ok(text) = std::str::from_utf8(value)
        && let Ok(quoted) = serde_json::to_string(text)
        && quoted.len() != value.len() + 2
    {
        forms.push(quoted.as_bytes()[1..quoted.len() - 1].to_vec());
    }
    forms
}

/// Start of the longest suffix of `text` that could grow into a secret.
fn beginning(patterns: &[Vec<u8>], text: &[u8]) -> usize {
    let held =
        patterns.iter().filter_map(|p| (1..p.len().min(text.len() + 1)).rev().find(|&k| text.ends_with(&p[..k]))).max();
    text.len() - held.unwrap_or(0)
}

/// Passes on `text` up to `sure` without its secrets; returns where the rest begins.
fn pass(search: &AhoCorasick, labels: &[Vec<u8>], part: (&[u8], usize), sink: &mut impl FnMut(&[u8])) -> usize {
    let (text, sure) = part;
    let mut done = 0;
    for found in search.find_iter(text).take_while(|m| m.start() < sure) {
        if found.start() > done {
            sink(&text[done..found.start()]);
        }
        sink(&labels[found.pattern().as_usize()]);
        done = found.end();
    }
    if done < sure {
        sink(&text[done..sure]);
        done = sure;
    }
    done
}

#[cfg(test)]
mod tests;
