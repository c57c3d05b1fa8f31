//! A turn's kept output as steps for people: by the parser of its CLI, or as it is for a command
//! without one.

use std::path::PathBuf;

use everloop_core::spec::AgentKind;
use everloop_core::time::Time;
use everloop_core::transcript::{OutputOf, Transcript};

use super::reader::{ProcessEnd, Reader, object};
use super::record::Fields;
use crate::job::{JobError, Stream, Tail, TailChunk, plain};

/// What is waited for before a stream without a line break counts as plain text.
const FIRST_LINE_CAP: usize = 64 << 10;

/// Bytes of a line that are held until it ends.
const LINE_CAP: usize = 1 << 20;

/// Reads the output of one turn, also while it grows.
pub struct TranscriptReader {
    dir: PathBuf,
    out: Tail,
    err: Tail,
    stdout: Stdout,
    /// The end of standard error that is not a whole line yet.
    err_rest: Vec<u8>,
    transcript: Transcript,
}

/// How standard output is read.
enum Stdout {
    /// Its first line decides.
    Undecided {
        kind: AgentKind,
        head: Vec<u8>,
    },
    Records(Box<Reader>),
    /// Text, with the end that is not a whole line yet.
    Plain(Vec<u8>),
}

impl TranscriptReader {
    /// Reads the turn in this folder. A command is read by what its first line looks like.
    pub fn new(dir: PathBuf, kind: AgentKind) -> Self {
        Self {
            dir,
            out: Tail::new(Stream::Out),
            err: Tail::new(Stream::Err),
            stdout: Stdout::Undecided { kind, head: Vec::new() },
            err_rest: Vec::new(),
            transcript: Transcript::default(),
        }
    }

    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Takes everything that was written since the last call.
    pub fn read(&mut self, now: Time) -> Result<(), JobError> {
        let Self { dir, out, err, stdout, err_rest, transcript } = self;
        out.read(dir, &mut |chunk| stdout.take(chunk, now, transcript))?;
        err.read(dir, &mut |chunk| {
            if let TailChunk::Bytes(bytes) = chunk {
                if let Stdout::Records(reader) = stdout {
                    reader.err(bytes, now, &mut |said| transcript.take(&said));
                }
                whole_lines(err_rest, bytes, |text| transcript.output(OutputOf::Stderr, &text));
            }
        })
    }

    /// Nothing more will come.
    pub fn finish(&mut self, end: &ProcessEnd<'_>) {
        let Self { stdout, err_rest, transcript, .. } = self;
        stdout.decide(end.now, transcript);
        match stdout {
            Stdout::Records(reader) => reader.end(end, &mut |said| transcript.take(&said)),
            Stdout::Plain(rest) => show(rest, |text| transcript.output(OutputOf::Stdout, &text)),
            Stdout::Undecided { .. } => {}
        }
        show(err_rest, |text| transcript.output(OutputOf::Stderr, &text));
    }
}

impl Stdout {
    fn take(&mut self, chunk: TailChunk<'_>, now: Time, transcript: &mut Transcript) {
        match (self, chunk) {
            (Stdout::Records(reader), TailChunk::Bytes(bytes)) => {
                reader.out(bytes, now, &mut |said| transcript.take(&said));
            }
            (Stdout::Records(reader), TailChunk::Gap) => {
                reader.gap();
                transcript.output(OutputOf::Stdout, GAP);
            }
            (Stdout::Plain(rest), TailChunk::Bytes(bytes)) => {
                whole_lines(rest, bytes, |text| transcript.output(OutputOf::Stdout, &text));
            }
            (Stdout::Plain(_), TailChunk::Gap) => transcript.output(OutputOf::Stdout, GAP),
            (undecided @ Stdout::Undecided { .. }, TailChunk::Bytes(bytes)) => {
                let Stdout::Undecided { head, .. } = undecided else { return };
                head.extend_from_slice(bytes);
                if head.contains(&b'\n') || head.len() > FIRST_LINE_CAP {
                    undecided.decide(now, transcript);
                }
            }
            (undecided @ Stdout::Undecided { .. }, TailChunk::Gap) => undecided.decide(now, transcript),
        }
    }

    fn decide(&mut self, now: Time, transcript: &mut Transcript) {
        let Stdout::Undecided { kind, head } = self else { return };
        let (kind, head) = (*kind, std::mem::take(head));
        let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
        *self = match (kind, looks_like(&String::from_utf8_lossy(first))) {
            (AgentKind::Command, None) => Stdout::Plain(Vec::new()),
            (AgentKind::Command, Some(seen)) => Stdout::Records(Box::new(Reader::new(seen, false))),
            (known, _) => Stdout::Records(Box::new(Reader::new(known, false))),
        };
        self.take(TailChunk::Bytes(&head), now, transcript);
    }
}

/// In place of what was not kept.
const GAP: &str = "… output that was not kept …";

/// The CLI that writes such a first line.
fn looks_like(line: &str) -> Option<AgentKind> {
    let record = object(line)?;
    if record.text("said").is_some() {
        return Some(AgentKind::Api);
    }
    Some(match record.text("type")? {
        "system" | "assistant" | "rate_limit_event" => AgentKind::Claude,
        "thread.started" | "turn.started" => AgentKind::Codex,
        "init" => AgentKind::Gemini,
        "step_start" => AgentKind::Opencode,
        "session.skills_loaded" | "session.mcp_servers_loaded" => AgentKind::Copilot,
        _ => return None,
    })
}

/// Passes on the whole lines and keeps the rest. A line without end is passed on in pieces.
fn whole_lines(rest: &mut Vec<u8>, bytes: &[u8], mut take: impl FnMut(String)) {
    let after = match bytes.iter().rposition(|b| *b == b'\n') {
        Some(end) => {
            rest.extend_from_slice(&bytes[..=end]);
            show(rest, &mut take);
            &bytes[end + 1..]
        }
        None => bytes,
    };
    rest.extend_from_slice(after);
    if rest.len() > LINE_CAP {
        show(rest, take);
    }
}

fn show(bytes: &mut Vec<u8>, mut take: impl FnMut(String)) {
    let text = plain(&std::mem::take(bytes));
    if !text.trim().is_empty() {
        take(text.trim_end_matches('\n').to_owned());
    }
}
