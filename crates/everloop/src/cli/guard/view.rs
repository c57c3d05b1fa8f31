//! `everloop guard status`: every scope with its holds, its usage and its reservations.

use std::time::Duration;

use everloop_core::guard::{GuardState, Guards, Scope, Spend};
use everloop_core::spec::LoopSpec;
use everloop_core::state::LoopState;
use everloop_core::why::backed_off;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::guard::{self as service, GuardAnswer};
use serde_json::{Value, json};

use crate::cli::VerbSession;
use crate::ui::quantities::{moment, money, relative, tokens};
use crate::ui::status::StatusStyle;
use crate::ui::table::Table;
use crate::ui::text::clean;
use crate::ui::usage::window;

/// The windows of the caps, in seconds.
const WINDOWS: [(&str, u64); 3] = [("minute", 60), ("hour", 3600), ("day", 86_400)];

pub fn status(session: &VerbSession) -> Result<Code, Failure> {
    let GuardAnswer { guards, loops } = service::status(session)?;
    let look = session.ui.look(session.now());
    let frozen = guards.values().any(|v| v.state.freeze.is_some());
    let scopes: Vec<Value> = guards.iter().map(|(s, v)| scope_json(s, &v.state, spec_of(s, &loops), &look)).collect();
    session.ui.answer(&lines(&guards, &loops, &look), &json!({ "scopes": scopes, "frozen": frozen }))?;
    Ok(if frozen { Code::Held } else { Code::Ok })
}

fn spec_of<'a>(scope: &Scope, loops: &'a [LoopState]) -> Option<&'a LoopSpec> {
    match scope {
        Scope::Loop(id) => loops.iter().find(|s| s.id == *id).map(|s| &s.spec),
        Scope::All | Scope::Node(_) | Scope::Account(_) => None,
    }
}

fn lines(guards: &Guards, loops: &[LoopState], look: &StatusStyle) -> Vec<String> {
    if guards.is_empty() {
        return vec!["nothing has started yet".to_owned()];
    }
    let mut table = Table::new(&["SCOPE", "STATE", "STARTS 1m/1h/1d", "SPENT", "RESERVED"]);
    for (scope, guard) in guards {
        let spec = spec_of(scope, loops);
        table.row([
            clean(&scope.to_string()),
            state(&guard.state, look),
            starts(&guard.state, spec, look),
            spent(guard.state.spent, spec),
            reserved(&guard.state).map_or("-".to_owned(), |s| spent(s, None)),
        ]);
    }
    let mut lines = table.lines(look.width);
    for (scope, guard) in guards {
        lines.extend(details(scope, &guard.state, look));
    }
    lines
}

fn state(guard: &GuardState, look: &StatusStyle) -> String {
    let cooling = guard.cooling.filter(|c| c.until > look.now);
    let backing = guard.backing.as_ref().filter(|b| b.until > look.now);
    match (&guard.freeze, cooling, backing) {
        (Some(freeze), _, _) => {
            let end = freeze.until.map_or("until released".to_owned(), |at| relative(at, look.now));
            look.paint.bad(&format!("frozen, {end}"))
        }
        (None, Some(cooling), _) => look.paint.warn(&format!("cools down, {}", relative(cooling.until, look.now))),
        (None, None, Some(backing)) => look.paint.warn(&format!("waits, {}", relative(backing.until, look.now))),
        (None, None, None) => "free".to_owned(),
    }
}

/// `1/4 12/100 40/1000`; without the caps where there are none.
fn starts(guard: &GuardState, spec: Option<&LoopSpec>, look: &StatusStyle) -> String {
    let caps = spec.map(|s| [s.guard.caps.per_minute, s.guard.caps.per_hour, s.guard.caps.per_day]);
    let cell = |(i, (_, secs)): (usize, &(&str, u64))| {
        let used = guard.starts.within(Duration::from_secs(*secs), look.now);
        match caps.and_then(|caps| caps[i]) {
            Some(cap) => format!("{used}/{cap}"),
            None => used.to_string(),
        }
    };
    WINDOWS.iter().enumerate().map(cell).collect::<Vec<_>>().join(" ")
}

/// `3 of 10 calls, $0.30 of $5.00`.
fn spent(spend: Spend, spec: Option<&LoopSpec>) -> String {
    let budget = spec.map(|s| s.guard.budget.clone()).unwrap_or_default();
    let of = |limit: Option<String>| limit.map_or(String::new(), |limit| format!(" of {limit}"));
    let mut parts = vec![format!("{}{} calls", spend.calls, of(budget.calls.map(|n| n.to_string())))];
    if spend.tokens > 0 || budget.tokens.is_some() {
        parts.push(format!("{}{} tokens", tokens(spend.tokens), of(budget.tokens.map(tokens))));
    }
    if spend.microusd > 0 || budget.microusd.is_some() {
        parts.push(format!("{}{}", money(spend.microusd), of(budget.microusd.map(money))));
    }
    parts.join(", ")
}

fn reserved(guard: &GuardState) -> Option<Spend> {
    (!guard.reserved.is_empty()).then(|| guard.reserved.values().fold(Spend::default(), |sum, s| sum.plus(*s)))
}

/// Reason, begin and end of each hold.
fn details(scope: &Scope, guard: &GuardState, look: &StatusStyle) -> Vec<String> {
    let at = |time| moment(time, look.now, &look.zone);
    let mut lines = Vec::new();
    if let Some(freeze) = &guard.freeze {
        let by = freeze.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let end = freeze.until.map_or("until a person releases it".to_owned(), |until| format!("until {}", at(until)));
        let trial = freeze.canary_at.map_or(String::new(), |next| format!(", next trial at {}", at(next)));
        lines.push(clean(&format!("{scope}: frozen{by} since {} ({}), {end}{trial}", at(freeze.since), freeze.cause)));
        lines.extend(freeze.audit.iter().map(|line| format!("  {}", clean(line))));
        lines.push(format!("  release it: everloop guard release {scope} --reason TEXT"));
    }
    if let Some(cooling) = guard.cooling.filter(|c| c.until > look.now) {
        lines.push(format!(
            "{scope}: cools down until {} (level {}): starts failed within seconds",
            at(cooling.until),
            cooling.level
        ));
    }
    if let Some(backing) = guard.backing.as_ref().filter(|b| b.until > look.now) {
        let why = backed_off(&backing.why, &guard.failures.to_string());
        let said = format!("{scope}: waits until {} ({why})", at(backing.until));
        lines.push(clean(&said));
    }
    if let Some(held) = guard.held.as_ref().filter(|h| h.until > look.now) {
        lines.push(clean(&format!("{scope}: limited by its vendor until {} ({})", at(held.until), held.limit.text)));
    }
    for seen in guard.windows.iter().filter(|w| !w.is_over(look.now)) {
        lines.push(clean(&format!("{scope}: {}", window(seen, look.now))));
    }
    lines
}

fn scope_json(scope: &Scope, guard: &GuardState, spec: Option<&LoopSpec>, look: &StatusStyle) -> Value {
    let starts =
        WINDOWS.map(|(name, secs)| (name.to_owned(), guard.starts.within(Duration::from_secs(secs), look.now)));
    json!({
        "scope": scope,
        "freeze": guard.freeze,
        "cooling": guard.cooling.filter(|c| c.until > look.now),
        "backing": guard.backing.as_ref().filter(|b| b.until > look.now),
        "held": guard.held.as_ref().filter(|h| h.until > look.now),
        "windows": guard.windows.iter().filter(|w| !w.is_over(look.now)).collect::<Vec<_>>(),
        "failures": guard.failures,
        "last_start": guard.last_start,
        "starts": starts.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "caps": spec.map(|s| &s.guard.caps),
        "spent": guard.spent,
        "reserved": reserved(guard),
        "budget": spec.map(|s| &s.guard.budget),
    })
}

#[cfg(test)]
mod tests {
    use everloop_core::guard::{Cooling, Versioned};
    use everloop_core::time::Time;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::ui::Paint;
    use everloop_testkit::sample::{START, state as loop_state};

    #[test]
    fn scopes_are_listed_with_what_holds_them() {
        let look = StatusStyle { now: Time(START.0 + 1000), zone: TimeZone::UTC, paint: Paint::Off, width: 110 };
        let mut cooling = GuardState {
            cooling: Some(Cooling { until: Time(START.0 + 61_000), level: 2 }),
            spent: Spend { calls: 3, tokens: 0, microusd: 300_000 },
            ..GuardState::default()
        };
        cooling.starts.add(START);
        let versioned = |state| Versioned { version: 1, state };
        let guards: Guards =
            [(Scope::All, versioned(GuardState::default())), (Scope::Loop(loop_state().id), versioned(cooling))].into();
        insta::assert_snapshot!(lines(&guards, &[loop_state()], &look).join("\n"), @r"
        SCOPE      STATE               STARTS 1m/1h/1d  SPENT           RESERVED
        all        free                0 0 0            0 calls         -
        loop:k3f9  cools down, in 60s  1 1/100 1/1000   3 calls, $0.30  -
        loop:k3f9: cools down until 21:01:01 (level 2): starts failed within seconds
        ");
    }
}
