//! Finds secrets by their shape in a stream. Bytes that may belong to one whose end is not there yet
//! are held until the next chunk.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::shapes::{Alphabet, LONGEST, Rest, SHAPES, Shape};

/// Bytes before the present ones that are remembered: enough for the number of a bot.
const BEFORE: usize = 16;
/// Bytes that are held at most: a private key of any usual size. Of a longer one the beginning is
/// removed.
const MOST_HELD: usize = 32 << 10;
/// A longer word is no password of an address, and no value of a name.
const LONGEST_PASSWORD: usize = 256;
/// Passwords that documents use in examples.
const EXAMPLES: &[&[u8]] = &[b"password", b"PASSWORD", b"pass", b"secret", b"xxx", b"xxxx", b"xxxxx", b"pwd"];

/// Replaces secrets of known shapes.
#[derive(Debug, Default)]
pub(super) struct ShapeRedactor {
    held: Vec<u8>,
    /// The last bytes that were passed on, as they came.
    before: Vec<u8>,
}

impl ShapeRedactor {
    /// Takes the next chunk and returns what is certain.
    pub(super) fn push(&mut self, piece: &[u8], sink: &mut impl FnMut(&[u8])) {
        if self.held.is_empty() {
            let kept_from = self.pass(piece, Ending::Open, sink);
            self.held.extend_from_slice(&piece[kept_from..]);
            return;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        let kept_from = self.pass(&text, Ending::Open, sink);
        text.drain(..kept_from);
        self.held = text;
    }

    /// The stream is over: returns what was held back.
    pub(super) fn finish(&mut self, sink: &mut impl FnMut(&[u8])) {
        let text = std::mem::take(&mut self.held);
        self.pass(&text, Ending::Final, sink);
        self.before.clear();
    }

    /// Passes on what is certain, without its secrets; returns where the rest begins.
    fn pass(&mut self, text: &[u8], ending: Ending, sink: &mut impl FnMut(&[u8])) -> usize {
        let (mut done, mut at) = (0, 0);
        let sure = loop {
            let Some(found) = beginnings().find(Input::new(text).span(at..text.len())) else {
                let begun = if ending == Ending::Open { begun(text) } else { 0 };
                break text.len() - begun.min(text.len() - done);
            };
            let shape = &SHAPES[found.pattern().as_usize()];
            let held = text.len() - found.start();
            let ending = if held > MOST_HELD { Ending::Final } else { ending };
            let here = Here { before: &self.before, text, begin: found.range(), ending };
            match here.look(shape) {
                Found::Nothing => at = found.start() + 1,
                Found::Secret(secret) => {
                    if done < secret.start {
                        sink(&text[done..secret.start]);
                    }
                    sink(format!("[redacted:{}]", shape.name).as_bytes());
                    (done, at) = (secret.end, secret.end);
                }
                Found::Unclear => break found.start().max(done),
            }
        };
        if done < sure {
            sink(&text[done..sure]);
        }
        self.remember(&text[..sure]);
        sure
    }

    fn remember(&mut self, passed: &[u8]) {
        self.before.extend_from_slice(&passed[passed.len().saturating_sub(BEFORE)..]);
        let extra = self.before.len().saturating_sub(BEFORE);
        self.before.drain(..extra);
    }
}

/// Makes what is made when first used.
pub(super) fn prepare() {
    beginnings();
    begun(b"");
}

/// The beginnings of all shapes, in any case; made when first used.
fn beginnings() -> &'static AhoCorasick {
    static ALL: OnceLock<AhoCorasick> = OnceLock::new();
    ALL.get_or_init(|| {
        let all = SHAPES.iter().map(|shape| shape.begin);
        let builder =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(true).build(all);
        builder.expect("a hundred short patterns are within every limit")
    })
}

/// Length of the longest suffix of `text` that could grow into the beginning of a shape.
fn begun(text: &[u8]) -> usize {
    static PARTS: OnceLock<HashSet<Vec<u8>>> = OnceLock::new();
    let parts = PARTS.get_or_init(|| {
        let begins = SHAPES.iter().map(|shape| shape.begin.to_ascii_lowercase().into_bytes());
        begins.flat_map(|begin| (1..begin.len()).map(move |k| begin[..k].to_vec())).collect()
    });
    let longest = SHAPES.iter().map(|shape| shape.begin.len()).max().unwrap_or(0).min(text.len() + 1);
    let end = text[text.len() + 1 - longest.max(1)..].to_ascii_lowercase();
    (1..=end.len()).rev().find(|k| parts.contains(&end[end.len() - k..])).unwrap_or(0)
}

/// Whether more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    Final,
}

/// What stands at the beginning of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// What follows does not fit the shape.
    Nothing,
    Secret(Range<usize>),
    /// The text ends before it is clear.
    Unclear,
}

/// A beginning of a shape in a text.
struct Here<'a> {
    before: &'a [u8],
    text: &'a [u8],
    begin: Range<usize>,
    ending: Ending,
}

impl Here<'_> {
    fn look(&self, shape: &Shape) -> Found {
        match shape.rest {
            Rest::Run(alphabet, least, most) => self.run(shape, alphabet, (least, most)),
            Rest::Mixed(alphabet, least, most) => match self.run(shape, alphabet, (least, most)) {
                Found::Secret(secret) if !is_mixed(&self.text[self.begin.end..secret.end]) => Found::Nothing,
                found => found,
            },
            Rest::Jwt => self.jwt(shape),
            Rest::Pem => self.pem(),
            Rest::UrlPassword => self.url_password(),
            Rest::Value(least) => self.value(least),
            Rest::BotToken => self.bot_token(shape),
            Rest::ClientSecret => self.client_secret(shape),
        }
    }

    /// Nothing is known yet, or nothing comes any more.
    fn open(&self) -> Found {
        if self.ending == Ending::Open { Found::Unclear } else { Found::Nothing }
    }

    /// Where the first byte that is not of this kind stands; the end of the text if there is none.
    fn while_is(&self, from: usize, is: impl Fn(u8) -> bool) -> usize {
        self.text[from..].iter().position(|byte| !is(*byte)).map_or(self.text.len(), |count| from + count)
    }

    /// The byte that stands `back` bytes before the beginning.
    fn back(&self, back: usize) -> Option<u8> {
        match self.begin.start.checked_sub(back) {
            Some(at) => self.text.get(at).copied(),
            None => self.before.len().checked_sub(back - self.begin.start).map(|at| self.before[at]),
        }
    }

    /// A key of a vendor has no letter before it, except that of an escape.
    fn stands_alone(&self) -> bool {
        let Some(last) = self.back(1) else { return true };
        if !last.is_ascii_alphanumeric() && last != b'_' {
            return true;
        }
        let is = |back: usize, byte: u8| self.back(back) == Some(byte);
        let escape = b"ntrbf".contains(&last) && is(2, b'\\') || is(3, b'%') || is(5, b'u') && is(6, b'\\');
        let colour = || {
            let part = |byte: u8| byte.is_ascii_digit() || byte == b';';
            let mut bytes = (2..=BEFORE).map_while(|back| self.back(back)).skip_while(|byte| part(*byte));
            bytes.next() == Some(b'[')
        };
        escape || last == b'm' && colour()
    }

    fn is_exact(&self, shape: &Shape) -> bool {
        shape.begin.ends_with(' ') || &self.text[self.begin.clone()] == shape.begin.as_bytes()
    }

    fn run(&self, shape: &Shape, alphabet: Alphabet, (least, most): (usize, usize)) -> Found {
        let begins_a_word = shape.begin.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !self.is_exact(shape) || begins_a_word && !self.stands_alone() {
            return Found::Nothing;
        }
        let from = self.begin.end;
        let mut to = self.while_is(from, |byte| alphabet.has(byte));
        if to == self.text.len() && self.ending == Ending::Open && (most == LONGEST || to - from <= most) {
            return Found::Unclear;
        }
        if self.text.get(to).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_') {
            return Found::Nothing;
        }
        while to > from && self.text[to - 1] == b'.' {
            to -= 1;
        }
        let fits = to - from >= least && (most == LONGEST || to - from <= most);
        if fits { Found::Secret(self.begin.start..to) } else { Found::Nothing }
    }

    fn jwt(&self, shape: &Shape) -> Found {
        if !self.is_exact(shape) || !self.stands_alone() {
            return Found::Nothing;
        }
        let part = |from: usize| self.while_is(from, |byte| Alphabet::Url.has(byte));
        let mut at = self.begin.end;
        for least in [6, 6] {
            let end = part(at);
            match self.text.get(end) {
                None => return self.open(),
                Some(b'.') if end - at >= least => at = end + 1,
                Some(_) => return Found::Nothing,
            }
        }
        let end = part(at);
        if end == self.text.len() && self.ending == Ending::Open {
            return Found::Unclear;
        }
        let second = self.text[self.begin.end..at].split(|byte| *byte == b'.').nth(1).unwrap_or_default();
        let fits = end - at >= 16 && second.starts_with(b"eyJ");
        if fits { Found::Secret(self.begin.start..end) } else { Found::Nothing }
    }

    fn pem(&self) -> Found {
        let from = self.begin.end;
        let title = self.while_is(from, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
        if title == self.text.len() && self.ending == Ending::Open {
            return Found::Unclear;
        }
        if !String::from_utf8_lossy(&self.text[from..title]).contains("PRIVATE KEY") {
            return Found::Nothing;
        }
        let rest = &self.text[title..];
        let end = position(rest, b"-----END ").and_then(|end| {
            let close = position(&rest[end + 9..], b"-----")?;
            Some(title + end + 9 + close + 5)
        });
        match (end, self.ending) {
            (Some(end), _) => Found::Secret(self.begin.start..end),
            (None, Ending::Open) => Found::Unclear,
            (None, Ending::Final) => Found::Secret(self.begin.start..self.text.len()),
        }
    }

    fn url_password(&self) -> Found {
        if !self.back(1).is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            return Found::Nothing;
        }
        let from = self.begin.end;
        let ends = |byte: u8| byte.is_ascii_whitespace() || b"/?#\"'<>`\\,|".contains(&byte);
        let end = self.while_is(from, |byte| !ends(byte));
        if end == self.text.len() && self.ending == Ending::Open && end - from < LONGEST_PASSWORD {
            return Found::Unclear;
        }
        let login = &self.text[from..end];
        let Some(host) = login.iter().rposition(|byte| *byte == b'@') else { return Found::Nothing };
        let Some(user) = login[..host].iter().position(|byte| *byte == b':') else { return Found::Nothing };
        let password = &login[user + 1..host];
        let stands_for_one =
            password.first().is_none_or(|first| b"$%*{[".contains(first)) || EXAMPLES.contains(&password);
        if stands_for_one || password.len() > LONGEST_PASSWORD {
            return Found::Nothing;
        }
        Found::Secret(from + user + 1..from + host)
    }

    fn value(&self, least: usize) -> Found {
        let blank = |byte: u8| byte == b' ' || byte == b'\t';
        let quote = |byte: u8| b"\"'\\`".contains(&byte);
        let mut at = self.while_is(self.begin.end, |byte| quote(byte) || blank(byte));
        let sign = self.while_is(at, |byte| b"=:>".contains(&byte));
        match self.text.get(sign) {
            None => return self.open(),
            Some(_) if sign == at => return Found::Nothing,
            Some(_) => at = self.while_is(sign, |byte| quote(byte) || blank(byte)),
        }
        let ends = |byte: u8| byte.is_ascii_whitespace() || quote(byte) || b",;()[]{}<>|&".contains(&byte);
        let end = self.while_is(at, |byte| !ends(byte) && byte.is_ascii());
        if end == self.text.len() && self.ending == Ending::Open && end - at < LONGEST {
            return Found::Unclear;
        }
        let is_code = self.text.get(end).is_some_and(|next| b"([{<".contains(next));
        let value = &self.text[at..end];
        let stands_for_one = value.first().is_none_or(|first| b"$%*/~".contains(first));
        let is_code = is_code || names_a_field(value);
        if is_code || stands_for_one || value.len() < least || !is_mixed(value) {
            return Found::Nothing;
        }
        Found::Secret(at..end)
    }

    fn bot_token(&self, shape: &Shape) -> Found {
        let digits = (1..=11).take_while(|back| self.back(*back).is_some_and(|byte| byte.is_ascii_digit())).count();
        let apart = !self.back(digits + 1).is_some_and(|byte| byte.is_ascii_alphanumeric()) || self.follows_bot(digits);
        if !self.is_exact(shape) || !(8..=10).contains(&digits) || !apart {
            return Found::Nothing;
        }
        let end = self.while_is(self.begin.end, |byte| Alphabet::Url.has(byte));
        if end == self.text.len() && self.ending == Ending::Open {
            return Found::Unclear;
        }
        let fits = (32..=34).contains(&(end - self.begin.end));
        if fits { Found::Secret(self.begin.start + 1..end) } else { Found::Nothing }
    }

    /// In an address the number of a bot stands behind this word.
    fn follows_bot(&self, digits: usize) -> bool {
        [b't', b'o', b'b'].iter().zip(digits + 1..).all(|(byte, back)| self.back(back) == Some(*byte))
    }

    fn client_secret(&self, shape: &Shape) -> Found {
        let is_part = |byte: u8| Alphabet::Dotted.has(byte) || byte == b'~';
        if !self.is_exact(shape) || !(1..=3).all(|back| self.back(back).is_some_and(is_part)) {
            return Found::Nothing;
        }
        let end = self.while_is(self.begin.end, is_part);
        if end == self.text.len() && self.ending == Ending::Open {
            return Found::Unclear;
        }
        let fits = (31..=34).contains(&(end - self.begin.end));
        if fits { Found::Secret(self.begin.start..end) } else { Found::Nothing }
    }
}

/// Digits and letters: no word of a language.
fn is_mixed(bytes: &[u8]) -> bool {
    bytes.iter().any(u8::is_ascii_digit) && bytes.iter().any(u8::is_ascii_alphabetic)
}

/// `config.api_key2`: names with points between them, one of them in small letters only.
fn names_a_field(value: &[u8]) -> bool {
    let is_name = |part: &[u8]| {
        part.first().is_some_and(u8::is_ascii_alphabetic)
            && part.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let mut parts = value.split(|byte| *byte == b'.');
    value.contains(&b'.') && parts.clone().all(is_name) && parts.any(|part| part.iter().all(u8::is_ascii_lowercase))
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
