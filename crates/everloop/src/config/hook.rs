//! `[hook]` and `[guardian]`: how far a session is held that everloop did not start, and which of its files may not shrink.

use std::time::Duration;

use everloop_core::hook::{Rules, Shrink};

use super::keys::{GuardianKeys, HookKeys};
use super::layer::{Layer, Origin};
use super::value::write_duration;
use super::{Config, Diagnostic};
use everloop_engine::diagnostic::ConfigError;
use everloop_engine::projects::HookSpec;

/// Below the minute after which Claude Code ends a hook.
const WAIT_TIMEOUT: Duration = Duration::from_secs(50);
/// What a context window holds when nobody says it, in tokens.
const WINDOW_TOKENS: u64 = 200_000;
/// A third of a memory does not go by accident.
const SHRINK_PERCENT: u32 = 30;

impl Config {
    /// What the project says about sessions in it, typed. A percentage above 100 is a mistake.
    pub fn hook(&self) -> Result<HookSpec, ConfigError> {
        let mut values = built_in();
        values.lay(&self.project.hook);
        let hook: HookKeys = values.typed()?;
        let mut values = built_in_guardian();
        values.lay(&self.project.guardian);
        let guardian: GuardianKeys = values.typed()?;
        let usual = Rules::default();
        let rules = Rules {
            holds: hook.holds.map_or(usual.holds, |n| n.0),
            holds_in_all: hook.holds_in_all.map_or(usual.holds_in_all, |n| n.0),
            handoff_at: hook.handoff_at.map_or(usual.handoff_at, |n| n.0),
        };
        let shrink = Shrink { percent: guardian.shrink.map_or(SHRINK_PERCENT, |n| n.0) };
        for (name, percent, layer) in
            [("handoff_at", rules.handoff_at, &self.project.hook), ("shrink", shrink.percent, &self.project.guardian)]
        {
            if percent > 100 {
                let wrong: Diagnostic =
                    layer.origin(name).blame(format!("`{name}` is a percentage, {percent} is none"));
                return Err(wrong.hint("use a number from 1 to 100").into());
            }
        }
        Ok(HookSpec {
            name: hook.r#loop.map(|text| text.0),
            rules,
            patience: hook.patience.map_or(WAIT_TIMEOUT, |span| span.0),
            window_tokens: hook.window.map_or(WINDOW_TOKENS, |n| n.0),
            guarded: guardian.files.map_or_else(Vec::new, |list| list.0),
            shrink,
            completions: self.completions()?,
        })
    }
}

/// What `[hook]` has when nobody says anything.
pub(super) fn built_in() -> Layer {
    let (mut layer, rules) = (Layer::default(), Rules::default());
    for (key, count) in [("holds", rules.holds), ("holds_in_all", rules.holds_in_all), ("handoff_at", rules.handoff_at)]
    {
        layer.set(key, i64::from(count), Origin::BuiltIn);
    }
    layer.set("window", WINDOW_TOKENS.cast_signed(), Origin::BuiltIn);
    layer.set("patience", write_duration(WAIT_TIMEOUT), Origin::BuiltIn);
    layer
}

/// What `[guardian]` has when nobody says anything.
pub(super) fn built_in_guardian() -> Layer {
    let mut layer = Layer::default();
    layer.set("shrink", i64::from(SHRINK_PERCENT), Origin::BuiltIn);
    layer
}
