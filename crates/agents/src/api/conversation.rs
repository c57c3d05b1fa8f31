//! One turn: ask, do what the model wants, ask again, until it is done or something says no. Owns the bounds of that.

use everloop_core::stream::{LimitClass, Said, Usage};
use serde_json::Value;

use super::http::{Answer, Client, Failed};
use super::options::{Options, Wire};
use super::reply::{Call, Outcome, Reading, Refusal, Reply, Step, Stop};
use super::session::Session;
use super::sse::Events;
use super::tools::{self, Done, Toolbox};
use super::voice::Voice;
use super::{limit, messages, responses};
use crate::clock;

/// Calls of one reply that are performed; more at once is no plan.
const MOST_CALLS: usize = 32;
/// Events that nobody knows, told one by one; after that it is noise.
const MOST_UNKNOWN: u32 = 100;
/// The last words that are reported.
const LAST_WORDS: usize = 4_000;
/// Letters in a token, roughly, for a request that was never accounted for.
const LETTERS_IN_TOKEN: u64 = 4;

/// A turn.
pub(super) struct Conversation<'a, 'o> {
    options: &'a Options,
    client: Client,
    session: Session,
    voice: &'a mut Voice<'o>,
    spent_microusd: u64,
}

impl<'a, 'o> Conversation<'a, 'o> {
    pub(super) fn new(options: &'a Options, client: Client, session: Session, voice: &'a mut Voice<'o>) -> Self {
        Self { options, client, session, voice, spent_microusd: 0 }
    }

    /// Holds it to the end; the last words.
    pub(super) fn hold(mut self, prompt: &str) -> Result<String, Refusal> {
        let toolbox = Toolbox::new(self.options).map_err(Refusal::plain)?;
        self.close_open_calls()?;
        self.session.push(&self.prompt(prompt))?;
        for _ in 0..self.options.max_requests {
            self.may_go_on()?;
            let reply = self.ask()?;
            for item in &reply.items {
                self.session.push(item)?;
            }
            if !reply.calls.is_empty() {
                self.perform(&toolbox, reply.calls)?;
                continue;
            }
            match reply.stop {
                Stop::Done => return Ok(reply.text.chars().take(LAST_WORDS).collect()),
                Stop::Declined(why) => return Err(Refusal::plain(why)),
                Stop::Length => {
                    let more = "Your answer was cut off at its longest allowed length. Go on where it stopped.";
                    self.session.push(&self.prompt(more))?;
                }
            }
        }
        Err(Refusal::plain(format!("stopped after {} requests, as agreed", self.options.max_requests)))
    }

    fn may_go_on(&self) -> Result<(), Refusal> {
        if !self.voice.is_heard() {
            return Err(Refusal::plain("nobody listens any more"));
        }
        match (self.options.left_microusd, self.options.prices) {
            (Some(left), Some(_)) if self.spent_microusd >= left => {
                Err(Refusal::plain(format!("stopped: the {left} millionths of a dollar for this turn are used up")))
            }
            _ => Ok(()),
        }
    }

    fn prompt(&self, text: &str) -> Value {
        match self.options.wire {
            Wire::Messages => messages::prompt(text),
            Wire::Responses => responses::prompt(text),
        }
    }

    /// A turn that was killed can leave calls without an answer, and both vendors refuse to go on over those.
    fn close_open_calls(&mut self) -> Result<(), Refusal> {
        let items = self.session.items();
        let open = match self.options.wire {
            Wire::Messages => messages::open_calls(items),
            Wire::Responses => responses::open_calls(items),
        };
        let text = "error: the turn was interrupted during this call; it may have had an effect or not";
        let closed = open.into_iter().map(|call| (call, Outcome { text: text.to_owned(), ok: false }));
        self.answer(&closed.collect::<Vec<_>>())
    }

    fn answer(&mut self, done: &[(Call, Outcome)]) -> Result<(), Refusal> {
        if done.is_empty() {
            return Ok(());
        }
        let items = match self.options.wire {
            Wire::Messages => messages::outcomes(done),
            Wire::Responses => responses::outcomes(done),
        };
        items.iter().try_for_each(|item| self.session.push(item))
    }

    fn perform(&mut self, toolbox: &Toolbox, calls: Vec<Call>) -> Result<(), Refusal> {
        let mut done = Vec::new();
        for (n, call) in calls.into_iter().enumerate() {
            let input = call.input.as_ref().unwrap_or(&Value::Null);
            let timeout = (call.name == "shell").then(|| tools::timeout(input).as_millis() as u64);
            self.voice.say(&Said::ToolStarted {
                id: call.id.clone(),
                name: call.name.clone(),
                fingerprint: fingerprint(&[&call.name, &input.to_string()]),
                timeout_ms: timeout,
                subagent: false,
            });
            let outcome = if n < MOST_CALLS {
                match toolbox.perform(&call) {
                    Done::Run(outcome) => outcome,
                    Done::Denied(outcome) => {
                        self.voice.say(&Said::Denied { tool: call.name.clone() });
                        outcome
                    }
                }
            } else {
                Outcome { text: "error: too many calls at once; ask again for this one".to_owned(), ok: false }
            };
            let error = (!outcome.ok).then(|| fingerprint(&[&outcome.text]));
            self.voice.say(&Said::ToolEnded { id: call.id.clone(), error });
            done.push((call, outcome));
        }
        self.answer(&done)
    }

    /// One request, with one quick second try if the connection broke before anything was heard: a kept connection that
    /// the other side has closed looks like that. Everything else is the supervisor's to wait for.
    fn ask(&mut self) -> Result<Reply, Refusal> {
        let body = match self.options.wire {
            Wire::Messages => messages::request(self.options, self.session.items()),
            Wire::Responses => responses::request(self.options, self.session.items()),
        };
        let body = serde_json::to_vec(&body).map_err(|e| Refusal::plain(format!("the request has no form: {e}")))?;
        let answer = match self.client.post(&body) {
            Err(Failed::Reset(_)) => {
                let class = Some(LimitClass::Network);
                self.voice.say(&Said::Retrying { attempt: 1, delay_ms: Some(0), class });
                self.client.post(&body)
            }
            other => other,
        };
        match answer {
            Ok(Answer::Stream(stream)) => {
                let estimate = body.len() as u64 / LETTERS_IN_TOKEN;
                match self.options.wire {
                    Wire::Messages => self.read(Events::new(stream), messages::Answer::default(), estimate),
                    Wire::Responses => self.read(Events::new(stream), responses::Answer::default(), estimate),
                }
            }
            Ok(Answer::Error { status, headers, body }) => Err(limit::of_answer(status, &headers, &body, clock::now())),
            Err(Failed::Reset(refusal) | Failed::Other(refusal)) => Err(refusal),
        }
    }

    fn read(
        &mut self,
        mut events: Events<impl std::io::Read>,
        mut answer: impl Reading,
        estimate: u64,
    ) -> Result<Reply, Refusal> {
        let beat = Said::Context { used: estimate, window: self.options.context_window };
        let ended = self.read_on(&mut events, &mut answer, &beat);
        self.voice.flush();
        let mut used = answer.used();
        if used == Usage::default() {
            // Broken off before it was counted. It was read and will be paid for.
            used.input = estimate;
        }
        self.account(used);
        ended.map(|()| answer.finish())
    }

    fn read_on(
        &mut self,
        events: &mut Events<impl std::io::Read>,
        answer: &mut impl Reading,
        beat: &Said,
    ) -> Result<(), Refusal> {
        let mut unknown = 0;
        while let Some(data) = events.next()? {
            if data == b"[DONE]" {
                continue;
            }
            let step = match serde_json::from_slice::<Value>(&data) {
                Ok(event) => answer.take(&event, &mut |crumb| self.voice.words(crumb))?,
                Err(_) => Step::Unknown,
            };
            match step {
                Step::Over => return Ok(()),
                Step::More => self.voice.beat(beat),
                Step::Unknown if unknown < MOST_UNKNOWN => {
                    unknown += 1;
                    self.voice.say(&Said::Unknown);
                }
                Step::Unknown => {}
            }
        }
        Err(Refusal::seen("api.cut", LimitClass::Network, "the answer ended before it was complete"))
    }

    fn account(&mut self, used: Usage) {
        let cost = self.options.prices.map(|prices| prices.cost(&used));
        self.spent_microusd = self.spent_microusd.saturating_add(cost.unwrap_or(0));
        self.voice.say(&Said::Used(Usage { microusd: cost, ..used }));
        self.voice.say(&Said::Context { used: used.tokens(), window: self.options.context_window });
    }
}

/// The same words give the same number, today and tomorrow (FNV-1a).
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain(std::iter::once(0)));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
