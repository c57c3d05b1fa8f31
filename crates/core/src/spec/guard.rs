//! The settings of the guard. Each is declared once, by a row of `settings!`: its field, its
//! default with the reason, its key in everloop.toml, how it is written there, its flag and
//! variable, and what it means. Everything that reads, shows or describes settings goes through
//! [`guard_settings`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{millis, opt_millis};

/// One setting of the guard.
#[derive(Clone, Copy, Debug)]
pub struct GuardSetting {
    /// Its key in `[loop.NAME.guard]`. Its flag has the same name with `-` for `_`.
    pub key: &'static str,
    /// What it means, as lines of a comment.
    pub doc: &'static [&'static str],
    /// How it is written, and where its value stands.
    pub field: GuardField,
    /// What the value of its flag is called in the help, if it has a flag.
    pub flag: Option<&'static str>,
    /// The environment variable that sets it.
    pub env: Option<&'static str>,
}

/// How a setting is written, and where its value stands.
#[derive(Clone, Copy)]
pub enum GuardField {
    /// A duration above zero.
    Span(fn(&mut GuardSpec) -> &mut Duration),
    /// A duration; zero is one.
    SpanOrZero(fn(&mut GuardSpec) -> &mut Duration),
    /// A duration above zero, or `"none"`.
    SpanOrNone(fn(&mut GuardSpec) -> &mut Option<Duration>),
    /// A number from 1 up.
    Count(fn(&mut GuardSpec) -> &mut u32),
    /// A number from 1 up, or `"none"`.
    CountOrNone(fn(&mut GuardSpec) -> &mut Option<u32>),
    /// Dollars, kept in millionths, or `"none"`.
    DollarsOrNone(fn(&mut GuardSpec) -> &mut Option<u64>),
    /// `true` or `false`.
    Switch(fn(&mut GuardSpec) -> &mut bool),
}

impl fmt::Debug for GuardField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardField::Span(_) => "Span",
            GuardField::SpanOrZero(_) => "SpanOrZero",
            GuardField::SpanOrNone(_) => "SpanOrNone",
            GuardField::Count(_) => "Count",
            GuardField::CountOrNone(_) => "CountOrNone",
            GuardField::DollarsOrNone(_) => "DollarsOrNone",
            GuardField::Switch(_) => "Switch",
        })
    }
}

/// `Some` of what a row has, `None` of what it has not.
macro_rules! maybe {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// The default of a row, or of its type.
macro_rules! default_or {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value
    };
}

/// The setting of a row, if it is one.
macro_rules! setting {
    ([$($doc:literal)+] |$guard:ident| $place:expr;) => {
        None
    };
    ([$($doc:literal)+] |$guard:ident| $place:expr; $kind:ident $key:literal [$($flag:literal)?] [$($env:literal)?]) => {
        Some(GuardSetting {
            key: $key,
            doc: &[$($doc),+],
            field: GuardField::$kind(|$guard| &mut $place),
            flag: maybe!($($flag)?),
            env: maybe!($($env)?),
        })
    };
}

/// Declares a struct of the guard that stands at a place in [`GuardSpec`], row by row: `field: Type
/// = default => Kind "key" flag "VALUE" env "VARIABLE";`. A row without `=>` is a field without a
/// setting. A field that is missing on disk has its default: it is younger than what was written.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident at |$guard:ident| $at:expr;
        $(
            $(#[doc = $doc:literal])+
            $(#[serde($($serde:tt)+)])?
            $field:ident: $type:ty $(= $default:expr)?
                $(=> $kind:ident $key:literal $(flag $flag:literal)? $(env $env:literal)?)?;
        )+
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)+)])?
                pub $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: default_or!($($default)?)),+ }
            }
        }

        impl $name {
            const SETTINGS: &'static [Option<GuardSetting>] = &[$(
                setting!([$($doc)+] |$guard| $at.$field; $($kind $key [$($flag)?] [$($env)?])?),
            )+];
        }
    };
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const MAX_NOOP_GAP: Duration = secs(15 * 60);

/// It is younger than the journals, which are written as before while it has its default.
fn is_usual_noop_gap(gap: &Duration) -> bool {
    *gap == MAX_NOOP_GAP
}

const CONFIRM: u32 = 2;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_usual_confirm(runs: &u32) -> bool {
    *runs == CONFIRM
}

settings! {
    /// When a turn may start, how long it may take, and when its loop is taken to be stuck.
    pub struct GuardSpec at |guard| guard;

    /// Least time between two starts. `"0"` also lifts the caps that you did not set.
    #[serde(rename = "gap", with = "millis")]
    // A model turn that ends sooner did nothing worth a second one at once.
    min_gap: Duration = secs(15) => SpanOrZero "min_gap" flag "TIME" env "EVERLOOP_MIN_GAP";

    /// Turns that change nothing stretch the gap, twofold each time from the third in a row, up to
    /// this. Not longer than `min_gap`: the gap is not stretched.
    #[serde(with = "millis", skip_serializing_if = "is_usual_noop_gap")]
    // An idle agent costs four starts an hour, and a change from elsewhere is seen soon enough.
    max_noop_gap: Duration = MAX_NOOP_GAP => Span "max_noop_gap";

    /// Most starts in a minute, an hour, a day.
    caps: StartCaps;

    /// What the loop may use in all.
    budget: Budget;

    /// Steady rate of an account, over all its loops.
    bucket: Option<BucketSpec>;

    /// Spread the allowance of the account's windows, so that it lasts until their reset: a start
    /// waits while more of it is used than time has gone, 5 % ahead (20 % for a task with a
    /// priority above 0).
    // A loop is not slowed down unless the operator wants that.
    pace: bool = false => Switch "pace" flag "";

    /// Turns that may run at once on this machine.
    #[serde(rename = "slots")]
    // Two agents saturate a laptop; four leave room for turns that wait on a model.
    max_parallel_turns: u32 = 4 => Count "max_parallel_turns";

    /// The short reflex, Frosty.
    #[serde(rename = "frosty")]
    cooldown: CooldownSpec;

    /// The deep reflex, Really Chill Willy.
    #[serde(rename = "willy")]
    freeze: FreezeSpec;

    /// First wait after an agent failed; it doubles.
    #[serde(with = "millis")]
    backoff_first: Duration = secs(10) => Span "backoff_first";

    /// The longest such wait.
    #[serde(with = "millis")]
    backoff_cap: Duration = secs(300) => Span "backoff_cap";

    /// A turn that takes longer is stopped.
    #[serde(rename = "turn_wall", with = "millis")]
    // Long enough for a big refactoring, short enough that a night has several tries.
    turn_timeout: Duration = secs(2 * 3600) => Span "turn_timeout" flag "TIME";

    /// A turn without any sign of life for this long is stopped.
    #[serde(rename = "turn_silence", with = "millis")]
    // Without a stream there is only evidence: output, CPU, children, changed files.
    turn_idle_timeout: Duration = secs(600) => Span "turn_idle_timeout" flag "TIME";

    /// How long an agent with a stream may be silent, by what it is busy with.
    phases: PhaseLimits;

    /// Turns without progress after which another way is tried, and after as many more you are
    /// notified.
    stagnation_turns: u32 = 10 => Count "stagnation_turns";

    /// The same as time that turns took without progress.
    #[serde(with = "opt_millis", skip_serializing_if = "Option::is_none")]
    stagnation_time: Option<Duration> = None => SpanOrNone "stagnation_time";

    /// The same as dollars that were used without progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    stagnation_microusd: Option<u64> = None => DollarsOrNone "stagnation_usd";

    /// Try another way first: a fresh conversation, the next of the loop's agents, and a prompt
    /// that requests another approach. `false`: you are notified at once.
    #[serde(skip_serializing_if = "is_on")]
    // A fresh start costs one conversation; a needless call of a person costs trust.
    stagnation_change: bool = true => Switch "stagnation_change";

    /// Start turns although every check that does not pass is broken: its command is missing, or it
    /// hangs. `run --yes` sets it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    // A turn that no check can judge is money for nothing.
    start_broken: bool = false => Switch "start_broken";

    /// Runs that must agree before the goal counts as reached: when all checks pass, those that
    /// failed at the baseline run again, until each has run so often. 1 with agents that are free.
    #[serde(skip_serializing_if = "is_usual_confirm")]
    // One more run of the checks ends most luck, and costs it once per loop.
    confirm: u32 = CONFIRM => Count "confirm";
}

settings! {
    /// Most starts per window; `None` is no cap.
    #[derive(Eq)]
    pub struct StartCaps at |guard| guard.caps;

    /// Most starts in any minute.
    per_minute: Option<u32> = None => CountOrNone "per_minute";

    /// Most starts in any hour.
    // Above what one busy loop does in good health, far below what a runaway does; the gap rules
    // the minute.
    per_hour: Option<u32> = Some(100) => CountOrNone "per_hour";

    /// Most starts in any day.
    per_day: Option<u32> = Some(1000) => CountOrNone "per_day";
}

settings! {
    /// A token bucket: `burst` starts at once, then one per `every`.
    #[derive(Eq)]
    pub struct BucketSpec at |guard| guard.bucket.get_or_insert_default();

    /// Starts that an account may make at once (together with `bucket_every`).
    burst: u32 => Count "bucket_burst";

    /// Time after which an account may make one more start (together with `bucket_burst`).
    #[serde(with = "millis")]
    every: Duration => Span "bucket_every";
}

settings! {
    /// Frosty: starts that die young bring a cooldown.
    #[derive(Eq)]
    pub struct CooldownSpec at |guard| guard.cooldown;

    /// Frosty: this many starts that die young…
    deaths: u32 = 3 => Count "cooldown_deaths";

    /// …within this time, or in a row without progress…
    #[serde(with = "millis")]
    window: Duration = secs(20) => Span "cooldown_window";

    /// …bring a cooldown of this length, which doubles while it repeats…
    #[serde(rename = "cooldown", with = "millis")]
    first: Duration = secs(60) => Span "cooldown_first";

    /// …up to this.
    #[serde(with = "millis")]
    cap: Duration = secs(900) => Span "cooldown_cap";

    /// A failed turn shorter than this died young.
    #[serde(with = "millis")]
    young: Duration = secs(20) => Span "cooldown_young";
}

settings! {
    /// Really Chill Willy: repeated cooldowns bring a freeze.
    #[derive(Eq)]
    pub struct FreezeSpec at |guard| guard.freeze;

    /// Really Chill Willy: this many cooldowns…
    cooldowns: u32 = 3 => Count "freeze_cooldowns";

    /// …within this time…
    #[serde(with = "millis")]
    window: Duration = secs(3600) => Span "freeze_window";

    /// …bring a freeze of this length…
    #[serde(rename = "freeze", with = "millis")]
    time: Duration = secs(3600) => Span "freeze_time";

    /// …in which one trial start is made per this time.
    #[serde(with = "millis")]
    canary: Duration = secs(900) => Span "freeze_canary";

    /// A second freeze within this time waits for a person…
    #[serde(with = "millis")]
    relapse: Duration = secs(86_400) => Span "freeze_relapse";

    /// …with one trial start per this time.
    #[serde(with = "millis")]
    // So that an outage that heals by itself ends by itself.
    relapse_canary: Duration = secs(3600) => Span "freeze_relapse_canary";
}

settings! {
    /// How long an agent with a stream may be silent, by what it is busy with.
    #[derive(Eq)]
    pub struct PhaseLimits at |guard| guard.phases;

    /// It has written nothing yet.
    // A CLI that loads plugins and servers still writes its first line within half a minute.
    starting: PhaseLimit = limit(30, 120);

    /// The model thinks or writes.
    // The longest thinking seen is minutes; the CLIs themselves give up a silent stream after five.
    model: PhaseLimit = limit(180, 900);

    /// A tool runs that names no limit of its own.
    // Builds and test runs.
    tool: PhaseLimit = limit(600, 3600);

    /// Another agent works for it.
    subagent: PhaseLimit = limit(1200, 3600);

    /// It wrote its result and has not ended.
    // Enough to write a session; a CLI that hangs after its result is a known illness.
    after_result: PhaseLimit = limit(10, 20);

    /// A turn whose agent has finished waits this long for tasks that it left running in the
    /// background.
    #[serde(with = "millis", skip_serializing_if = "is_usual_background")]
    // Claude Code itself ends such tasks after ten minutes and lets the model see what came of them.
    background: Duration = BACKGROUND => Span "background";

    /// It is stopped when it uses tokens for this long and no file of its workspace changes.
    #[serde(with = "opt_millis")]
    // Half an hour is long for reading alone, and what was understood by then stands in the
    // conversation.
    no_diff: Option<Duration> = Some(secs(30 * 60)) => SpanOrNone "no_diff";

    /// A question of its CLI (a permission, a dialog) waits for a person for this long; then it is
    /// answered with no, or the turn ends.
    #[serde(with = "millis")]
    // Long enough to be called to the desk, short enough not to hold a turn for a night.
    answer: Duration = secs(30 * 60) => Span "answer_within";
}

/// Wait for background tasks after a result.
const BACKGROUND: Duration = secs(15 * 60);

fn is_usual_background(time: &Duration) -> bool {
    *time == BACKGROUND
}

/// Past `soft` without any other sign of life, or past `hard` in any case, an agent is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLimit {
    /// With evidence of life it may take longer.
    #[serde(with = "millis")]
    pub soft: Duration,
    /// It may not.
    #[serde(with = "millis")]
    pub hard: Duration,
}

const fn limit(soft: u64, hard: u64) -> PhaseLimit {
    PhaseLimit { soft: secs(soft), hard: secs(hard) }
}

/// The limits of phases that have a key: they stand one struct deeper than a row of `settings!`
/// reaches.
const PHASES: &[Option<GuardSetting>] = &[
    Some(phase(
        "starting_hard",
        &["An agent with a stream: it is stuck when it writes nothing for this long after its start…"],
        |guard| &mut guard.phases.starting.hard,
    )),
    Some(phase(
        "model_soft",
        &["…when its model writes nothing for this long and there is no other sign of life…"],
        |guard| &mut guard.phases.model.soft,
    )),
    Some(phase("model_hard", &["…or in any case for this long…"], |guard| &mut guard.phases.model.hard)),
    Some(phase(
        "tool_soft",
        &["…when a tool that names no limit of its own runs for this long without a sign of life…"],
        |guard| &mut guard.phases.tool.soft,
    )),
    Some(phase("tool_hard", &["…or in any case for this long."], |guard| &mut guard.phases.tool.hard)),
];

const fn phase(
    key: &'static str,
    doc: &'static [&'static str],
    field: fn(&mut GuardSpec) -> &mut Duration,
) -> GuardSetting {
    GuardSetting { key, doc, field: GuardField::Span(field), flag: None, env: None }
}

/// All settings of the guard, in the order of the reference.
pub fn guard_settings() -> impl Iterator<Item = &'static GuardSetting> {
    let all = [
        GuardSpec::SETTINGS,
        StartCaps::SETTINGS,
        PHASES,
        PhaseLimits::SETTINGS,
        BucketSpec::SETTINGS,
        CooldownSpec::SETTINGS,
        FreezeSpec::SETTINGS,
    ];
    all.into_iter().flatten().flatten()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_on(flag: &bool) -> bool {
    *flag
}

/// What a loop may use in all; reserved before a turn, settled after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub microusd: Option<u64>,
}

impl StartCaps {
    /// No caps at all.
    pub const NONE: StartCaps = StartCaps { per_minute: None, per_hour: None, per_day: None };

    /// Those that are set: the window's name and length, and the starts in it.
    pub fn windows(&self) -> impl Iterator<Item = (&'static str, Duration, u32)> {
        let all = [("minute", 60, self.per_minute), ("hour", 3600, self.per_hour), ("day", 86_400, self.per_day)];
        all.into_iter().filter_map(|(name, secs, cap)| Some((name, Duration::from_secs(secs), cap?)))
    }
}

impl GuardSpec {
    /// For commands that cost nothing: no gap and no caps. Frosty and Willy stay.
    #[must_use]
    pub fn free(mut self) -> Self {
        self.min_gap = Duration::ZERO;
        self.caps = StartCaps::NONE;
        self.confirm = 1;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_has_a_key_and_a_place_of_its_own() {
        let keys: BTreeSet<&str> = guard_settings().map(|setting| setting.key).collect();
        assert_eq!(keys.len(), guard_settings().count());
        for setting in guard_settings() {
            let mut changed = GuardSpec::default();
            match setting.field {
                GuardField::Span(at) | GuardField::SpanOrZero(at) => *at(&mut changed) += secs(1),
                GuardField::SpanOrNone(at) => *at(&mut changed) = Some(secs(1)),
                GuardField::Count(at) => *at(&mut changed) += 1,
                GuardField::CountOrNone(at) => *at(&mut changed) = Some(1),
                GuardField::DollarsOrNone(at) => *at(&mut changed) = Some(1),
                GuardField::Switch(at) => *at(&mut changed) ^= true,
            }
            assert_ne!(changed, GuardSpec::default(), "{} changes something", setting.key);
            let stored = serde_json::to_string(&changed).expect("plain data");
            assert_eq!(serde_json::from_str::<GuardSpec>(&stored).ok(), Some(changed), "{} is stored", setting.key);
        }
    }

    /// The figures that the guide names.
    #[test]
    fn the_defaults_are_those_of_the_guide() {
        let GuardSpec { min_gap, backoff_first, backoff_cap, caps, budget, bucket, pace, .. } = GuardSpec::default();
        assert_eq!([min_gap, backoff_first, backoff_cap], [secs(15), secs(10), secs(300)]);
        assert_eq!(caps, StartCaps { per_minute: None, per_hour: Some(100), per_day: Some(1000) });
        assert_eq!((budget, bucket, pace), (Budget::default(), None, false));
        assert_eq!((GuardSpec::default().confirm, GuardSpec::default().free().confirm), (2, 1));
        let GuardSpec { max_parallel_turns, turn_timeout, turn_idle_timeout, phases, .. } = GuardSpec::default();
        assert_eq!((max_parallel_turns, turn_timeout, turn_idle_timeout), (4, secs(7200), secs(600)));
        assert_eq!((phases.no_diff, phases.background, phases.answer), (Some(secs(1800)), secs(900), secs(1800)));
        let GuardSpec { stagnation_turns, stagnation_time, stagnation_microusd, confirm, .. } = GuardSpec::default();
        assert_eq!((stagnation_turns, stagnation_time, stagnation_microusd, confirm), (10, None, None, 2));
        let CooldownSpec { deaths, first, cap, .. } = CooldownSpec::default();
        assert_eq!((deaths, first, cap), (3, secs(60), secs(900)));
        let FreezeSpec { cooldowns, window, time, canary, relapse, relapse_canary } = FreezeSpec::default();
        assert_eq!((cooldowns, [window, time, canary]), (3, [secs(3600), secs(3600), secs(900)]));
        assert_eq!((relapse, relapse_canary), (secs(86_400), secs(3600)));
    }

    #[test]
    fn what_is_younger_than_a_record_has_its_default() {
        assert_eq!(serde_json::from_str::<GuardSpec>("{}").ok(), Some(GuardSpec::default()));
    }
}
