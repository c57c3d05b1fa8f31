//! What the agent of a running turn says, line by line: the text of a CLI's stream, the output of a
//! command.

use std::path::PathBuf;

use everloop_agents::agent::Reader;
use everloop_agents::clock;
use everloop_agents::job::{self, Stream, Tail, TailChunk};
use everloop_core::ids::TurnId;
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, Phase, Turn};
use everloop_core::stream::AgentEvent;

use crate::state_folder::StateFolder;

/// Lines that are kept between two reads; a flood loses its beginning.
const LINES_MAX: usize = 200;
/// A longer line is cut: a person reads it, nothing parses it.
const LINE_MAX_BYTES: usize = 4 << 10;

/// Follows the turns of a loop, one after the other.
pub struct Speech {
    home: StateFolder,
    current: Option<TurnSpeech>,
}

impl Speech {
    /// From now on.
    pub fn new(home: &StateFolder) -> Self {
        Self { home: home.clone(), current: None }
    }

    /// What was said since the last call. What cannot be read is not there.
    pub fn read(&mut self, state: &LoopState) -> Vec<String> {
        let mut lines = Vec::new();
        let running = match &state.phase {
            Phase::Turn(turn) => Some(turn),
            Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Ended { .. } => None,
        };
        let same = |current: &TurnSpeech| running.is_some_and(|turn| turn.id == current.turn);
        if let Some(mut over) = self.current.take_if(|current| !same(current)) {
            lines.extend(over.read());
            lines.extend(over.rest());
        }
        if self.current.is_none() {
            self.current = running.map(|turn| TurnSpeech::new(&self.home, agent_of(state, turn), turn));
        }
        lines.extend(self.current.iter_mut().flat_map(TurnSpeech::read));
        lines.drain(..lines.len().saturating_sub(LINES_MAX));
        lines
    }
}

fn agent_of<'a>(state: &'a LoopState, turn: &Turn) -> &'a AgentSpec {
    let named = |a: &&AgentSpec| a.name == turn.agent && a.account == turn.account;
    state.spec.agents().find(named).unwrap_or(&state.spec.agent)
}

/// The words of one turn.
struct TurnSpeech {
    turn: TurnId,
    dir: PathBuf,
    /// A command's output is its words, unless it begins with a record of our own format.
    plain: Option<bool>,
    reader: Reader,
    out: (Tail, Vec<u8>),
    err: (Tail, Vec<u8>),
}

impl TurnSpeech {
    fn new(home: &StateFolder, agent: &AgentSpec, turn: &Turn) -> Self {
        Self {
            turn: turn.id.clone(),
            dir: home.turn(&turn.id),
            plain: (agent.kind != AgentKind::Command).then_some(false),
            reader: Reader::new(agent.kind, turn.resume.is_some()),
            out: (Tail::new(Stream::Out), Vec::new()),
            err: (Tail::new(Stream::Err), Vec::new()),
        }
    }

    fn read(&mut self) -> Vec<String> {
        let now = clock::now();
        let Self { dir, plain, reader, out, err, .. } = self;
        let mut lines = Vec::new();
        let mut hear = |bytes: &[u8], lines: &mut Vec<String>, held: &mut Vec<u8>| {
            if *plain.get_or_insert(!bytes.starts_with(b"{")) {
                split(bytes, held, lines);
            } else {
                reader.out(bytes, now, &mut |said| lines.extend(words(said)));
            }
        };
        let (tail, held) = out;
        let read = tail.read(dir, &mut |piece| match piece {
            TailChunk::Bytes(bytes) => hear(bytes, &mut lines, held),
            TailChunk::Gap => held.clear(),
        });
        let (tail, held) = err;
        // The errors of a CLI are in its stream, too.
        let quiet = *plain == Some(false);
        let read = read.and(tail.read(dir, &mut |piece| match piece {
            TailChunk::Bytes(bytes) if !quiet => split(bytes, held, &mut lines),
            TailChunk::Bytes(_) => {}
            TailChunk::Gap => held.clear(),
        }));
        if let Err(error) = read {
            tracing::debug!(dir = %dir.display(), %error, "cannot read what the agent says");
        }
        lines
    }

    /// Words behind the last line break, when nothing more will come.
    fn rest(&mut self) -> Vec<String> {
        let both = [std::mem::take(&mut self.out.1), std::mem::take(&mut self.err.1)];
        both.iter().map(|held| job::plain(held)).filter(|line| !line.trim().is_empty()).collect()
    }
}

/// Whole lines; the beginning of the next one is held back.
fn split(bytes: &[u8], held: &mut Vec<u8>, lines: &mut Vec<String>) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let room = LINE_MAX_BYTES.saturating_sub(held.len());
        held.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.ends_with(b"\n") {
            let line = job::plain(held);
            held.clear();
            if !line.trim().is_empty() {
                lines.push(line.trim_end().to_owned());
            }
        }
    }
}

/// An event as a person reads it.
fn words(said: AgentEvent) -> Vec<String> {
    let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
    match said {
        AgentEvent::Text { text } | AgentEvent::Result { ok: false, text } | AgentEvent::Failed { text, .. } => {
            lines(&text)
        }
        AgentEvent::ToolStarted { name, .. } => vec![format!("[{name}]")],
        AgentEvent::Denied { tool } => vec![format!("[{tool}: denied]")],
        AgentEvent::Asking { what } => vec![format!("[waits for a person: {what}]")],
        AgentEvent::Retrying { attempt, .. } => vec![format!("[retries a request, attempt {attempt}]")],
        AgentEvent::Limit(limit) => lines(&limit.text),
        AgentEvent::Session { .. }
        | AgentEvent::SessionLost
        | AgentEvent::ToolEnded { .. }
        | AgentEvent::Quota(_)
        | AgentEvent::Used(_)
        | AgentEvent::UsedInAll(_)
        | AgentEvent::Context { .. }
        | AgentEvent::Background { .. }
        | AgentEvent::Result { ok: true, .. }
        | AgentEvent::Unknown => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_a_half_one_waits() {
        let (mut held, mut lines) = (Vec::new(), Vec::new());
        split(b"one\ntw", &mut held, &mut lines);
        assert_eq!(lines, ["one"]);
        split(b"o\n\n\x1b[31mred\x1b[0m\n", &mut held, &mut lines);
        assert_eq!(lines, ["one", "two", "red"]);
        split(&[b'x'; 2 * LINE_MAX_BYTES], &mut held, &mut lines);
        assert_eq!(held.len(), LINE_MAX_BYTES, "a line without end is cut");
    }

    #[test]
    fn tools_are_named_and_a_good_result_is_not_repeated() {
        let text = AgentEvent::Text { text: "first\n\nsecond".to_owned() };
        assert_eq!(words(text), ["first", "second"]);
        let tool = AgentEvent::ToolStarted {
            id: "1".to_owned(),
            name: "Bash".to_owned(),
            fingerprint: 0,
            timeout_ms: None,
            subagent: false,
            input: String::new(),
        };
        assert_eq!(words(tool), ["[Bash]"]);
        assert!(words(AgentEvent::Result { ok: true, text: "first".to_owned() }).is_empty());
    }
}
