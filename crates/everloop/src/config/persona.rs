//! `[persona.NAME]`: a loop without an end. Its keys are those of a loop, with a charter in place of
//! a goal, and those of its rhythm, which are declared here.

use std::path::Path;

use everloop_core::rhythm::bucket::WakeAllowance;
use everloop_core::rhythm::cadence::{Cadence, CadenceError, Profile};
use everloop_core::rhythm::calendar::{DayRange, parse_minute};
use everloop_core::rhythm::inward::InwardSpec;
use everloop_core::rhythm::persona::PersonaSpec;
use everloop_core::rhythm::reflex::{LOW_WINDOW, ReflexSpec, SignalPattern};
use everloop_core::rhythm::signal::PersonaName;
use everloop_engine::calendar::Zones;
use everloop_engine::diagnostic::Diagnostic;

use super::ResolveContext;
use super::layer::{Layer, Origin};
use super::settings::section;
use super::value::{Count, Dollars, Flag, List, NonEmptyText, Span, write_duration};

section! {
    /// What the persona is for, and its rhythm. All keys of `[loop.NAME]` except `goal` can stand
    /// beside them; `checks` are optional here.
    pub struct PersonaKeys;

    /// The standing instruction, in your words.
    charter: NonEmptyText;

    /// The file with the charter, relative to this file, instead of `charter`.
    charter_file: NonEmptyText;

    /// How it sleeps: `staccato`, `measured`, `phase-linked`, `steady`, `interlaced` or `custom`. The keys below
    /// change single numbers of it.
    cadence: NonEmptyText = "custom";

    /// Least time from one look to the next, unless something wakes it.
    shortest: Span;

    /// Greatest time from one look to the next.
    longest: Span;

    /// Time to the next look after one that found nothing.
    after_nothing: Span;

    /// The same after one or two signals, tasks or messages.
    after_few: Span;

    /// The same after three or more, or something urgent.
    after_many: Span;

    /// By how much each further look in vain lengthens the time, in percent.
    stretch_percent: Count;

    /// Whether more signals than usual shorten the time, and fewer lengthen it.
    weighted: Flag;

    /// Whether how much arrives, and how well turns end, changes the time.
    metabolic: Flag;

    /// The time zone of `cron`, `quiet`, `morning` and of times that the agent names.
    zone: NonEmptyText = "UTC";

    /// When it looks, as five fields, instead of after a time: `*/15 9-18 * * 1-5`.
    cron: NonEmptyText;

    /// Hours in which only signals of class high and people wake it: `22:00-07:00`.
    quiet: NonEmptyText;

    /// What `tomorrow` means in the agent's last line.
    morning: NonEmptyText = "08:00";

    /// Looks that are allowed in a time, `4/h` or `20/day`. High signals may overdraw it by one.
    wakes: NonEmptyText;

    /// Reflections that are allowed in a time, `12/day`: turns in which it looks back while it sleeps.
    /// Without it there are none.
    reflect: NonEmptyText;

    /// Looks after which it reflects; it also does after the first look in vain after work.
    reflect_every: Count;

    /// Dreams that are allowed in a time, `4/day`: turns in which it compacts its memory and prepares
    /// plans while it sleeps. Without it there are none.
    dream: NonEmptyText;

    /// Looks after which it dreams.
    dream_every: Count;

    /// What its dreams may cost in a day, in dollars.
    dream_usd: Dollars;

    /// Tags and topics of signals that wake it, as globs; `tag:` and `topic:` choose one kind.
    /// Without it: all.
    wake_on: List;

    /// Tags and topics of signals that never wake it; they wait for its next turn.
    ignore: List;

    /// Personas that get its high signals too.
    related: List;

    /// Two signals of class low within this time wake it.
    low_window: Span = write_duration(LOW_WINDOW);
}

/// A persona, from the layer of its own keys: its charter and its spec.
pub(super) fn spec(
    (name, dir): (&str, &Path),
    values: &Layer,
    (place, moment): (&Origin, &ResolveContext),
) -> Result<(String, PersonaSpec), Vec<Diagnostic>> {
    let keys: PersonaKeys = values.typed().map_err(|wrong| vec![wrong])?;
    let mut wrong = Vec::new();
    let charter = charter((name, dir), &keys, values, place).unwrap_or_else(|found| {
        wrong.push(found);
        String::new()
    });
    if let Err(why) = name.parse::<PersonaName>() {
        wrong.push(blamed(place, &why.to_string()));
    }
    let cadence = cadence(&keys, values, &mut wrong);
    if let Err(why) = cadence.validate(&Zones, moment.now) {
        wrong.push(blame(values, key_of(&why), &why.to_string()));
    }
    let reflex = reflex(&keys, values, &mut wrong);
    let inward = inward(&keys, values, &mut wrong);
    if wrong.is_empty() {
        Ok((charter, PersonaSpec { cadence, reflex, inward, routes: Vec::new() }))
    } else {
        Err(wrong)
    }
}

/// A mistake in the value of a key; a hint in the text becomes one.
fn blame(values: &Layer, key: &str, why: &str) -> Diagnostic {
    blamed(values.origin(key), why)
}

fn blamed(place: &Origin, why: &str) -> Diagnostic {
    match why.split_once("; hint: ") {
        Some((what, hint)) => place.blame(what).hint(hint),
        None => place.blame(why),
    }
}

/// The key that a mistake of the cadence is about.
fn key_of(error: &CadenceError) -> &'static str {
    match error {
        CadenceError::Profile(_) | CadenceError::Windows(_) => "cadence",
        CadenceError::Bounds => "shortest",
        CadenceError::Stretch(_) => "stretch_percent",
        CadenceError::Minute(_) => "quiet",
        CadenceError::Wakes => "wakes",
        CadenceError::Zone(_) => "zone",
        CadenceError::Cron(_) => "cron",
    }
}

fn charter(
    (name, dir): (&str, &Path),
    keys: &PersonaKeys,
    values: &Layer,
    place: &Origin,
) -> Result<String, Diagnostic> {
    match (&keys.charter, &keys.charter_file) {
        (Some(_), Some(_)) => {
            let both = values.origin("charter_file").blame("there are both `charter` and `charter_file`");
            Err(both.hint("keep one of them"))
        }
        (Some(text), None) => Ok(text.0.clone()),
        (None, Some(file)) => {
            let path = dir.join(&file.0);
            let read = std::fs::read_to_string(&path).map(|text| text.trim().to_owned());
            let unreadable = |why: &str| {
                let what = format!("could not read the charter `{}`: {why}", path.display());
                values.origin("charter_file").blame(what).hint("write it, or use `charter = \"…\"`")
            };
            match read {
                Ok(text) if text.is_empty() => Err(unreadable("it is empty")),
                Ok(text) => Ok(text),
                Err(e) => Err(unreadable(&e.to_string())),
            }
        }
        (None, None) => Err(place.blame(format!("persona `{name}` has no charter")).hint("add `charter = \"…\"`")),
    }
}

fn cadence(keys: &PersonaKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> Cadence {
    let name = keys.cadence.as_ref().map_or("custom", |text| text.0.as_str());
    let profile = Profile::named(name).unwrap_or_else(|why| {
        wrong.push(blame(values, "cadence", &why.to_string()));
        Profile::default()
    });
    let mut cadence = profile.cadence();
    for (key, place) in [
        (&keys.shortest, &mut cadence.shortest),
        (&keys.longest, &mut cadence.longest),
        (&keys.after_nothing, &mut cadence.pace.nothing),
        (&keys.after_few, &mut cadence.pace.few),
        (&keys.after_many, &mut cadence.pace.many),
    ] {
        *place = key.map_or(*place, |span| span.0);
    }
    cadence.stretch_percent = keys.stretch_percent.map_or(cadence.stretch_percent, |n| n.0);
    cadence.weighted = keys.weighted.map_or(cadence.weighted, |flag| flag.0);
    cadence.metabolic = keys.metabolic.map_or(cadence.metabolic, |flag| flag.0);
    cadence.reflect_every = keys.reflect_every.map_or(cadence.reflect_every, |n| n.0);
    cadence.dream_every = keys.dream_every.map_or(cadence.dream_every, |n| n.0);
    cadence.zone = keys.zone.as_ref().map_or(cadence.zone, |text| text.0.clone());
    cadence.cron = keys.cron.as_ref().map(|text| text.0.clone());
    if let Some(text) = &keys.quiet {
        cadence.quiet = day_range(&text.0);
        if cadence.quiet.is_none() {
            let bad = values.origin("quiet").blame(format!("`{}` are no hours of a day", text.0));
            wrong.push(bad.hint("write them like `22:00-07:00`"));
        }
    }
    if let Some(text) = &keys.morning {
        cadence.morning = parse_minute(&text.0).unwrap_or_else(|| {
            let bad = values.origin("morning").blame(format!("`{}` is no time of a day", text.0));
            wrong.push(bad.hint("write it like `08:00`"));
            cadence.morning
        });
    }
    if let Some(text) = &keys.wakes {
        match WakeAllowance::parse(&text.0) {
            Ok(wakes) => cadence.wakes = Some(wakes),
            Err(why) => wrong.push(blame(values, "wakes", &why)),
        }
    }
    cadence
}

/// The budgets of reflections and dreams.
fn inward(keys: &PersonaKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> InwardSpec {
    let mut allowance = |key: &str, text: &Option<NonEmptyText>| {
        let text = text.as_ref()?;
        WakeAllowance::parse(&text.0)
            .map_err(|why| wrong.push(blame(values, key, &why.replace("wake budget", "budget"))))
            .ok()
    };
    let (reflect, dream) = (allowance("reflect", &keys.reflect), allowance("dream", &keys.dream));
    if keys.dream_usd.is_some() && keys.dream.is_none() {
        let alone = values.origin("dream_usd").blame("`dream_usd` limits dreams, of which there are none");
        wrong.push(alone.hint("add `dream = \"4/day\"`"));
    }
    InwardSpec { reflect, dream, dream_microusd: keys.dream_usd.and_then(|usd| usd.0) }
}

/// Reads hours of a day like `22:00-07:00`.
fn day_range(text: &str) -> Option<DayRange> {
    let (from, to) = text.split_once('-')?;
    Some(DayRange { from: parse_minute(from.trim())?, to: parse_minute(to.trim())? })
}

fn reflex(keys: &PersonaKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> ReflexSpec {
    let patterns = |list: &Option<List>| -> Vec<SignalPattern> {
        list.iter().flat_map(|list| &list.0).map(SignalPattern::new).collect()
    };
    let mut related = Vec::new();
    for name in keys.related.iter().flat_map(|list| &list.0) {
        match name.parse::<PersonaName>() {
            Ok(name) => related.push(name),
            Err(why) => wrong.push(blame(values, "related", &why.to_string())),
        }
    }
    let low_window = keys.low_window.map_or(LOW_WINDOW, |span| span.0);
    let spec = ReflexSpec { low_window, wake_on: patterns(&keys.wake_on), ignore: patterns(&keys.ignore), related };
    if let Err(why) = spec.validate() {
        let key = ["wake_on", "ignore", "related"].into_iter().find(|key| why.contains(&format!("`{key}`")));
        wrong.push(blame(values, key.unwrap_or("related"), &why));
    }
    spec
}
