//! Marks: what a run met. A simulation that never meets a freeze proves nothing about freezes; the
//! tests require all marks.

use everloop_core::event::{Event, LoopEnd, Pattern};
use everloop_core::immune::ImmuneStep;
use everloop_core::watch::{PARKED, WATCHING};

/// Everything that the random worlds together must have met.
pub const MARKS: &[&str] = &[
    "waiting",
    "watching",
    "parked",
    "first look",
    "signalled",
    "keepalive",
    "paced",
    "started",
    "started as a trial",
    "returned",
    "reached",
    "progress",
    "not yet",
    "no-op",
    "refused",
    "regressed",
    "agent failed",
    "task failed",
    "interrupted",
    "lost",
    "limited",
    "account limited",
    "agent switched",
    "paused",
    "resumed",
    "stop asked",
    "steered",
    "stopping",
    "cooldown",
    "backoff",
    "frozen",
    "released",
    "no-ops",
    "same error",
    "ping-pong",
    "stagnation",
    "strategy changed",
    "ticket opened",
    "ticket closed",
    "ended reached",
    "ended exhausted",
    "ended stopped",
    "recovered",
    "conflict",
    "late_result",
    "disk full",
    "late shim locked out",
    "orphan reaped",
    "turn adopted",
    "landed before",
    "power loss",
    "power loss with unsynced data",
];

pub(super) fn of(event: &Event) -> &'static str {
    match event {
        Event::Waiting { reason } if reason.rule == "guard.pace" => "paced",
        Event::Waiting { reason } if reason.rule == WATCHING => "watching",
        Event::Waiting { reason } if reason.rule == PARKED => "parked",
        Event::Waiting { .. } => "waiting",
        Event::Signalled { task: None, .. } => "first look",
        Event::Signalled { .. } => "signalled",
        Event::Keepalive { .. } => "keepalive",
        Event::TurnStarted { permit, .. } if permit.canary.is_some() => "started as a trial",
        Event::TurnStarted { .. } => "started",
        Event::TurnReturned { .. } => "returned",
        Event::TurnEnded { outcome, .. } => outcome.label(),
        Event::Paused { .. } => "paused",
        Event::Resumed { .. } => "resumed",
        Event::StopAsked { .. } => "stop asked",
        Event::Steered { .. } => "steered",
        Event::WorkTaken { .. } => "work taken",
        Event::Stopping { .. } => "stopping",
        Event::Cooldown { .. } => "cooldown",
        Event::Backoff { .. } => "backoff",
        Event::DelayLifted { .. } => "delay lifted",
        Event::CliStarted { .. } => "cli started",
        Event::Limited { .. } => "account limited",
        Event::AgentSwitched { .. } => "agent switched",
        Event::AgentRefused { .. } => "agent refused",
        Event::PriceUnknown { .. } => "price unknown",
        Event::Frozen { .. } => "frozen",
        Event::Released { .. } => "released",
        Event::Noticed { pattern: Pattern::NoOps, .. } => "no-ops",
        Event::Noticed { pattern: Pattern::SameError, .. } => "same error",
        Event::Noticed { pattern: Pattern::PingPong, .. } => "ping-pong",
        Event::Noticed { pattern: Pattern::Stagnation, .. } => "stagnation",
        Event::StrategyChanged { .. } => "strategy changed",
        Event::TicketOpened { .. } => "ticket opened",
        Event::TicketClosed { .. } => "ticket closed",
        Event::Ended { ending: LoopEnd::Reached } => "ended reached",
        Event::Ended { ending: LoopEnd::Exhausted { .. } } => "ended exhausted",
        Event::Ended { ending: LoopEnd::Stopped { .. } } => "ended stopped",
        Event::Ended { ending: LoopEnd::Failed { .. } } => "ended failed",
        Event::Recovered { .. } => "recovered",
        Event::Immune { step } => match **step {
            ImmuneStep::Charged { .. } => "charged",
            ImmuneStep::Soft { .. } => "less work",
            ImmuneStep::Out { .. } => "quarantined",
            ImmuneStep::Trial { .. } => "tried again",
            _ => "other",
        },
        Event::LoopCreated { .. }
        | Event::SpecChanged { .. }
        | Event::Baselined { .. }
        | Event::Experiment { .. }
        | Event::Rhythm { .. }
        | Event::TurnExited { .. }
        | Event::TurnJudged { .. }
        | Event::Attached { .. }
        | Event::Detached { .. }
        | Event::Woken { .. }
        | Event::Forgotten
        | Event::InSession { .. }
        | Event::ConfigAccepted { .. }
        | Event::ConfigRevoked { .. }
        | Event::Note { .. } => "other",
    }
}
