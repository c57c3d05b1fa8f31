//! Quarantines and their reasons, for `guard quarantine`, `status`, `why` and the log.

use everloop_core::immune::record::Lately;
use everloop_core::immune::{Immune, ImmuneRule, ImmuneStep, RuleEffect, Subject, SubjectTier, Threshold, Tier};
use everloop_core::time::Time;
use everloop_core::why::quarantined;
use serde_json::{Value, json};

use super::quantities::{moment, relative};
use super::status::StatusStyle;
use super::table::Table;
use super::text::{clean, fit};

/// All subjects that are restricted now, and the rules in force.
pub fn held(immune: &Immune, now: Time) -> (Vec<(&Subject, &SubjectTier)>, Vec<&ImmuneRule>) {
    let acts = |standing: &SubjectTier| match standing.tier {
        Tier::Watched => false,
        Tier::Soft { until } => until > now,
        Tier::Out { .. } => true,
    };
    (immune.standings.iter().filter(|(_, s)| acts(s)).collect(), immune.rules_at(now).collect())
}

/// The table of `guard quarantine`, with the reasons below it.
pub fn table(immune: &Immune, look: &StatusStyle) -> Vec<String> {
    let (standings, rules) = held(immune, look.now);
    let mut lines = Vec::new();
    if standings.is_empty() && rules.is_empty() {
        lines.push("nothing is quarantined".to_owned());
    } else {
        let mut table = Table::new(&["SUBJECT", "STATE", "UNTIL", "BY"]);
        for (subject, standing) in &standings {
            table.row([clean(&subject.to_string()), state(standing, look), end(standing, look), "-".to_owned()]);
        }
        for rule in &rules {
            let until = moment(rule.until, look.now, &look.zone);
            table.row([clean(&rule.what.to_string()), label(rule, look), until, clean(&rule.by)]);
        }
        lines.extend(table.lines(look.width));
    }
    lines.extend(standings.iter().map(|(_, s)| clean(&quarantined(&s.reason))));
    lines.extend(rules.iter().map(|rule| clean(&format!("rule {}: {} ({})", rule.id, rule.what, rule.why))));
    lines.extend(doubts(immune, look));
    lines
}

/// A line for each restricted subject of interest.
pub fn lines(immune: &Immune, look: &StatusStyle, concerns: impl Fn(&Subject) -> bool) -> Vec<String> {
    let (standings, rules) = held(immune, look.now);
    let mut lines = Vec::new();
    for (subject, standing) in standings.into_iter().filter(|(s, _)| concerns(s)) {
        let said = format!("{subject} {} until {}", state(standing, look), end(standing, look));
        lines.push(format!("{}: {}", look.paint.warn("quarantine"), clean(&said)));
    }
    let about = |rule: &&ImmuneRule| match &rule.what {
        RuleEffect::Avoid { subject } | RuleEffect::Only { subject, .. } => concerns(subject),
    };
    for rule in rules.into_iter().filter(about) {
        let until = moment(rule.until, look.now, &look.zone);
        let what = match &rule.what {
            RuleEffect::Avoid { subject } => format!("{subject} is not used"),
            only @ RuleEffect::Only { .. } => only.to_string(),
        };
        let said = format!("{what} until {until}, by {}: {}", rule.by, rule.why);
        lines.push(format!("{}: {}", look.paint.warn("quarantine"), clean(&said)));
    }
    lines.extend(doubts(immune, look));
    lines.into_iter().map(|line| fit(&line, look.width)).collect()
}

fn doubts(immune: &Immune, look: &StatusStyle) -> Option<String> {
    let seen = immune.suspicion.as_ref()?;
    let seen: Vec<String> = seen.inputs.iter().map(|(what, n)| format!("{what} {n}")).collect();
    Some(look.paint.warn(&format!("all fail at once ({}): nothing is quarantined for it", seen.join(", "))))
}

fn state(standing: &SubjectTier, look: &StatusStyle) -> String {
    match &standing.tier {
        Tier::Watched => "watched".to_owned(),
        Tier::Soft { .. } => look.paint.warn("gets half of its work"),
        Tier::Out { trial: Some(turn), .. } => look.paint.warn(&format!("out, on trial in turn {turn}")),
        Tier::Out { until, .. } if *until <= look.now => look.paint.warn("out, its next turn is a trial"),
        Tier::Out { .. } => look.paint.bad("out"),
    }
}

fn end(standing: &SubjectTier, look: &StatusStyle) -> String {
    standing
        .tier
        .until()
        .map_or("-".to_owned(), |at| format!("{} ({})", moment(at, look.now, &look.zone), relative(at, look.now)))
}

fn label(rule: &ImmuneRule, look: &StatusStyle) -> String {
    match rule.what {
        RuleEffect::Avoid { .. } => look.paint.bad("not used"),
        RuleEffect::Only { .. } => look.paint.warn("bound"),
    }
}

/// The same as JSON.
pub fn as_json(immune: &Immune, now: Time) -> Value {
    let (standings, rules) = held(immune, now);
    let row = |(subject, standing): &(&Subject, &SubjectTier)| {
        json!({
            "subject": subject,
            "tier": standing.tier,
            "level": standing.level,
            "reason": standing.reason,
            "why": quarantined(&standing.reason),
        })
    };
    json!({
        "quarantined": standings.iter().map(row).collect::<Vec<_>>(),
        "rules": rules,
        "suspicion": immune.suspicion,
        "thresholds": immune.thresholds,
    })
}

/// Recent outcomes and failures of every subject in the record.
pub fn seen(immune: &Immune) -> Value {
    let rows = immune.record.lately(usize::MAX);
    let of = |(subject, lately): (&Subject, Lately)| {
        (subject.to_string(), json!({ "outcomes": lately.outcomes, "failed": lately.failed }))
    };
    rows.map(of).collect::<serde_json::Map<_, _>>().into()
}

/// A step as a line of the log.
pub(super) fn step(step: &ImmuneStep, until: &dyn Fn(&Time) -> String) -> String {
    match step {
        ImmuneStep::Seen { turn, seen } => {
            let who: Vec<String> = seen.subjects.iter().map(ToString::to_string).collect();
            let what = serde_json::to_value(seen.class).ok().and_then(|v| v.as_str().map(|s| s.replace('_', " ")));
            format!("quarantine record: turn {turn} was `{}` with {}", what.unwrap_or_default(), who.join(", "))
        }
        ImmuneStep::Charged { reason, .. } => format!("failure attributed: {}", quarantined(reason)),
        ImmuneStep::Soft { until: end, reason, .. } | ImmuneStep::Out { until: end, reason, .. } => {
            format!("{}, until {}", quarantined(reason), until(end))
        }
        ImmuneStep::Trial { subject, turn } => format!("turn {turn} is the trial of {subject}"),
        ImmuneStep::Untried { subject } => format!("the trial of {subject} gave no result"),
        ImmuneStep::Eased { reason, .. } => quarantined(reason),
        ImmuneStep::Suspected { .. } => "all fail at once: nothing is quarantined for it".to_owned(),
        ImmuneStep::Trusted => "not all fail any more".to_owned(),
        ImmuneStep::Moved { threshold, permille, .. } => format!("{} changed to {permille} ‰", named(*threshold)),
        ImmuneStep::Settled { threshold, permille, reason } => {
            format!("{} stays at {permille} ‰ (helped: {})", named(*threshold), reason.input("helped"))
        }
        ImmuneStep::Corrected { what } => corrected(what),
        ImmuneStep::Ruled { rule } => {
            format!("rule {} by {}: {}, until {} ({})", rule.id, rule.by, rule.what, until(&rule.until), rule.why)
        }
        ImmuneStep::Lifted { what, by, why } => format!("{by} lifted {what}: {why}"),
    }
}

/// A change of which work goes where. It is counted, because one that repeats becomes a rule.
fn corrected(what: &RuleEffect) -> String {
    let subject = |subject: &Subject| format!("{} `{}`", subject.dimension.label(), subject.name);
    let change = match what {
        RuleEffect::Avoid { subject: avoided } => format!("work moved from {} to others", subject(avoided)),
        RuleEffect::Only { kind, subject: only } => {
            format!("tasks of kind `{kind}` moved from all others to {}", subject(only))
        }
    };
    format!("quarantine: {change}; if this repeats, it becomes a rule")
}

fn named(threshold: Threshold) -> &'static str {
    match threshold {
        Threshold::Margin => "the margin for a charge",
        Threshold::Out => "the time of a quarantine",
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::immune::Dimension;

    use super::*;

    #[test]
    fn a_correction_says_what_moved_from_where_to_where() {
        let subject = Subject::new(Dimension::Agent, "claude");
        let line = |what| step(&ImmuneStep::Corrected { what }, &|_: &Time| String::new());
        assert_eq!(
            line(RuleEffect::Avoid { subject: subject.clone() }),
            "quarantine: work moved from agent `claude` to others; if this repeats, it becomes a rule"
        );
        assert_eq!(
            line(RuleEffect::Only { kind: "docs".to_owned(), subject }),
            "quarantine: tasks of kind `docs` moved from all others to agent `claude`; if this repeats, it becomes a rule"
        );
    }
}
