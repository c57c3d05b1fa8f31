//! The frontier of a run with further metrics that count: the kept experiments, the baseline and
//! what was put beside them, none of which is at least as good as another one in everything. The
//! champion is decided without it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::race::{mean, unbiased};
use super::row::Row;
use super::sample::{Measured, Sample};
use super::state::ResearchState;
use super::{Direction, KeepRule, ResearchSpec};
use crate::planted::{self, Bug};

/// Members of a frontier at most: more than a person compares, and the state stays small.
pub const FRONTIER_MOST: usize = 50;
/// Further metrics at most: the more count, the less is dominated by anything.
pub const SECONDARY_MOST: usize = 4;

/// A further `METRIC` line that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondaryMetric {
    pub name: String,
    pub direction: Direction,
}

impl SecondaryMetric {
    /// Reads `NAME`, `NAME:lower` or `NAME:higher`; less is better unless it is named.
    pub fn read(text: &str) -> Result<Self, String> {
        let (name, direction) = match text.trim().rsplit_once(':') {
            None => (text.trim(), Direction::Lower),
            Some((name, "lower")) => (name, Direction::Lower),
            Some((name, "higher")) => (name, Direction::Higher),
            Some((_, way)) => return Err(format!("`{way}` in `{text}` is no direction: it is `lower` or `higher`")),
        };
        let name = name.trim();
        let is_name = !name.is_empty() && !name.contains(|c: char| c == '=' || c.is_control());
        let metric = || Self { name: name.to_owned(), direction };
        is_name.then(metric).ok_or_else(|| format!("`{text}` names no metric: write it as `size:lower`"))
    }

    /// The metric as it was configured.
    pub fn label(&self) -> String {
        format!("{}:{}", self.name, self.direction.label())
    }
}

/// Reads all further metrics of a run; `main` is the name of the metric that decides.
pub fn read_all(texts: &[String], main: Option<&str>) -> Result<Vec<SecondaryMetric>, String> {
    let mut all: Vec<SecondaryMetric> = Vec::new();
    for text in texts {
        let metric = SecondaryMetric::read(text)?;
        if main == Some(metric.name.as_str()) {
            return Err(format!("`{}` is the metric that decides, so it counts already", metric.name));
        }
        if all.iter().any(|known| known.name == metric.name) {
            return Err(format!("`{}` is named twice", metric.name));
        }
        all.push(metric);
    }
    if all.len() > SECONDARY_MOST {
        return Err(format!("at most {SECONDARY_MOST} further metrics can count, and there are {}", all.len()));
    }
    Ok(all)
}

/// A member of the frontier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// The experiment; 0 is the baseline.
    pub number: u32,
    pub commit: Option<String>,
    pub value: f64,
    /// The further values that count, by name.
    pub secondary: BTreeMap<String, f64>,
    /// The change in one sentence; data.
    pub description: String,
}

/// How an experiment that joins the frontier changes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontierStep {
    pub secondary: BTreeMap<String, f64>,
    /// Members that leave: it is at least as good as they are in everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dominated: Vec<u32>,
    /// The oldest member, which leaves because the frontier is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded_out: Option<u32>,
}

/// The frontier of a run at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Frontier<'a> {
    direction: Direction,
    secondary: &'a [SecondaryMetric],
    members: &'a [FrontierPoint],
    /// The champion, and its value by all its measurements.
    champion: (u32, f64),
    /// A value of the metric is better only by more than this.
    margin: f64,
    /// One look at the metric may be luck.
    noisy: bool,
}

impl<'a> Frontier<'a> {
    /// The frontier of a run; `None` where nothing but the metric counts.
    pub fn of(spec: &'a ResearchSpec, state: &'a ResearchState) -> Option<Self> {
        let (secondary, exact) = (&spec.metric.pareto, state.exact || spec.rule == KeepRule::Exact);
        (!secondary.is_empty()).then(|| Self {
            direction: spec.metric.direction,
            secondary,
            members: &state.frontier,
            champion: (state.champion.number, state.champion.value()),
            margin: if exact { 0.0 } else { state.sigma() },
            noisy: !exact && spec.rule == KeepRule::Race,
        })
    }

    /// Whether so many measurements are too few for a place on the frontier. Rules that look once
    /// look once here, too.
    pub fn needs_another_look(&self, looks: usize) -> bool {
        self.noisy && looks < 2 && !planted::is(Bug::FrontierAtFirstLook)
    }

    /// Whether no member is at least as good in everything: it is better than each of them in
    /// something, in the metric by more than its noise.
    pub fn admits(&self, value: f64, secondary: &BTreeMap<String, f64>) -> bool {
        let is_better = |member: &FrontierPoint| {
            self.direction.gain(value, self.value_of(member)) > self.margin
                || self.gains(secondary, &member.secondary).any(|gain| gain > 0.0)
        };
        self.members.iter().all(is_better) || planted::is(Bug::FrontierTakesAnything)
    }

    /// What changes with a new member, which may be the new champion; `None` if it is dominated.
    pub fn join(&self, value: f64, secondary: BTreeMap<String, f64>, champion: bool) -> Option<FrontierStep> {
        if !self.admits(value, &secondary) {
            return None;
        }
        let is_dominated = |member: &&FrontierPoint| {
            self.direction.gain(value, self.value_of(member)) >= 0.0
                && self.gains(&secondary, &member.secondary).all(|gain| gain >= 0.0)
        };
        let dominated: Vec<u32> = self.members.iter().filter(is_dominated).map(|member| member.number).collect();
        let stays = |member: &&FrontierPoint| !dominated.contains(&member.number);
        let is_full = self.members.iter().filter(stays).count() >= FRONTIER_MOST;
        // The champion stays, whatever its age.
        let may_leave = |member: &&FrontierPoint| champion || member.number != self.champion.0;
        let oldest = self.members.iter().filter(stays).find(may_leave).map(|member| member.number);
        Some(FrontierStep { crowded_out: oldest.filter(|_| is_full), dominated, secondary })
    }

    fn value_of(&self, member: &FrontierPoint) -> f64 {
        if member.number == self.champion.0 { self.champion.1 } else { member.value }
    }

    /// How much better the further values are, one after the other.
    fn gains<'v>(
        &'v self,
        new: &'v BTreeMap<String, f64>,
        old: &'v BTreeMap<String, f64>,
    ) -> impl Iterator<Item = f64> + 'v {
        self.secondary.iter().map(|metric| {
            let value = |of: &BTreeMap<String, f64>| of.get(&metric.name).copied().unwrap_or_default();
            metric.direction.gain(value(new), value(old))
        })
    }
}

/// The further values that count, as means of the same measurements as the metric's; `None` if one
/// is missing.
pub fn secondary_values(metrics: &[SecondaryMetric], samples: &[&Sample]) -> Option<BTreeMap<String, f64>> {
    let value = |sample: &&Sample, name: &str| match &sample.result {
        Measured::Value { others, .. } => others.get(name).copied(),
        Measured::Crash { .. } | Measured::Timeout { .. } | Measured::Unreadable { .. } => None,
    };
    let of = |metric: &SecondaryMetric| {
        let values: Option<Vec<f64>> = samples.iter().map(|sample| value(sample, &metric.name)).collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some((metric.name.clone(), mean(unbiased(&values))))
    };
    metrics.iter().map(of).collect()
}

impl ResearchState {
    /// Puts an experiment on the frontier, if its row says so.
    pub(super) fn place_on_frontier(&mut self, row: &Row) {
        let Some(step) = &row.frontier else { return };
        let leaves = |number: u32| step.dominated.contains(&number) || step.crowded_out == Some(number);
        self.frontier.retain(|member| !leaves(member.number));
        self.frontier.push(FrontierPoint {
            number: row.number,
            commit: row.commit.clone(),
            value: row.value.unwrap_or_default(),
            secondary: step.secondary.clone(),
            description: row.description.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::row::Status;
    use crate::research::tests_support::{noisy_state, research, row, state};

    fn point(number: u32, value: f64, size: f64) -> FrontierPoint {
        let secondary = BTreeMap::from([("size".to_owned(), size)]);
        FrontierPoint { number, commit: None, value, secondary, description: format!("change {number}") }
    }

    fn spec() -> ResearchSpec {
        let mut spec = research();
        spec.metric.pareto = vec![SecondaryMetric { name: "size".to_owned(), direction: Direction::Lower }];
        spec
    }

    fn size(size: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([("size".to_owned(), size)])
    }

    #[test]
    fn names_and_directions() {
        let read = |text: &str| SecondaryMetric::read(text).map(|metric| metric.label());
        for (text, label) in [("size", "size:lower"), ("size:lower", "size:lower"), ("a b:higher", "a b:higher")] {
            assert_eq!(read(text).as_deref(), Ok(label));
        }
        for (text, why) in [("size:down", "`down`"), ("", "names no"), (":lower", "names no"), ("a=b", "names no")] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
        let all = |texts: &[&str], main| {
            read_all(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), main).map(|all| all.len())
        };
        assert_eq!(all(&["a", "b:higher"], Some("c")), Ok(2));
        assert!(all(&["a", "a:higher"], None).unwrap_err().contains("twice"));
        assert!(all(&["a"], Some("a")).unwrap_err().contains("decides"));
        assert!(all(&["a", "b", "c", "d", "e"], None).unwrap_err().contains("at most 4"));
    }

    #[test]
    fn what_no_member_dominates_is_admitted() {
        let mut state = state();
        state.frontier = vec![point(0, 10.0, 100.0), point(1, 12.0, 50.0)];
        let spec = spec();
        let frontier = Frontier::of(&spec, &state).expect("a further metric counts");
        for (value, bytes, expected, why) in [
            (11.0, 60.0, true, "between both"),
            (9.0, 200.0, true, "the best metric"),
            (99.0, 49.0, true, "the best size"),
            (10.0, 100.0, false, "equal is dominated"),
            (10.0, 101.0, false, "as good, and larger"),
            (12.0, 50.0, false, "equal to the other one"),
            (12.5, 70.0, false, "worse in both"),
            (10.5, 100.0, false, "worse in one, equal in the other"),
        ] {
            assert_eq!(frontier.admits(value, &size(bytes)), expected, "{why}");
        }
        assert!(Frontier::of(&research(), &state).is_none(), "nothing but the metric counts");
    }

    #[test]
    fn what_a_new_member_dominates_leaves() {
        let mut state = state();
        state.frontier = vec![point(0, 10.0, 100.0), point(1, 12.0, 50.0), point(2, 14.0, 40.0)];
        let spec = spec();
        let frontier = Frontier::of(&spec, &state).expect("a further metric counts");
        let out = |value, bytes| frontier.join(value, size(bytes), false).map(|step| step.dominated);
        assert_eq!(out(11.0, 45.0), Some(vec![1]));
        assert_eq!(out(9.0, 40.0), Some(vec![0, 1, 2]));
        assert_eq!(out(13.0, 45.0), Some(Vec::new()));
        assert_eq!(out(14.0, 41.0), None);
    }

    #[test]
    fn noise_is_no_gain() {
        let mut state = noisy_state();
        let (spec, sigma) = (spec(), state.sigma());
        state.frontier = vec![point(0, 10.0, 100.0)];
        let frontier = Frontier::of(&spec, &state).expect("a further metric counts");
        assert!(sigma > 0.0 && !frontier.admits(10.0 - 0.9 * sigma, &size(100.0)), "within one deviation");
        assert!(frontier.admits(10.0 - 1.1 * sigma, &size(100.0)));
        assert!(frontier.needs_another_look(1) && !frontier.needs_another_look(2));
        let once = ResearchSpec { rule: KeepRule::Single, ..spec.clone() };
        assert!(!Frontier::of(&once, &state).expect("the same").needs_another_look(1), "it looks once");
        let step = frontier.join(10.0 + 0.5 * sigma, size(90.0), false).expect("it is smaller");
        assert_eq!(step.dominated, Vec::<u32>::new(), "a metric that may be worse removes nothing");
    }

    #[test]
    fn a_full_frontier_loses_its_oldest_member_but_never_the_champion() {
        let (mut state, spec) = (state(), spec());
        for n in 0..200_u32 {
            let (value, bytes) = (10.0 + f64::from(n), 1000.0 - f64::from(n));
            let step = Frontier::of(&spec, &state).and_then(|found| found.join(value, size(bytes), false));
            assert!(step.is_some(), "each is smaller");
            state.place_on_frontier(&Row { frontier: step, ..row(n, Status::Frontier, Some(value)) });
        }
        assert_eq!(state.frontier.len(), FRONTIER_MOST);
        assert_eq!(state.frontier.iter().map(|member| member.number).take(3).collect::<Vec<_>>(), [0, 151, 152]);
        assert!(serde_json::to_string(&state).unwrap().len() < 40_000);
    }

    #[test]
    fn further_values_are_means_of_the_same_looks() {
        let sample = |bytes: Option<f64>| {
            let others = bytes.into_iter().map(|bytes| ("size".to_owned(), bytes)).collect();
            Sample { result: Measured::Value { value: 1.0, others }, millis: 1 }
        };
        let (one, two, three, none) = (sample(Some(1.0)), sample(Some(3.0)), sample(Some(5.0)), sample(None));
        let values = |samples: &[&Sample]| secondary_values(&spec().metric.pareto, samples);
        assert_eq!(values(&[&one, &two, &three]), Some(size(4.0)), "without the first look");
        assert_eq!(values(&[&one]), Some(size(1.0)));
        assert_eq!((values(&[&one, &none]), values(&[])), (None, None));
    }

    #[test]
    fn a_state_from_before_has_no_frontier() {
        let mut stored = serde_json::to_value(state()).unwrap();
        assert!(stored.get("frontier").is_none(), "an empty one is not stored");
        stored["frontier"] = serde_json::json!([point(1, 2.0, 3.0)]);
        let read: ResearchState = serde_json::from_value(stored).unwrap();
        assert_eq!(read.frontier, [point(1, 2.0, 3.0)]);
    }
}
