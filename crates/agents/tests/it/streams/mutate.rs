//! Mutates lines in every way that a broken program, a full disk or a hostile agent might, and
//! feeds them to a reader. Deterministic: a seed gives a run. Shared with the bench, which makes
//! many more of them.

use std::path::Path;

use everloop_agents::agent::{LINE_CAP, ProcessEnd, Reader};
use everloop_core::spec::AgentKind;
use everloop_core::stream::{AgentEvent, TurnReport};
use everloop_core::time::Time;
use serde_json::Value;

/// When the recordings were made, so that times in them lie ahead.
const NOW: Time = Time(1_794_768_600_000);

/// Xorshift: fast and the same everywhere.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.roll() >> 11) as usize % end }
    }

    fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

const NUMBERS: &[&str] = &[
    "18446744073709551616",
    "-1",
    "1e308",
    "-1e999",
    "9223372036854775807",
    "0.0000001",
    "1794775911",
    "99999999999999",
    "253402300800",
    "4294967296",
    "-0",
    "1E400",
];

const PIECES: &[&str] = &[
    "null",
    "true",
    "\"\"",
    "{}",
    "[]",
    "\\u0000",
    "\\ud800",
    "\u{202e}",
    "\u{1b}[31m",
    "\\",
    "\"",
    "}",
    "{\"type\":",
    "{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\",\"resetsAt\":1794775911}}",
    "\r",
    "\n",
    "resets 13:99pm (Europe/",
    "try again at Feb 31st, 9999 25:61 PM",
    "|99999999999999999999",
    "retry after 1e400s",
    "{\"said\":\"limit\"}",
    "ß",
    "resets 8:51pm (UTC)",
    "try again in 5 days 99 hours",
    "You've hit your ",
    " limit",
    "Reconnecting... 99999999999/5 (",
    "status: 429",
    "unexpected status 5",
    "Attempt 3 failed. Retrying after 5ms",
    "\u{feff}",
];

/// Recorded lines, by program. A reader gets mostly those of its own: others end at an unknown
/// type.
pub struct Corpus {
    own: Vec<Own>,
    all: Vec<Vec<u8>>,
}

/// The lines of one program.
struct Own {
    kind: AgentKind,
    out: Vec<Vec<u8>>,
    err: Vec<Vec<u8>>,
}

impl Corpus {
    /// Standard output and standard error of all recorded runs, and the native format that they
    /// were turned into.
    pub fn read(folder: &Path) -> std::io::Result<Self> {
        let mut corpus = Self { own: Vec::new(), all: Vec::new() };
        let mut ours = Vec::new();
        for kind in [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode] {
            let mut own = Own { kind, out: Vec::new(), err: Vec::new() };
            for entry in std::fs::read_dir(folder.join(kind.label()))? {
                let path = entry?.path();
                let bytes = std::fs::read(&path)?;
                let cut = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec);
                match path.extension().and_then(|e| e.to_str()) {
                    Some("jsonl") => own.out.extend(cut),
                    Some("err") => own.err.extend(cut),
                    Some("said") => ours.extend(cut.filter(|l| l.starts_with(b"{"))),
                    _ => {}
                }
            }
            corpus.add(own);
        }
        for kind in [AgentKind::Api, AgentKind::Command, AgentKind::Pane] {
            corpus.add(Own { kind, out: ours.clone(), err: Vec::new() });
        }
        Ok(corpus)
    }

    fn add(&mut self, mut own: Own) {
        for lines in [&mut own.out, &mut own.err] {
            // The order of a folder is not the same everywhere.
            lines.sort();
            lines.dedup();
            self.all.extend(lines.iter().cloned());
        }
        self.own.push(own);
    }
}

/// The result of a run.
#[derive(Default)]
pub struct Run {
    /// Records that were understood.
    pub understood: u64,
    /// Records that were counted as unknown.
    pub unknown: u64,
    pub bytes: u64,
    /// The maximum held for incomplete lines.
    pub held: usize,
}

/// Feeds `lines` mutated lines to one reader, in pieces of all sizes.
pub fn run(seed: u64, lines: u64, corpus: &Corpus) -> Run {
    let mut dice = Dice::new(seed);
    let own = &corpus.own[dice.below(corpus.own.len())];
    let mut reader = Reader::new(own.kind, dice.below(2) == 0);
    let (mut report, mut run) = (TurnReport::default(), Run::default());
    let mut take = |said: AgentEvent| {
        let counter = if said == AgentEvent::Unknown { &mut run.unknown } else { &mut run.understood };
        *counter += 1;
        report.take(&said);
    };
    let mut held = 0;
    for _ in 0..lines {
        let to_err = dice.below(8) == 0;
        let own = if to_err && !own.err.is_empty() { &own.err } else { &own.out };
        let foreign = dice.below(16) == 0;
        let mut line = spoiled(&mut dice, if foreign { &corpus.all } else { own });
        line.push(b'\n');
        run.bytes += line.len() as u64;
        for piece in pieces(&mut dice, &line) {
            if to_err {
                reader.err(piece, NOW, &mut take);
            } else {
                reader.out(piece, NOW, &mut take);
            }
            // After every piece: once a line is over the buffer is empty.
            held = held.max(reader.held_bytes());
        }
        if dice.below(100) == 0 {
            reader.gap();
        }
    }
    let code = i32::try_from(dice.below(256)).ok();
    let signal = (dice.below(8) == 0).then_some(9);
    reader.end(&ProcessEnd { code, signal, now: NOW, env: &[] }, &mut take);
    run.held = held;
    run
}

fn pieces<'a>(dice: &mut Dice, mut line: &'a [u8]) -> Vec<&'a [u8]> {
    let mut all = Vec::new();
    while !line.is_empty() {
        let size = if dice.below(4) == 0 { 1 + dice.below(line.len()) } else { line.len() };
        let (piece, rest) = line.split_at(size);
        all.push(piece);
        line = rest;
    }
    all
}

/// A mutated copy of a line of the corpus. Two of three stay JSON: broken syntax never reaches the
/// parser's own logic.
pub fn spoiled(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut line = corpus[dice.below(corpus.len())].clone();
    let record = if dice.below(3) == 0 { None } else { serde_json::from_slice::<Value>(&line).ok() };
    if let Some(mut record) = record {
        for _ in 0..=dice.below(3) {
            // Not the record as a whole: that would be another kind of line.
            let place = record.as_object_mut().and_then(|map| {
                let at = dice.below(map.len());
                map.values_mut().nth(at)
            });
            if let Some(place) = place {
                reshape(dice, place, corpus);
            }
        }
        line = record.to_string().into_bytes();
    } else {
        for _ in 0..=dice.below(3) {
            spoil(dice, &mut line, corpus);
        }
    }
    if dice.below(20_000) == 0 {
        // Around the longest line that is parsed: most often a string, sometimes a list with as
        // many values as fit.
        let room = LINE_CAP - line.len().min(LINE_CAP) - 1_000 + dice.below(2_000);
        if dice.below(4) == 0 {
            let list = format!("{{\"type\":\"user\",\"x\":[{}0]}}", "0,".repeat(room / 2));
            line = list.into_bytes();
        } else {
            let at = dice.below(line.len() + 1);
            line.splice(at..at, std::iter::repeat_n(b'x', room));
        }
    }
    line
}

/// Replaces a value in the record, at a random depth.
fn reshape(dice: &mut Dice, node: &mut Value, corpus: &[Vec<u8>]) {
    let deeper = dice.below(6) > 0;
    match node {
        Value::Object(map) if deeper && !map.is_empty() => {
            let key = map.keys().nth(dice.below(map.len())).cloned().unwrap_or_default();
            match dice.below(12) {
                0 => {
                    map.remove(&key);
                }
                1 => {
                    let other = map.keys().nth(dice.below(map.len())).cloned().unwrap_or_default();
                    if let Some(value) = map.remove(&key) {
                        map.insert(other, value);
                    }
                }
                _ => {
                    if let Some(value) = map.get_mut(&key) {
                        reshape(dice, value, corpus);
                    }
                }
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = dice.below(list.len());
            reshape(dice, &mut list[at], corpus);
        }
        _ => *node = other_value(dice, node, corpus),
    }
}

fn other_value(dice: &mut Dice, old: &Value, corpus: &[Vec<u8>]) -> Value {
    let number = |dice: &mut Dice| serde_json::from_str(dice.pick(NUMBERS)).unwrap_or(Value::Null);
    match dice.below(12) {
        0 => Value::Null,
        1 => Value::Bool(dice.below(2) == 0),
        2 | 3 => number(dice),
        4 | 5 => Value::String(dice.pick(PIECES).to_owned()),
        6 => Value::String(dice.pick(PIECES).repeat(dice.below(2_000))),
        7 => Value::Array(vec![old.clone(); dice.below(20)]),
        8 => serde_json::from_slice(&corpus[dice.below(corpus.len())]).unwrap_or(Value::Null),
        9 => serde_json::json!({"type": old, "text": old, "error": old}),
        _ => match old {
            // The same with a piece in the middle, where the texts of limits and times are.
            Value::String(text) => {
                let half: String = text.chars().take(dice.below(80)).collect();
                Value::String(format!("{half}{}{text}", dice.pick(PIECES)))
            }
            _ => number(dice),
        },
    }
}

fn spoil(dice: &mut Dice, line: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = dice.below(line.len() + 1);
    match dice.below(64) {
        0..=11 => {
            if let Some(byte) = line.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        12..=19 => line.truncate(at),
        20..=25 => {
            line.drain(..at);
        }
        26..=31 => {
            let other = &corpus[dice.below(corpus.len())];
            line.truncate(at);
            line.extend_from_slice(&other[dice.below(other.len() + 1)..]);
        }
        32..=41 => replace_value(dice, line, at),
        42..=51 => {
            let piece = dice.pick(PIECES).bytes();
            line.splice(at..at, piece);
        }
        52..=57 => {
            let noise: Vec<u8> = (0..dice.below(40)).map(|_| dice.roll() as u8).collect();
            line.splice(at..at, noise);
        }
        58..=60 => {
            let end = (at + dice.below(200)).min(line.len());
            let again = line[at..end].to_vec();
            line.splice(at..at, again);
        }
        61 => {
            let depth = 1 + dice.below(300);
            let nest = dice.pick(&["[", "{\"a\":"]).repeat(depth);
            line.splice(at..at, nest.into_bytes());
        }
        62 => {
            let long = vec![b"x9\"\\ "[dice.below(5)]; dice.below(20_000)];
            line.splice(at..at, long);
        }
        _ => line.push(b'\n'),
    }
}

/// Replaces a value in the raw line.
fn replace_value(dice: &mut Dice, line: &mut Vec<u8>, from: usize) {
    let Some(colon) = line[from..].iter().position(|b| *b == b':').map(|i| from + i + 1) else { return };
    let end = line[colon..].iter().position(|b| matches!(b, b',' | b'}')).map_or(line.len(), |i| colon + i);
    let value = if dice.below(2) == 0 { dice.pick(NUMBERS) } else { dice.pick(PIECES) };
    line.splice(colon..end, value.bytes());
}
