//! One plain line per journal event, for `logs` and for progress where there is no terminal.

use everloop_core::event::{Event, Exit, Integrated, Judgement, LoopEnd, Outcome, Settled};
use everloop_core::guard::Freeze;
use everloop_core::hook::{SessionAct, Why};
use everloop_core::journal::JournalRecord;
use everloop_core::op::Trust;
use everloop_core::reason::{Reason, RuleId};
use everloop_core::research::row::short as number;
use everloop_core::research::sample::Contender;
use everloop_core::research::state::ExperimentStep;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::time::{Time, human};
use everloop_core::why;
use jiff::tz::TimeZone;

use super::persona;
use super::quantities::score;
use super::quantities::used_up;
use super::quantities::{Accuracy, clock, moment, money};
use super::quarantine;
use super::text::{clean, count, times};

/// A longer line is cut; the journal has the whole.
const LINE_MAX_CHARS: usize = 300;

/// `21:04:05 k3f9 turn 3 started`, in the reader's zone.
pub fn event_line(record: &JournalRecord, zone: &TimeZone) -> String {
    let owner = record.owner.as_ref().map_or("everloop", |id| id.as_str());
    let said = say(&record.event, record.at, zone);
    shortened(&format!("{} {owner} {said}", clock(record.at, zone)))
}

/// A text that is safe to print, cut where a line ends.
pub(super) fn shortened(text: &str) -> String {
    let line = clean(text);
    match line.char_indices().nth(LINE_MAX_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

fn by_a_person(event: &Event, by: &str) -> String {
    match event {
        Event::Attached { .. } => format!("belongs to a terminal (`{by}`)"),
        Event::Detached { .. } => format!("goes on without a terminal, wanted by {by}"),
        _ => format!("woken by {by}"),
    }
}

/// A line of an agent's output.
pub fn spoken(line: &str) -> String {
    format!("  | {}", shortened(line))
}

fn say(event: &Event, at: Time, zone: &TimeZone) -> String {
    let until = |time: &Time| moment(*time, at, zone);
    match event {
        Event::LoopCreated { name, spec } => format!("created loop `{name}`: {}", spec.goal),
        Event::SpecChanged { .. } => "settings changed by a person".to_owned(),
        Event::Baselined { board, .. } => baseline(board),
        Event::Experiment { step } => experiment(step),
        Event::Rhythm { step } => persona::step_line(step),
        Event::Waiting { reason } => {
            let sentence = why::waiting(reason, at, &|time| moment(time, at, zone));
            format!("waits: {}", sentence.trim_end_matches('.'))
        }
        Event::TurnStarted { turn, number, permit, resume, .. } => {
            let trial = if permit.canary.is_some() { ", a trial during a freeze" } else { "" };
            let goes_on = if resume.is_some() { ", the same session" } else { "" };
            format!("turn {number} started ({turn}{goes_on}{trial})")
        }
        Event::AgentSwitched { from, to, reason } => switched((from, to), reason, at, &|time| moment(time, at, zone)),
        Event::Limited { scope, limit, until: end, .. } => {
            format!("{scope} is limited until {} ({}: {})", until(end), limit.class, limit.text)
        }
        Event::PriceUnknown { agent, model } => unpriced(agent, model),
        Event::AgentRefused { agent, limit, .. } => refused(agent, &limit.text),
        Event::TurnExited { turn, exit } => format!("turn {turn}: {}", exited(exit)),
        Event::TurnJudged { turn, judgement } => format!("turn {turn}: {}", judged(judgement)),
        Event::TurnReturned { turn, why } => format!("turn {turn} is judged again: {why}"),
        Event::TurnEnded { turn, outcome, settled, integrated, .. } => {
            format!("turn {turn} ended: {}{}{}", amounts_to(outcome), reached_you(integrated.as_ref()), cost(settled))
        }
        Event::Signalled { monitor, task: None, .. } => format!("monitor `{monitor}` polled for the first time"),
        Event::Signalled { monitor, task: Some(task), what, .. } => {
            format!("monitor `{monitor}`: {what} (task {task})")
        }
        Event::Keepalive { number, after } if after.is_empty() => format!("watches (keepalive {number})"),
        Event::Keepalive { number, after } => format!("goes on watching (keepalive {number}): {after}"),
        Event::Attached { by } | Event::Detached { by } | Event::Woken { by } => by_a_person(event, by),
        Event::Forgotten => "forgotten: its state, tasks and folders are gone, this record stays".to_owned(),
        Event::Paused { by, reason, until: end } => {
            paused(by, reason, &end.map_or(String::new(), |end| format!(" until {}", until(&end))))
        }
        Event::Resumed { by, .. } => format!("resumed by {by}"),
        Event::StopAsked { by, now: true } => format!("stop requested by {by}, at once"),
        Event::StopAsked { by, now: false } => format!("stop requested by {by}, after this turn"),
        Event::Steered { by, message, trust: Trust::Operator } => format!("steered by {by}: {message}"),
        Event::Steered { by, message, trust: Trust::Agent } => format!("message from {by}: {message}"),
        Event::WorkTaken { by, commit } => format!("{} was taken by {by}", short(commit)),
        Event::Stopping { turn, cause } => format!("stops turn {turn}: {}", cause.describe()),
        Event::Cooldown { scope, until: end, level } => {
            format!("Frosty: {scope} cools down until {} (level {level})", until(end))
        }
        Event::Backoff { scope, until: end, why, .. } => format!("{scope} backs off until {} ({why})", until(end)),
        Event::CliStarted { agent, by, .. } => format!("{agent} was started by {by}"),
        Event::DelayLifted { by, .. } => format!("the delay that the agent requested was ended by {by}"),
        Event::Frozen { scope, freeze } => format!("Willy: {scope} is frozen {}", frozen(freeze, &until)),
        Event::Released { scope, by, reason } => format!("{scope} was released by {by}: {reason}"),
        Event::Noticed { pattern, turns } => format!("noticed {} for {}", pattern.label(), count(*turns, "turn")),
        Event::StrategyChanged { reason, .. } => {
            format!("tries another way, in a fresh session: {}", why::stagnation(reason))
        }
        Event::TicketOpened { key, text } => format!("ticket `{key}`: {text}"),
        Event::TicketClosed { key } => format!("ticket `{key}` is closed"),
        Event::Ended { ending } => format!("ended: {}", ended(ending)),
        Event::Recovered { found } => format!("supervisor restarted; it found turn {found}"),
        Event::InSession { session, name, did } => format!("session {session} ({name}) {}", in_session(did, &until)),
        Event::Immune { step } => quarantine::step(step, &until),
        Event::ConfigAccepted { dir, hash, by, via } => {
            format!("everloop.toml of {dir} is in force since `{via}` by {by} (sha256 {hash})")
        }
        Event::ConfigRevoked { dir, by } => format!("everloop.toml of {dir} is not in force any more: revoked by {by}"),
        Event::Note { text } => text.clone(),
    }
}

fn baseline(board: &Scoreboard) -> String {
    if board.0.is_empty() { "baseline: no checks".to_owned() } else { format!("baseline: {}", score(board)) }
}

fn refused(agent: &str, why: &str) -> String {
    format!("the agent `{agent}` is not started again, its request itself is refused: {why}")
}

fn paused(by: &str, reason: &str, end: &str) -> String {
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("paused by {by}{end}{why}")
}

fn switched((from, to): (&str, &str), reason: &Reason, at: Time, clock: &dyn Fn(Time) -> String) -> String {
    match &reason.rule {
        RuleId::AgentPreferred => format!("goes back from {from} to {to}, the first of the loop's agents"),
        RuleId::AgentFits => {
            let (kind, priority) = (reason.input("kind"), reason.input("priority"));
            format!("goes from {from} to {to}, the first for tasks of kind `{kind}` with priority {priority}")
        }
        RuleId::AgentChange => format!("goes from {from} to {to}: {}", why::choice(reason, at, clock)),
        _ => format!("switches from {from} to {to}: {}", why::waiting(reason, at, clock).trim_end_matches('.')),
    }
}

/// An event of a session, as a fragment.
pub fn in_session(did: &SessionAct, until: &dyn Fn(&Time) -> String) -> String {
    match did {
        SessionAct::Began { agent, source, dir } => format!("of {agent} began in {dir} ({source})"),
        SessionAct::Prompted { text } => format!("got a prompt: {text}"),
        SessionAct::Held { holds, failing } => {
            format!("wanted to stop and was held ({holds} in a row): {} fails", failing.join(", "))
        }
        SessionAct::NotHeld { failing } => {
            format!("stopped although it was held: {} does not pass", failing.join(", "))
        }
        SessionAct::LetGo { why } => format!("may stop: {}", let_go(why, until)),
        SessionAct::Refused { tool, path, why } => format!("was refused {tool} on {path}: {why}"),
        SessionAct::Restored { path, left_bytes: None } => format!("lost {path}, which was put back"),
        SessionAct::Restored { path, left_bytes: Some(n) } => {
            format!("cut {path} down to {n} bytes, and it was put back")
        }
        SessionAct::Parked { text, until: Some(end) } => {
            format!("is limited by its vendor until {}: {text}", until(end))
        }
        SessionAct::Parked { text, until: None } => format!("is limited by its vendor: {text}"),
        SessionAct::LooksComplete { rule, text } => format!("looks complete (`{rule}`): {text}; the checks decide"),
        SessionAct::HandedOff { at } => format!("handed off at its {at}"),
        SessionAct::Ended { reason } => format!("is over ({reason})"),
    }
}

fn let_go(why: &Why, until: &dyn Fn(&Time) -> String) -> String {
    match why {
        Why::Passes => "all checks pass".to_owned(),
        Why::Pending { what } => format!("it waits for {}", what.join(", ")),
        Why::Guard { what } => what.clone(),
        Why::Parked { until: end } => format!("its vendor limits it until {}", until(end)),
        Why::Unjudged { why } => format!("its work cannot be judged, {why}"),
        Why::Cap { holds } => format!("it was held {} and needs a person", times(*holds)),
    }
}

/// How the agent of a turn ended, as a fragment.
pub fn exited(exit: &Exit) -> String {
    let leftovers = match exit.leftovers {
        0 => String::new(),
        n => format!(
            ", {} had to be killed",
            if n == 1 { "a process left behind".to_owned() } else { format!("{n} processes left behind") }
        ),
    };
    format!("the agent ended after {}, {}{leftovers}", human(exit.ended_at.since(exit.started_at)), exit.describe())
}

/// What a turn changed and what its checks say, as a fragment.
pub fn judged(judgement: &Judgement) -> String {
    let mut parts = Vec::new();
    match (&judgement.error, judgement.changed) {
        (Some(error), _) => parts.push(format!("cannot judge the work: {error}")),
        (None, false) => parts.push("nothing was changed".to_owned()),
        (None, true) if judgement.diffstat.is_empty() => parts.push("changed".to_owned()),
        (None, true) => parts.push(judgement.diffstat.clone()),
    }
    if !judgement.violations.is_empty() {
        parts.push(format!("protected files touched: {}", judgement.violations.join(", ")));
    }
    if !judgement.board.0.is_empty() {
        parts.push(score(&judgement.board));
    }
    parts.extend(judgement.board.doubts().iter().map(|doubt| format!("suspicious pass of {doubt}")));
    parts.join("; ")
}

/// A step of an experiment.
fn experiment(step: &ExperimentStep) -> String {
    match step {
        ExperimentStep::Baseline { samples, row } => {
            let value = row.value.map_or_else(|| "no value".to_owned(), number);
            format!("metric before the first experiment: {value} ({})", count(samples.len() as u64, "measurement"))
        }
        ExperimentStep::Measured { subject, sample } => {
            let subject = match subject {
                Contender::Champion => "champion",
                Contender::Candidate => "candidate",
            };
            format!("measured the {subject} again: {}", sample.value().map_or_else(|| "no value".to_owned(), number))
        }
        ExperimentStep::Crashed { kind, .. } => {
            format!("the change crashed ({}): the next turn mends it", kind.label())
        }
        ExperimentStep::Decided { row } => {
            let delta = row.delta.map_or_else(String::new, |delta| format!(", {}{}", plus(delta), number(delta)));
            let value = row.value.map_or_else(String::new, |value| format!(" {}{delta}", number(value)));
            let (status, what) = (row.status.label(), shortened(&row.description));
            let cost = if row.microusd > 0 { format!(", {}", money(row.microusd)) } else { String::new() };
            format!("experiment {}: {status}{value}{cost} ({}): {what}", row.number, row.why)
        }
        ExperimentStep::Replayed { onto, .. } => {
            format!("the change was made again on the new champion {}, and measured there", shortened(onto))
        }
        ExperimentStep::Branched { from } => format!("every other experiment begins from experiment {from}"),
        ExperimentStep::Seeded { research } => {
            format!("makes experiment {} of a run that nodes share", research.ends_after.unwrap_or(research.number))
        }
        ExperimentStep::Calibrated { samples } => {
            format!("measured the champion on this machine ({})", count(samples.len() as u64, "measurement"))
        }
    }
}

fn plus(delta: f64) -> &'static str {
    if delta > 0.0 { "+" } else { "" }
}

/// An outcome with its details.
pub fn amounts_to(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { paths } => format!("refused, it touched protected files: {}", paths.join(", ")),
        Outcome::Regressed { lost } => format!("regressed, no longer passing: {}", lost.join(", ")),
        Outcome::AgentFailed { why, kept: true } => format!("agent failed ({why}), its partial work is kept"),
        Outcome::AgentFailed { why, kept: false } => format!("agent failed ({why})"),
        Outcome::Discarded { why } => format!("discarded ({why})"),
        Outcome::TaskFailed { why } => format!("task failed ({why})"),
        Outcome::Limited { class, .. } => format!("limited ({}), it goes on later", class.describe()),
        plain @ (Outcome::Reached
        | Outcome::Progress
        | Outcome::NotYet
        | Outcome::NoOp
        | Outcome::Interrupted
        | Outcome::Lost) => plain.label().to_owned(),
    }
}

fn reached_you(integrated: Option<&Integrated>) -> String {
    match integrated {
        Some(Integrated::Landed { commit }) => format!(", landed as {}", short(commit)),
        Some(Integrated::Aside { commit, why, .. }) => format!(", {} is not merged: {why}", short(commit)),
        Some(Integrated::InPlace) => ", in the folder".to_owned(),
        None => String::new(),
    }
}

fn unpriced(agent: &str, model: &str) -> String {
    let (agent, model) = (clean(agent), clean(model));
    format!("no price known for {model}: its dollars are not counted; set `prices` in [agent.{agent}]")
}

fn cost(settled: &Settled) -> String {
    match settled.spend.microusd {
        0 => String::new(),
        sum => format!(", {}{}", Accuracy::from(settled).of_dollars(), money(sum)),
    }
}

fn frozen(freeze: &Freeze, until: &dyn Fn(&Time) -> String) -> String {
    let end = freeze.until.as_ref().map_or("until a person releases it".to_owned(), |t| format!("until {}", until(t)));
    let who = freeze.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
    let audit = if freeze.audit.is_empty() { String::new() } else { format!(": {}", freeze.audit.join("; ")) };
    format!("{end}{who} ({}){audit}", freeze.cause)
}

/// How a loop ended, as a fragment.
pub(super) fn ended(ending: &LoopEnd) -> String {
    match ending {
        LoopEnd::Reached => "reached, all checks pass".to_owned(),
        LoopEnd::Exhausted { bound } => format!("not reached, its {}", used_up(bound)),
        LoopEnd::Stopped { by } => format!("not reached, stopped by {by}"),
        LoopEnd::Failed { why } => format!("failed: {why}"),
    }
}

/// Seven digits distinguish commits.
pub fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use everloop_core::event::{Pattern, StopCause};
    use everloop_core::guard::{Permit, Scope, Spend};
    use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
    use everloop_core::scoreboard::Verdict;

    use super::*;
    use everloop_testkit::sample::{START, board, spec};

    fn line(event: Event) -> String {
        let record = JournalRecord { seq: 1, at: START, owner: Some(LoopId::new("k3f9")), version: 1, event };
        event_line(&record, &TimeZone::UTC)
    }

    #[test]
    fn every_kind_of_event_has_a_line() {
        let turn = || TurnId::of(&TaskId::new("k3f9-3"), Fence(1));
        let permit = Permit { scopes: vec![], reserve: Spend::default(), canary: None, bucket: None };
        let exit = Exit { code: Some(0), started_at: START, ended_at: Time(START.0 + 65_000), ..Exit::default() };
        let half = board(&[("a", Verdict::Pass), ("b", Verdict::Fail)]);
        let judgement = Judgement {
            changed: true,
            diffstat: "2 files, +14 -3".into(),
            board: half.clone(),
            ..Judgement::default()
        };
        let settled =
            Settled { spend: Spend { calls: 1, tokens: 0, microusd: 100_000 }, estimated: true, ..Settled::default() };
        let landed = Some(Integrated::Landed { commit: "0123456789abcdef".into() });
        let reason = Reason::new(RuleId::GuardGap).with("gap", "15s").until(Time(START.0 + 12_000));
        let lines = [
            Event::LoopCreated { name: "tests".into(), spec: Box::new(spec()) },
            Event::Baselined { board: half, work: None },
            Event::Waiting { reason },
            Event::TurnStarted {
                turn: turn(),
                task: TaskId::new("k3f9-3"),
                fence: Fence(1),
                number: 3,
                permit,
                agent: String::new(),
                account: String::new(),
                resume: None,
                chosen: None,
            },
            Event::TurnExited { turn: turn(), exit },
            Event::TurnJudged { turn: turn(), judgement },
            Event::TurnEnded { turn: turn(), outcome: Outcome::Progress, settled, work: None, integrated: landed },
            Event::Stopping { turn: turn(), cause: StopCause::Wall },
            Event::Cooldown { scope: Scope::All, until: Time(START.0 + 60_000), level: 1 },
            Event::Noticed { pattern: Pattern::NoOps, turns: 3 },
            Event::StrategyChanged {
                reason: Reason::new(RuleId::StagnationTurns).with("turns", 10),
                agent: "claude".into(),
            },
            Event::Ended { ending: LoopEnd::Exhausted { bound: "turns".into() } },
        ]
        .map(line);
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn an_agent_cannot_paint_the_log() {
        let text = line(Event::Note { text: "a\u{1b}]0;owned\u{7}\nfake 00:00:00 line\u{202e}".into() });
        assert_eq!(text, "21:00:00 k3f9 a fake 00:00:00 line");
        assert!(line(Event::Note { text: "x".repeat(10_000) }).chars().count() <= LINE_MAX_CHARS + 1);
    }
}
