//! `[hook]` and `[guardian]`: how long a session that everloop did not start is held, and which of
//! its files may not shrink.

use std::time::Duration;

use everloop_core::hook::{Rules, Shrink};
use everloop_engine::diagnostic::ConfigError;
use everloop_engine::projects::HookSpec;

use super::keys::{GuardianKeys, HookKeys};
use super::settings::built_in;
use super::{Config, Diagnostic};

/// Below the minute after which Claude Code ends a hook.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(50);
/// A third of a memory does not go by accident.
pub(super) const MAX_SHRINK_PERCENT: u32 = 30;

impl Config {
    /// The project's settings for sessions in it, typed. A percentage above 100 is a mistake.
    pub fn hook(&self) -> Result<HookSpec, ConfigError> {
        let mut values = built_in::<HookKeys>();
        values.lay(&self.project.hook);
        let hook: HookKeys = values.typed()?;
        let mut values = built_in::<GuardianKeys>();
        values.lay(&self.project.guardian);
        let guardian: GuardianKeys = values.typed()?;
        let usual = Rules::default();
        let rules = Rules {
            max_holds: hook.max_holds.map_or(usual.max_holds, |n| n.0),
            holds_in_all: hook.holds_in_all.map_or(usual.holds_in_all, |n| n.0),
            handoff_at: hook.handoff_at.map_or(usual.handoff_at, |n| n.0),
        };
        let shrink = Shrink { percent: guardian.max_shrink_percent.map_or(MAX_SHRINK_PERCENT, |n| n.0) };
        for (name, percent, layer) in [
            ("handoff_at", rules.handoff_at, &self.project.hook),
            ("max_shrink_percent", shrink.percent, &self.project.guardian),
        ] {
            if percent > 100 {
                let wrong: Diagnostic =
                    layer.origin(name).blame(format!("`{name}` is a percentage, {percent} is none"));
                return Err(wrong.hint("use a number from 1 to 100").into());
            }
        }
        Ok(HookSpec {
            name: hook.r#loop.map(|text| text.0),
            rules,
            check_timeout: hook.check_timeout.map_or(CHECK_TIMEOUT, |span| span.0),
            context_tokens: hook.context_tokens.map(|n| n.0),
            guarded: guardian.files.map_or_else(Vec::new, |list| list.0),
            shrink,
            completions: self.completions()?,
        })
    }
}
