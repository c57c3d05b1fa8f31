//! Inward turns of a persona: reflections and dreams. Each kind has a budget of its own and is off
//! without one; they begin only while the persona sleeps and nothing waits for it. The state here
//! is folded from the journal, so a budget survives restarts.
//!
//! - [`form`]: the answer of such a turn, read or refused
//! - [`memory`]: what a persona remembers, with lines that no dream may drop
//! - [`plan`]: what to begin with if a certain signal comes
//! - [`brief`]: what such a turn is about

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bucket::{Demand, WakeAllowance, WakeBucket};
use super::cadence::Cadence;
use super::state::RhythmStep;
use crate::planted::{self, Bug};
use crate::time::Time;
use form::Reflection;
use plan::IfWoken;

pub mod brief;
pub mod form;
pub mod memory;
pub mod plan;

/// Kind of the task of a reflection.
pub const REFLECTION: &str = "persona-reflection";
/// Kind of the task of a dream.
pub const DREAM: &str = "persona-dream";
/// Behind all work that there is.
pub const PRIORITY: i32 = i32::MIN;
/// Every so many reflections one is about those before it.
const ON_SELF_EVERY: u32 = 5;
/// So often the same correction is made before it is proposed as a rule.
pub const PROPOSED_AT: u32 = 3;
/// Corrections that are counted; of more, the rarest is forgotten.
const CORRECTIONS_COUNTED: usize = 30;
/// Time in which the budget of dollars refills.
const DAY: Duration = Duration::from_secs(86_400);

/// A turn that is about the persona itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Inward {
    Reflection { on: ReflectOn },
    Dream,
}

impl Inward {
    /// The kind of its task.
    pub fn kind(self) -> &'static str {
        match self {
            Inward::Reflection { .. } => REFLECTION,
            Inward::Dream => DREAM,
        }
    }

    /// What a persona is doing in one.
    pub fn doing(self) -> &'static str {
        match self {
            Inward::Reflection { .. } => "reflecting",
            Inward::Dream => "dreaming",
        }
    }

    /// The kind as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Inward::Reflection { .. } => "reflection",
            Inward::Dream => "dream",
        }
    }
}

/// What a reflection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReflectOn {
    /// The latest looks and their work.
    OnCycle,
    /// The reflections before it.
    OnSelf,
}

impl ReflectOn {
    /// The tag, as everything shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            ReflectOn::OnCycle => "on-cycle",
            ReflectOn::OnSelf => "on-self",
        }
    }
}

/// The budgets of inward turns. Without one there are none of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InwardSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflect: Option<WakeAllowance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dream: Option<WakeAllowance>,
    /// What dreams may cost in a day, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dream_microusd: Option<u64>,
}

impl InwardSpec {
    /// Whether there are no inward turns.
    pub fn is_off(&self) -> bool {
        *self == Self::default()
    }
}

/// What an inward turn used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InwardCost {
    pub tokens: u64,
    pub microusd: u64,
}

/// A budget of dollars that refills steadily within a day; full in the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DollarBucket {
    /// What is missing to a full one, in millionths of a dollar.
    missing: u64,
    at: Time,
}

impl DollarBucket {
    /// What is left of a budget.
    pub fn left(self, most: u64, now: Time) -> u64 {
        let elapsed = now.since(self.at).as_millis();
        let refill = u128::from(most).saturating_mul(elapsed) / DAY.as_millis();
        let missing = self.missing.saturating_sub(u64::try_from(refill).unwrap_or(u64::MAX));
        most.saturating_sub(missing)
    }

    fn take(&mut self, most: u64, used: u64, now: Time) {
        // Beyond the budget it counts, too: what was used too much is missing for longer.
        let elapsed = now.since(self.at).as_millis();
        let refill = u128::from(most).saturating_mul(elapsed) / DAY.as_millis();
        let missing = self.missing.saturating_sub(u64::try_from(refill).unwrap_or(u64::MAX));
        self.missing = missing.saturating_add(used);
        self.at = self.at.max(now);
    }
}

/// What is remembered of inward turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InwardState {
    /// The one under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Inward>,
    reflect_bucket: WakeBucket,
    dream_bucket: WakeBucket,
    dollars: DollarBucket,
    /// Looks since the last reflection and since the last dream, with work or without.
    cycles: u32,
    dream_cycles: u32,
    /// Whether a look since the last reflection had work.
    worked: bool,
    /// Whether the last look found nothing.
    quiet: bool,
    /// Whether anything happened since the last dream.
    news: bool,
    /// Reflections so far.
    pub reflections: u32,
    /// The dearest dream, in millionths of a dollar.
    dearest: u64,
    /// What the last dream prepared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<IfWoken>,
    /// How often each correction was made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub corrections: BTreeMap<String, u32>,
}

impl InwardState {
    /// Whether nothing happened yet.
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The inward turn that may begin now, while the persona sleeps and nothing waits.
    pub fn due(&self, spec: &InwardSpec, cadence: &Cadence, now: Time) -> Option<Inward> {
        if self.under_way.is_some() {
            return None;
        }
        let has_room = |bucket: WakeBucket, allowance: WakeAllowance| {
            bucket.allows_at(allowance, Demand::Ordinary, now) <= now || planted::is(Bug::RhythmInwardBudgetIgnored)
        };
        let cycle = self.worked && (self.cycles >= cadence.reflect_every || self.quiet);
        if cycle && spec.reflect.is_some_and(|allowance| has_room(self.reflect_bucket, allowance)) {
            return Some(Inward::Reflection { on: self.next_on() });
        }
        let dreams = self.news && self.dream_cycles >= cadence.dream_every;
        let paid = spec.dream_microusd.is_none_or(|most| self.dollars.left(most, now) >= self.dearest.clamp(1, most));
        let room = spec.dream.is_some_and(|allowance| has_room(self.dream_bucket, allowance));
        (dreams && paid && room).then_some(Inward::Dream)
    }

    fn next_on(&self) -> ReflectOn {
        let fifth = (self.reflections + 1).is_multiple_of(ON_SELF_EVERY);
        if fifth && !planted::is(Bug::RhythmNeverReflectsOnSelf) { ReflectOn::OnSelf } else { ReflectOn::OnCycle }
    }

    /// What the dream under way may cost, in millionths of a dollar; `None` without a limit.
    pub fn dream_left(&self, spec: &InwardSpec, started: Time) -> Option<u64> {
        let most = spec.dream_microusd.filter(|_| self.under_way == Some(Inward::Dream))?;
        Some(self.dollars.left(most, started))
    }

    /// Corrections of this reflection that were made often enough to be proposed as rules.
    pub fn proposed<'a>(&self, corrections: &'a [String]) -> Vec<&'a String> {
        let often = |text: &&String| self.corrections.get(&alike(text)).is_some_and(|times| *times >= PROPOSED_AT);
        corrections.iter().filter(often).collect()
    }

    /// Applies a step of the persona.
    pub(super) fn apply(&mut self, step: &RhythmStep, spec: &InwardSpec) {
        match step {
            RhythmStep::Received { .. } | RhythmStep::Arrived { .. } => self.news = true,
            RhythmStep::Looked { .. } => {
                self.quiet = true;
                self.end_cycle();
            }
            RhythmStep::Began { .. } => self.quiet = false,
            RhythmStep::Rested { .. } => {
                (self.worked, self.news, self.quiet) = (true, true, false);
                self.end_cycle();
            }
            RhythmStep::TurnedInward { at, inward } => self.begin(*inward, spec, *at),
            RhythmStep::Reflected { reflection, .. } => {
                self.under_way = None;
                self.news = true;
                self.count(reflection);
            }
            RhythmStep::Dreamed { at, plans, used, .. } => {
                self.end(*at, *used, spec);
                if let Some(plans) = plans {
                    self.plans.clone_from(plans);
                }
            }
            RhythmStep::Unanswered { at, used, .. } => self.end(*at, *used, spec),
            RhythmStep::Summoned { .. } | RhythmStep::Remembered { .. } => {}
        }
    }

    fn end_cycle(&mut self) {
        self.cycles = self.cycles.saturating_add(1);
        self.dream_cycles = self.dream_cycles.saturating_add(1);
    }

    /// A budget pays for a beginning, so one that fails again and again is bounded, too.
    fn begin(&mut self, inward: Inward, spec: &InwardSpec, at: Time) {
        self.under_way = Some(inward);
        match inward {
            Inward::Reflection { .. } => {
                (self.cycles, self.worked) = (0, false);
                self.reflections += 1;
                if let Some(allowance) = spec.reflect {
                    self.reflect_bucket.take(allowance, at);
                }
            }
            Inward::Dream => {
                (self.dream_cycles, self.news) = (0, false);
                if let Some(allowance) = spec.dream {
                    self.dream_bucket.take(allowance, at);
                }
            }
        }
    }

    fn end(&mut self, at: Time, used: InwardCost, spec: &InwardSpec) {
        if self.under_way.take() == Some(Inward::Dream) {
            self.dearest = self.dearest.max(used.microusd);
            self.dollars.take(spec.dream_microusd.unwrap_or(0), used.microusd, at);
        }
    }

    fn count(&mut self, reflection: &Reflection) {
        for text in &reflection.corrections {
            *self.corrections.entry(alike(text)).or_default() += 1;
        }
        while self.corrections.len() > CORRECTIONS_COUNTED {
            let rarest = self.corrections.iter().min_by_key(|(_, times)| **times).map(|(text, _)| text.clone());
            rarest.map(|text| self.corrections.remove(&text));
        }
    }
}

/// Two corrections are alike if nothing but case, spaces and their last full stop differ.
pub fn alike(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
