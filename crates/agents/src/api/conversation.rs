//! One turn: send a request, perform the calls of the reply, repeat until the model is done or a
//! bound is reached. Owns those bounds.

use everloop_core::prices::Prices;
use everloop_core::stream::{AgentEvent, LimitClass, Usage};
use serde_json::Value;

use super::http::{Client, Failed, HttpReply};
use super::options::{ApiFormat, ApiTurnOptions};
use super::output_stream::OutputStream;
use super::reply::{ApiRefusal, ModelReply, Reading, ReplyStep, StopReason, ToolCall, ToolOutcome};
use super::session::ApiSession;
use super::sse::Events;
use super::tools::{self, Done, Toolbox};
use super::{limit, messages, responses};
use crate::agent::record;
use crate::{clock, prices};

/// Calls of one reply that are performed; the rest is refused.
const MOST_CALLS: usize = 32;
/// Unknown events that are reported one by one; further ones are noise.
const MOST_UNKNOWN: u32 = 100;
/// Characters of the final text that are reported.
const LAST_WORDS: usize = 4_000;
/// Characters per token, roughly, to estimate a request that was never accounted for.
const LETTERS_IN_TOKEN: u64 = 4;

/// The exchange with the model within one turn.
pub(super) struct Conversation<'a, 'o> {
    options: &'a ApiTurnOptions,
    client: Client,
    session: ApiSession,
    output: &'a mut OutputStream<'o>,
    /// The configured prices, else those of the list.
    prices: Option<Prices>,
    spent_microusd: u64,
    spent_tokens: u64,
}

impl<'a, 'o> Conversation<'a, 'o> {
    pub(super) fn new(
        options: &'a ApiTurnOptions,
        client: Client,
        session: ApiSession,
        output: &'a mut OutputStream<'o>,
    ) -> Self {
        let prices = options.prices.or_else(|| prices::of(&options.model).map(|known| known.prices));
        Self { options, client, session, output, prices, spent_microusd: 0, spent_tokens: 0 }
    }

    /// Runs to the end and returns the final text.
    pub(super) fn hold(mut self, prompt: &str) -> Result<String, ApiRefusal> {
        let toolbox = Toolbox::new(self.options).map_err(ApiRefusal::plain)?;
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
                StopReason::Done => return Ok(reply.text.chars().take(LAST_WORDS).collect()),
                StopReason::Declined(why) => return Err(ApiRefusal::plain(why)),
                StopReason::Length => {
                    let more = "Your answer was cut off at its longest allowed length. Go on where it stopped.";
                    self.session.push(&self.prompt(more))?;
                }
            }
        }
        Err(ApiRefusal::plain(format!("stopped after {} requests, the limit of a turn", self.options.max_requests)))
    }

    fn may_go_on(&self) -> Result<(), ApiRefusal> {
        if !self.output.is_heard() {
            return Err(ApiRefusal::plain("the output is closed"));
        }
        if let Some(left) = self.options.left_tokens.filter(|left| self.spent_tokens >= *left) {
            return Err(ApiRefusal::plain(format!("stopped: the {left} tokens for this turn are used up")));
        }
        match self.options.left_microusd.filter(|left| self.prices.is_some() && self.spent_microusd >= *left) {
            Some(left) => {
                Err(ApiRefusal::plain(format!("stopped: the {left} millionths of a dollar for this turn are used up")))
            }
            None => Ok(()),
        }
    }

    fn prompt(&self, text: &str) -> Value {
        match self.options.wire {
            ApiFormat::Messages => messages::prompt(text),
            ApiFormat::Responses => responses::prompt(text),
        }
    }

    /// A killed turn can leave calls without a result, and both vendors refuse to continue after
    /// those.
    fn close_open_calls(&mut self) -> Result<(), ApiRefusal> {
        let items = self.session.items();
        let open = match self.options.wire {
            ApiFormat::Messages => messages::open_calls(items),
            ApiFormat::Responses => responses::open_calls(items),
        };
        let text = "error: the turn was interrupted during this call; it may have had an effect or not";
        let closed = open.into_iter().map(|call| (call, ToolOutcome { text: text.to_owned(), ok: false }));
        self.answer(&closed.collect::<Vec<_>>())
    }

    fn answer(&mut self, done: &[(ToolCall, ToolOutcome)]) -> Result<(), ApiRefusal> {
        if done.is_empty() {
            return Ok(());
        }
        let items = match self.options.wire {
            ApiFormat::Messages => messages::outcomes(done),
            ApiFormat::Responses => responses::outcomes(done),
        };
        items.iter().try_for_each(|item| self.session.push(item))
    }

    fn perform(&mut self, toolbox: &Toolbox, calls: Vec<ToolCall>) -> Result<(), ApiRefusal> {
        let mut done = Vec::new();
        for (n, call) in calls.into_iter().enumerate() {
            let input = call.input.as_ref().unwrap_or(&Value::Null);
            let timeout = (call.name == "shell").then(|| tools::timeout(input).as_millis() as u64);
            self.output.say(&AgentEvent::ToolStarted {
                id: call.id.clone(),
                name: call.name.clone(),
                fingerprint: fingerprint(&[&call.name, &input.to_string()]),
                timeout_ms: timeout,
                subagent: false,
                input: record::brief(input),
            });
            let outcome = if n < MOST_CALLS {
                match toolbox.perform(&call) {
                    Done::Run(outcome) => outcome,
                    Done::Denied(outcome) => {
                        self.output.say(&AgentEvent::Denied { tool: call.name.clone() });
                        outcome
                    }
                }
            } else {
                ToolOutcome { text: "error: too many calls at once; repeat this one".to_owned(), ok: false }
            };
            let error = (!outcome.ok).then(|| fingerprint(&[&outcome.text]));
            self.output.say(&AgentEvent::ToolEnded {
                id: call.id.clone(),
                error,
                output: record::excerpt(&outcome.text),
            });
            done.push((call, outcome));
        }
        self.answer(&done)
    }

    /// One request, with one immediate retry if the connection broke before the first byte of the
    /// response: a kept-alive connection that the server has closed looks like that. All other
    /// waiting is the supervisor's.
    fn ask(&mut self) -> Result<ModelReply, ApiRefusal> {
        let body = match self.options.wire {
            ApiFormat::Messages => messages::request(self.options, self.session.items()),
            ApiFormat::Responses => responses::request(self.options, self.session.items()),
        };
        let body =
            serde_json::to_vec(&body).map_err(|e| ApiRefusal::plain(format!("cannot encode the request: {e}")))?;
        let answer = match self.client.post(&body) {
            Err(Failed::Reset(_)) => {
                let class = Some(LimitClass::Network);
                self.output.say(&AgentEvent::Retrying {
                    attempt: 1,
                    delay_ms: Some(0),
                    class,
                    until: None,
                    text: String::new(),
                });
                self.client.post(&body)
            }
            other => other,
        };
        match answer {
            Ok(HttpReply::Stream(stream)) => {
                let estimate = body.len() as u64 / LETTERS_IN_TOKEN;
                match self.options.wire {
                    ApiFormat::Messages => self.read(Events::new(stream), messages::MessagesReply::default(), estimate),
                    ApiFormat::Responses => {
                        self.read(Events::new(stream), responses::ResponsesReply::default(), estimate)
                    }
                }
            }
            Ok(HttpReply::Error { status, headers, body }) => {
                Err(limit::of_answer(status, &headers, &body, clock::now()))
            }
            Err(Failed::Reset(refusal) | Failed::Other(refusal)) => Err(refusal),
        }
    }

    fn read(
        &mut self,
        mut events: Events<impl std::io::Read>,
        mut answer: impl Reading,
        estimate: u64,
    ) -> Result<ModelReply, ApiRefusal> {
        let beat = AgentEvent::Context { used: estimate, window: self.options.context_window };
        let ended = self.read_on(&mut events, &mut answer, &beat);
        self.output.flush();
        let mut used = answer.used();
        if used == Usage::default() {
            // The response broke off before the vendor counted. The input was read and will be
            // charged.
            used.input = estimate;
        }
        self.account(used);
        ended.map(|()| answer.finish())
    }

    fn read_on(
        &mut self,
        events: &mut Events<impl std::io::Read>,
        answer: &mut impl Reading,
        beat: &AgentEvent,
    ) -> Result<(), ApiRefusal> {
        let mut unknown = 0;
        while let Some(data) = events.next()? {
            if data == b"[DONE]" {
                continue;
            }
            let step = match serde_json::from_slice::<Value>(&data) {
                Ok(event) => answer.take(&event, &mut |crumb| self.output.words(crumb))?,
                Err(_) => ReplyStep::Unknown,
            };
            match step {
                ReplyStep::Over => return Ok(()),
                ReplyStep::More => self.output.beat(beat),
                ReplyStep::Unknown if unknown < MOST_UNKNOWN => {
                    unknown += 1;
                    self.output.say(&AgentEvent::Unknown);
                }
                ReplyStep::Unknown => {}
            }
        }
        Err(ApiRefusal::seen("api.cut", LimitClass::Network, "the answer ended before it was complete"))
    }

    fn account(&mut self, used: Usage) {
        self.spent_microusd = self.spent_microusd.saturating_add(self.prices.map_or(0, |prices| prices.cost(&used)));
        self.spent_tokens = self.spent_tokens.saturating_add(used.tokens());
        // Dollars by the list are an estimate, which is marked as one where the turn is charged.
        let microusd = self.options.prices.map(|prices| prices.cost(&used));
        self.output.say(&AgentEvent::Used(Usage { microusd, ..used }));
        self.output.say(&AgentEvent::Context { used: used.tokens(), window: self.options.context_window });
    }
}

/// A stable fingerprint (FNV-1a).
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain(std::iter::once(0)));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
