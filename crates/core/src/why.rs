//! Explains any state in one paragraph: the rule, its inputs, and when it will change. Only reads
//! the decision.

use crate::event::{LoopEnd, StopCause, used_up};
use crate::judge;
use crate::reason::{Reason, RuleId};
use crate::research::ladder::Rung;
use crate::research::row::short;
use crate::research::summary::change;
use crate::state::{LoopState, Phase, Turn, TurnStage};
use crate::time::{Time, human};
use crate::watch::{PARKED, WATCHING};

/// Why the loop is in its present phase. `clock` prints a point in time for the reader's time zone.
pub fn why(state: &LoopState, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let subject = format!("Loop {} ({})", state.id, state.name);
    let passing = so_far(state);
    let now = match &state.phase {
        Phase::New if state.progress.baseline.is_some() => {
            format!("{subject} runs its checks again, because something changed or it was woken.")
        }
        Phase::New => format!("{subject} is taking its baseline: the checks run once before the first turn."),
        Phase::Ready => {
            format!("{subject} is between turns and starts the next one as soon as a supervisor runs; {passing}.")
        }
        Phase::Waiting { reason, .. } if [WATCHING, PARKED].contains(&reason.rule) => {
            format!("{subject} {}; {passing}.", watches(state, reason))
        }
        Phase::Waiting { reason, .. } if reason.rule == RuleId::Resting => {
            format!("{subject} {}; {passing}.", rests(state, reason, now, clock))
        }
        Phase::Waiting { reason, .. } => format!("{subject} waits: {} {passing}.", waiting(reason, now, clock)),
        Phase::Turn(turn) => format!("{subject} {} {passing} on the work so far.", at_work(turn, now, clock)),
        Phase::Ended { ending, at } => {
            format!("{subject} ended at {}: {} {passing}.", clock(*at), ended(state, ending))
        }
    };
    let now = match doubted(state) {
        Some(doubted) => format!("{now} The last turn {doubted}."),
        None => now,
    };
    let now = match stuck(state) {
        Some(stuck) => format!("{now} {stuck}"),
        None => now,
    };
    let told = state.people.tickets.iter().any(|key| key.starts_with("stagnation"));
    match another_way(state) {
        Some(tries) if told => format!("{now} It {tries}; that did not help either, and a ticket was opened."),
        Some(tries) => format!("{now} It {tries}; if that does not help either, a ticket is opened."),
        None => now,
    }
}

/// How far the loop is: its checks, or its metric.
fn so_far(state: &LoopState) -> String {
    let board = &state.progress.board;
    match (state.spec.research.as_deref(), state.research.as_deref()) {
        (Some(spec), Some(found)) => {
            let (best, baseline) = (found.champion.value(), found.baseline);
            let better = change(best, baseline, spec.metric.direction);
            let (number, best, baseline) = (found.champion.number, short(best), short(baseline));
            format!("best is {best} of experiment {number} (baseline {baseline}, {better})")
        }
        _ => format!("{} of {} checks pass", board.passing().len(), board.0.len()),
    }
}

/// Describes the rung of a research run's ladder: which, since when, and why.
fn stuck(state: &LoopState) -> Option<String> {
    let found = state.research.as_deref()?;
    let (rung, since) = (found.rung()?, found.since_keep());
    let first = found.champion.number + Rung::began(since) + 1;
    let line = match &found.line {
        Some(line) => format!(" (experiment {})", line.from),
        None => String::new(),
    };
    let (label, describe) = (rung.label(), rung.describe());
    let ends = if state.is_over() { "" } else { "; the run goes on" };
    Some(format!(
        "{since} experiments in a row were not kept; from experiment {first} on: {describe}{line} \
         [research.{label}]{ends}."
    ))
}

/// A persona that sleeps: until when, and what waits for it.
fn rests(state: &LoopState, reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let word = state.persona_status().map_or("asleep", |status| status.as_str());
    let look = match reason.until {
        Some(at) if at > now => format!("it looks again in {} (at {})", human(at.since(now)), clock(at)),
        _ => "it looks again as soon as a supervisor runs".to_owned(),
    };
    let waiting = state.persona.as_ref().map_or(0, |persona| persona.waiting);
    let signals = if waiting == 1 { "1 signal waits".to_owned() } else { format!("{waiting} signals wait") };
    format!("is {word}: there is nothing to do; {look} [{}]; {signals}", reason.rule)
}

/// Describes a suspicious pass of the last turn.
pub fn doubted(state: &LoopState) -> Option<String> {
    let doubts = judge::doubts(state);
    Some(format!("had a suspicious pass, which does not count: {}", doubts.first()?.join(", ")))
}

/// Describes the change of strategy, with its start and its cause.
pub fn another_way(state: &LoopState) -> Option<String> {
    let change = state.progress.strategy.as_ref().filter(|_| !state.is_over())?;
    let (what, rule) = (stagnation(&change.reason), &change.reason.rule);
    Some(format!("tries another way since turn {}, because there was {what} [{rule}]", change.from_turn))
}

/// The threshold that was exceeded without progress.
pub fn stagnation(reason: &Reason) -> String {
    let input = |name| reason.input(name);
    match &reason.rule {
        RuleId::StagnationTurns => format!("no progress for {} turns", input("turns")),
        RuleId::StagnationTime => format!("no progress for {} of work", input("worked")),
        _ => format!("no progress for {}", input("spent")),
    }
}

fn at_work(turn: &Turn, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let age = human(now.since(turn.started_at));
    let canary = if turn.permit.canary.is_some() { " It is a trial start during a freeze." } else { "" };
    let stop = match turn.stopping {
        Some(StopCause::Person) => " It is being stopped by a person.",
        Some(StopCause::Stuck) => " It is being stopped: no sign of life.",
        Some(StopCause::Spinning) => " It is being stopped: it does the same again and again.",
        Some(StopCause::NoDiff) => " It is being stopped: it goes on and changes nothing.",
        Some(StopCause::Lingers) => " It is being stopped: it has finished and does not end.",
        Some(StopCause::Budget) => " It is being stopped: the budget is used up.",
        Some(StopCause::Announced) => " It is being stopped: it announced a long wait for its vendor.",
        Some(StopCause::Wall) => " It is being stopped: its time is up.",
        Some(StopCause::Shutdown) => " It is being stopped: the supervisor goes down.",
        None => "",
    };
    match turn.stage {
        TurnStage::Running => {
            let why = turn.chosen.as_ref().map(|reason| choice(reason, now, clock));
            let who = why.map_or(String::new(), |why| format!(" The agent `{}` has it: {why}.", turn.agent));
            format!("has the agent at work on turn {} ({}) for {age}.{who}{canary}{stop}", turn.number, turn.id)
        }
        TurnStage::Judging => format!("runs the checks on the work of turn {} ({}).", turn.number, turn.id),
        TurnStage::Measuring => format!("measures the work of turn {} ({}).", turn.number, turn.id),
        TurnStage::Integrating => {
            format!("moves the work of turn {} ({}) onto the target branch.", turn.number, turn.id)
        }
    }
}

fn watches(state: &LoopState, reason: &Reason) -> String {
    let names: Vec<&str> = state.spec.watch.monitors.iter().map(|m| m.name.as_str()).collect();
    let wakes = "a change, a message, a task or `everloop wake` starts a turn";
    let names = names.join(", ");
    match &reason.rule {
        RuleId::Parked => format!(
            "is parked: its monitors ({names}) had nothing new in {} beats, so they are probed more rarely; {wakes} [{PARKED}]",
            reason.input("beats")
        ),
        _ => format!("has nothing to do and watches ({names}) without using any tokens; {wakes} [{WATCHING}]"),
    }
}

fn ended(state: &LoopState, ending: &LoopEnd) -> String {
    let again = format!("`everloop resume {}` goes on.", state.id);
    match ending {
        LoopEnd::Reached if state.spec.research.is_some() => "the goal value is reached;".to_owned(),
        LoopEnd::Reached => "the goal is reached, all checks pass;".to_owned(),
        LoopEnd::Exhausted { bound } => format!("not reached, because its {}; {again}", used_up(bound)),
        LoopEnd::Stopped { by } => format!("it was stopped by {by}; {again}"),
        LoopEnd::Failed { why } => format!("it cannot go on: {why}; {again}"),
    }
}

fn paced(reason: &Reason) -> String {
    let input = |name| reason.input(name);
    let used =
        format!("{} of the window `{}` of the account `{}` are used", input("used"), input("window"), input("account"));
    let leads = match input("at_reset") {
        "" => String::new(),
        all => format!(", with {} of its time gone (at this pace {all} by its reset)", input("elapsed")),
    };
    format!("{used}{leads}, and the loop is paced to make it last")
}

/// Why a turn was given to this one of the loop's agents.
pub fn choice(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    match &reason.rule {
        RuleId::AgentPreferred => "the first of the loop's agents".to_owned(),
        RuleId::AgentFits => fits(reason),
        RuleId::AgentChange => instead(reason),
        _ => format!("another one would have been first, but {}", waiting(reason, now, clock).trim_end_matches('.')),
    }
}

fn fits(reason: &Reason) -> String {
    let (kind, priority) = (reason.input("kind"), reason.input("priority"));
    format!("the first of the loop's agents for tasks of kind `{kind}` with priority {priority}")
}

fn instead(reason: &Reason) -> String {
    format!("another way is tried, because nothing got better while `{}` was at work", reason.input("agent"))
}

fn barred_by(reason: &Reason) -> String {
    match reason.input("by") {
        "experience" => "experience".to_owned(),
        by => format!("`{by}`"),
    }
}

/// The response of the immune system to a subject, and its cause.
pub fn quarantined(reason: &Reason) -> String {
    let input = |name| reason.input(name);
    let who = input("subject");
    let fails = format!(
        "{who} fails in {} of its turns, others in {} ({} turns were compared)",
        input("fails"),
        input("others"),
        input("outcomes")
    );
    match (&reason.rule, input("instead")) {
        (RuleId::ImmuneOut, _) => format!("{fails}: quarantined, {}", input("how")),
        (RuleId::ImmuneFailed, _) => format!("{who} failed its trial and stays quarantined"),
        (RuleId::ImmunePassed, _) => format!("{who} passed its trial and gets half of its work for a while"),
        (RuleId::ImmuneSoft, "") => format!("{fails}: it gets half of its work"),
        (RuleId::ImmuneSoft, cap) => {
            format!("{fails}: it gets half of its work, because {}", spared(&RuleId::from(cap)))
        }
        (RuleId::ImmuneClean, _) => format!("{who} had {} turns without a charge", input("beats")),
        (RuleId::ImmuneCap, _) => format!("{who} is released: the fleet became smaller"),
        (RuleId::ImmuneCharge, _) => fails,
        (other, _) => format!("{who} ({other})"),
    }
}

/// Why a subject was not quarantined.
pub fn spared(cap: &RuleId) -> &'static str {
    match cap {
        RuleId::ImmuneThird => "at most a third of the nodes may be quarantined",
        RuleId::ImmuneNobody => "no worker would be left",
        RuleId::ImmuneChoice => "fewer than two ways to go on would be left",
        _ => "half of them fail at once, which rather points to a shared cause",
    }
}

/// A wait after a failure, or one that the agent requested.
pub fn backed_off(why: &str, failures: &str) -> String {
    match (why.strip_prefix("failure: "), failures) {
        (None, _) => why.to_owned(),
        (Some(how), "" | "0" | "1") => format!("the last turn failed ({how})"),
        (Some(how), n) => format!("the last {n} turns failed ({how})"),
    }
}

/// When a wait ends, or what ends it.
fn how_it_ends(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    match reason.until {
        Some(at) if at > now => format!("; it goes on in {} (at {})", human(at.since(now)), clock(at)),
        Some(_) => "; it goes on as soon as a supervisor runs".to_owned(),
        None if reason.rule == RuleId::Unattended => {
            "; the same `everloop run` goes on with it, or `everloop resume` in the background".to_owned()
        }
        None if reason.rule == RuleId::Variables => "; run the same `everloop run` command again".to_owned(),
        None if reason.rule == RuleId::ChecksBroken => {
            "; mend it and run the same `everloop run` again (`everloop wake` in the background); if a turn is meant to \
             mend it, add --yes (`start_broken`)"
                .to_owned()
        }
        None if reason.rule == RuleId::Paused => "; `everloop resume` ends it".to_owned(),
        None if reason.rule.as_str().starts_with("immune.") || reason.rule == RuleId::ResearchOthers => String::new(),
        None if reason.rule == RuleId::AgentNone => {
            "; change `kinds` or priorities and `everloop config apply`".to_owned()
        }
        None if reason.rule == RuleId::AgentRefused => {
            "; change its model or settings and `everloop config apply`, or try again with `everloop wake`".to_owned()
        }
        None => "; only a person ends it: `everloop guard release`".to_owned(),
    }
}

/// A sentence for every rule, with its inputs.
pub fn waiting(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let input = |name| reason.input(name);
    if reason.rule == WATCHING {
        return format!("there is nothing to do; {} monitors are watched [{WATCHING}].", input("monitors"));
    }
    if reason.rule == PARKED {
        return format!("nothing new in {} beats; it is parked and watches more rarely [{PARKED}].", input("beats"));
    }
    let said = match &reason.rule {
        RuleId::Resting => "there is nothing to do".to_owned(),
        RuleId::Paused if input("reason").is_empty() => format!("it was paused by {}", input("by")),
        RuleId::Paused => format!("it was paused by {} ({})", input("by"), input("reason")),
        RuleId::Asleep if input("reason").is_empty() => format!("it was put to sleep by {}", input("by")),
        RuleId::Asleep => format!("it was put to sleep by {} ({})", input("by"), input("reason")),
        RuleId::Unattended => "the terminal that it was started from is gone, and it was not detached".to_owned(),
        RuleId::Variables => format!(
            "it needs {} of the `everloop run` that started it, and its supervisor was started again without",
            input("names")
        ),
        RuleId::ChecksBroken => format!(
            "no turn starts, because every check that does not pass is broken: {}: {}",
            input("check"),
            input("why")
        ),
        RuleId::GuardFreeze => {
            let scope = if input("scope") == "all" { "everything" } else { input("scope") };
            match input("by") {
                "" => format!("{scope} is frozen ({}): {}", input("cause"), input("audit")),
                by => format!("{scope} is held by {by}: {}", input("audit")),
            }
        }
        RuleId::GuardLimit => {
            format!("the vendor limits the account `{}` ({}): {}", input("account"), input("class"), input("said"))
        }
        RuleId::GuardPace => paced(reason),
        RuleId::GuardSpread => {
            format!("the loops that waited for the account `{}` start one after the other", input("account"))
        }
        RuleId::GuardCooldown => {
            format!("{} cools down (Frosty, level {}) because starts died young", input("scope"), input("level"))
        }
        RuleId::GuardGap if !input("no_op_turns").is_empty() => format!(
            "the gap between starts was stretched to {} after {} turns that changed nothing",
            input("gap"),
            input("no_op_turns")
        ),
        RuleId::GuardGap => format!("at least {} lie between two starts", input("gap")),
        RuleId::GuardBackoff => backed_off(input("why"), input("failures")),
        RuleId::GuardCap => format!("{} of {} starts per {} are used", input("used"), input("cap"), input("window")),
        RuleId::GuardBudget => {
            format!("{} of {} ({}) are used or set aside", input("used"), input("budget"), input("bound"))
        }
        RuleId::GuardBucket => format!("the account `{}` may start once per {}", input("account"), input("every")),
        RuleId::AgentNone => {
            let (kind, priority) = (input("kind"), input("priority"));
            format!("none of the loop's agents takes tasks of kind `{kind}` with priority {priority}")
        }
        RuleId::AgentRefused => {
            format!("the request of the agent `{}` itself is refused: {}", input("agent"), input("said"))
        }
        RuleId::ImmuneSoft | RuleId::ImmuneOut | RuleId::ImmunePassed | RuleId::ImmuneFailed => quarantined(reason),
        RuleId::ImmuneRule => format!("a rule of {} holds: {} ({})", barred_by(reason), input("says"), input("why")),
        RuleId::ImmuneDoubt => {
            format!("its last {} turns failed, and another one shows whether it is the cause", input("failures"))
        }
        RuleId::ResearchOthers => format!("the experiments under way are the last ones of {}", input("of")),
        RuleId::GuardSlots => format!("{} of {} turns already run on this node", input("running"), input("slots")),
        other => other.to_string(),
    };
    let end = how_it_ends(reason, now, clock);
    format!("{said}{end} [{}].", reason.rule)
}
