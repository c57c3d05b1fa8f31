//! The last day of personas as strips, with the yield of their waking.

use everloop_core::rhythm::strip::{Doing, cells, shares};
use everloop_core::time::human;
use everloop_engine::services::persona::RhythmView;

use super::quantities::{moment, money};
use super::status::StatusStyle;
use super::text::{clean, count};

/// Cells of a strip: half an hour each.
const CELLS: usize = 48;

/// Some lines for each persona.
pub fn lines(found: &[RhythmView], look: &StatusStyle) -> Vec<String> {
    if found.is_empty() {
        return vec![
            "no personas; add `[persona.NAME]` to everloop.toml, then: everloop persona start NAME".to_owned(),
        ];
    }
    found.iter().flat_map(|persona| of(persona, look)).collect()
}

fn of(persona: &RhythmView, look: &StatusStyle) -> Vec<String> {
    let strip = cells(&persona.stretches, (persona.since, persona.until), CELLS);
    let marks: String = strip.iter().map(|doing| doing.mark()).collect();
    let legend: Vec<String> = Doing::ALL
        .into_iter()
        .filter(|doing| strip.contains(doing) && *doing != Doing::Over)
        .map(|doing| format!("{} {}", doing.mark(), doing.as_str()))
        .collect();
    let times: Vec<String> = shares(&persona.stretches)
        .into_iter()
        .filter(|(doing, _)| *doing != Doing::Over)
        .map(|(doing, time)| format!("{} {}", doing.as_str(), human(time)))
        .collect();
    let yields = persona.yields;
    let percent = persona.worked_percent.map_or(String::new(), |percent| format!(" ({percent} %)"));
    let plans = yields.plan_hits + yields.plan_misses;
    let mut lines = vec![
        format!("{}: {}, {}", clean(&persona.name), persona.state, persona.mood),
        format!("  |{marks}|  {} until now", moment(persona.since, look.now, &look.zone)),
        format!("  {}", legend.join("  ")),
        format!("  last 24h: {}", times.join(", ")),
        format!(
            "  in all: {}, {} with work{percent}; {}; {} kept",
            count(yields.looks, "look"),
            yields.worked,
            count(yields.signals, "signal"),
            count(u64::from(persona.kept), "change")
        ),
    ];
    if yields.reflections + yields.dreams > 0 {
        let each =
            persona.inward_tokens_per_kept.map_or(String::new(), |n| format!(", {n} tokens for each kept change"));
        lines.push(format!(
            "  {} and {}: {} tokens, {}{each}; plans were for {} of {plans} wakes",
            count(yields.reflections, "reflection"),
            count(yields.dreams, "dream"),
            yields.inward.tokens,
            money(yields.inward.microusd),
            yields.plan_hits
        ));
    }
    lines
}
