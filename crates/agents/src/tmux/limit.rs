//! A vendor's limit on a program's screen: what it means, and when it is over. The sentence stays on
//! the screen after its time has passed, so the first reading is kept in the record of the pane.

use everloop_core::spec::AgentKind;
use everloop_core::stream::{LimitClass, VendorLimit};
use everloop_core::time::Time;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::pane::{Pane, PaneProgram};
use super::state::{PaneView, State, detect};
use super::{PaneError, TmuxServer, session};
use crate::agent::limits::{self, VendorRecord, VendorRefusal};
use crate::agent::zone_of;
use crate::clock;

/// A limit as it was read first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PaneLimit {
    /// The program's sentence.
    said: String,
    /// Its end; unknown until the guard permits the next turn.
    ends: Option<Time>,
}

impl Pane {
    /// The sentence about a limit whose time has passed.
    pub(super) fn past_limit(&self) -> Option<&str> {
        let limit = self.limit.as_ref()?;
        limit.ends.is_some_and(|at| at <= clock::now()).then_some(limit.said.as_str())
    }
}

impl TmuxServer {
    /// The pane of a turn that may start. A limit without a known end is over then: the guard waited
    /// for it.
    pub(super) fn permitted(&self, pane: &Pane) -> Result<Pane, PaneError> {
        let mut pane = pane.clone();
        if let Some(limit) = pane.limit.as_mut().filter(|limit| limit.ends.is_none()) {
            limit.ends = Some(clock::now());
            self.write_limit(&pane)?;
        }
        Ok(pane)
    }

    /// The limit that the program is in, recorded with its end.
    pub(super) fn record_limit(&self, pane: &mut Pane, state: &State) -> Result<Option<VendorLimit>, PaneError> {
        let State::Limited { said, .. } = state else { return Ok(None) };
        let zone = zone_of(session::variable(pane.process.pid, "TZ").as_ref().and_then(|name| name.to_str()));
        let mut limit = read(pane.kind, said, clock::now(), zone.as_ref());
        if let Some(known) = pane.limit.as_ref().filter(|known| known.said == *said) {
            // A time of day that was read later might be that of the next day.
            limit.reset_at = known.ends;
        } else {
            pane.limit = Some(PaneLimit { said: said.clone(), ends: limit.reset_at });
            self.write_limit(pane)?;
        }
        Ok(Some(limit))
    }

    /// Forgets a limit that the screen does not show any more: the same words are a new one then.
    pub(super) fn forget_past_limit(&self, pane: &mut Pane, sight: &PaneView) -> Result<(), PaneError> {
        let Some(past) = &sight.past_limit else { return Ok(()) };
        let plain = PaneView { past_limit: None, ..sight.clone() };
        if matches!(detect(pane.kind, &plain), State::Limited { said, .. } if said == *past) {
            return Ok(());
        }
        pane.limit = None;
        self.write_limit(pane)
    }

    /// A program that was started meanwhile has none.
    fn write_limit(&self, pane: &Pane) -> Result<(), PaneError> {
        let _lock = self.files.lock(&pane.name)?;
        match self.files.read(&pane.name)? {
            Some(mut known) if known.process == pane.process => {
                known.limit.clone_from(&pane.limit);
                self.files.write(&known)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The limit behind a sentence of the program, which writes times in this zone.
fn read(kind: PaneProgram, said: &str, now: Time, zone: Option<&TimeZone>) -> VendorLimit {
    let (agent, record) = match kind {
        PaneProgram::Claude => (AgentKind::Claude, VendorRecord::Synthetic),
        PaneProgram::Codex | PaneProgram::Plain => (AgentKind::Codex, VendorRecord::Error),
    };
    let refusal = VendorRefusal { agent, record, status: None, codes: &[], text: said, reset_at: None };
    limits::limit(&refusal, now, zone).unwrap_or_else(|| VendorLimit {
        rule: "pane.limited".to_owned(),
        class: LimitClass::Window,
        reset_at: None,
        text: said.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// 2026-11-15 19:30:00 UTC, when the screens were recorded.
    const NOW: Time = Time(1_794_771_000_000);

    fn limit_on(kind: PaneProgram, name: &str, zone: &TimeZone) -> Option<VendorLimit> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tmux/fixtures").join(format!("{name}.txt"));
        let sight = PaneView { screen: std::fs::read_to_string(path).expect("it was recorded"), ..PaneView::default() };
        match detect(kind, &sight) {
            State::Limited { said, .. } => Some(read(kind, &said, NOW, Some(zone))),
            _ => None,
        }
    }

    #[test]
    fn recorded_limits_have_a_class_and_an_end() {
        let vienna = TimeZone::get("Europe/Vienna").expect("a known zone");
        let utc = TimeZone::UTC;
        for (kind, name, zone, rule, end) in [
            // claude names the zone; codex writes local time.
            (PaneProgram::Claude, "13-usage-limit", &vienna, "claude.window-text", "2026-11-15T21:31:00Z"),
            (PaneProgram::Claude, "15-limit-wait", &utc, "claude.window-text", "2026-11-15T19:33:00Z"),
            (PaneProgram::Claude, "31-limit-noauto", &vienna, "claude.window-text", "2026-11-15T21:51:00Z"),
            (PaneProgram::Codex, "45-codex-limit", &utc, "codex.usage-limit", "2026-11-15T21:43:00Z"),
            (PaneProgram::Codex, "45-codex-limit", &vienna, "codex.usage-limit", "2026-11-15T20:43:00Z"),
        ] {
            let limit = limit_on(kind, name, zone).unwrap_or_else(|| panic!("{name} shows a limit"));
            let ends = limit.reset_at.map(|t| jiff::Timestamp::from_millisecond(t.0).expect("a time").to_string());
            assert_eq!((limit.rule.as_str(), ends.as_deref()), (rule, Some(end)), "{name}");
            assert_eq!(limit.class, LimitClass::Window, "{name}");
        }
        assert_eq!(limit_on(PaneProgram::Claude, "25-limit-continued", &utc), None, "it went on");
    }

    #[test]
    fn other_wordings_have_an_end_too() {
        let end = |kind, said: &str| {
            let limit = read(kind, said, NOW, Some(&TimeZone::UTC));
            (limit.class, limit.reset_at.map(|t| t.since(NOW).as_secs()))
        };
        let claude = |said| end(PaneProgram::Claude, said);
        assert_eq!(claude("Usage limit reached · limit resets 9:30pm"), (LimitClass::Window, Some(7260)));
        assert_eq!(
            claude("You've hit your usage limit · resets 22:00 (Europe/Vienna)"),
            (LimitClass::Model, Some(5460))
        );
        assert_eq!(claude("You've hit your weekly limit · resets Nov 20, 3pm (UTC)").0, LimitClass::Weekly);
        assert_eq!(claude("You're out of usage credits"), (LimitClass::Credit, None));
        let codex = "You've hit your usage limit. Upgrade to Pro or try again in 2h 10m.";
        assert_eq!(end(PaneProgram::Codex, codex), (LimitClass::Window, Some(7800)));
        assert_eq!(claude("You're out of something new"), (LimitClass::Window, None), "without a rule it is a window");
    }
}
