//! List prices and context windows of models: a dated table, `prices.txt`. Figures that come from it
//! are estimates.

use std::sync::LazyLock;

use everloop_core::prices::{Prices, Rates};
use everloop_core::spec::AgentSpec;

const TABLE: &str = include_str!("prices.txt");

/// Size of a context whose model names it with `[1m]`.
const MILLION: u64 = 1_000_000;

/// Size of the context of every current model of Google.
const GEMINI: u64 = 1 << 20;

/// What the table has about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownModel {
    pub prices: Prices,
    /// Tokens that fit into its context.
    pub context: u64,
}

struct Table {
    as_of: &'static str,
    models: Vec<(&'static str, KnownModel)>,
}

static KNOWN: LazyLock<Table> = LazyLock::new(|| {
    let lines = || TABLE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let as_of = lines().find_map(|line| line.strip_prefix("as_of ")).unwrap_or_default();
    Table { as_of, models: lines().filter_map(row).collect() }
});

fn row(line: &'static str) -> Option<(&'static str, KnownModel)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let mut dollars = || words.next()?.parse::<f64>().ok().map(|usd| (usd * 1e6).round() as u64);
    let (input, cache_read, cache_write, output) = (dollars()?, dollars()?, dollars()?, dollars()?);
    let context = words.next()?.parse().ok()?;
    Some((name, KnownModel { prices: Prices { input, output, cache_read, cache_write }, context }))
}

/// What the table has about this model.
pub fn of(model: &str) -> Option<KnownModel> {
    let (model, large) = match model.strip_suffix("[1m]") {
        Some(plain) => (plain, true),
        None => (model, false),
    };
    // `openai/gpt-5.5`, `models/gemini-2.5-pro`, `us.anthropic.claude-opus-5`
    let bare = model.rsplit_once('/').map_or(model, |(_, name)| name);
    let bare = bare.rsplit_once("anthropic.").map_or(bare, |(_, name)| name).to_ascii_lowercase();
    let fits =
        |name: &str| bare.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']));
    let (_, known) = KNOWN.models.iter().filter(|(name, _)| fits(name)).max_by_key(|(name, _)| name.len())?;
    Some(KnownModel { context: if large { MILLION } else { known.context }, ..*known })
}

/// Tokens that fit into the context of a model, by its name alone.
pub fn context_of(model: &str) -> Option<u64> {
    let by_name = || match model {
        large if large.ends_with("[1m]") => Some(MILLION),
        gemini if gemini.starts_with("gemini-") => Some(GEMINI),
        _ => None,
    };
    of(model).map(|known| known.context).or_else(by_name)
}

/// The prices for a turn of this agent with this model: the configured ones, else the table's.
pub fn rates(agent: &AgentSpec, model: Option<&str>) -> Option<Rates> {
    if let Some(prices) = agent.prices {
        return Some(Rates { prices, as_of: None });
    }
    let known = of(model.or(agent.model.as_deref())?)?;
    Some(Rates { prices: known.prices, as_of: Some(KNOWN.as_of.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_sane() {
        let rows = TABLE.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()).count() - 1;
        assert_eq!(KNOWN.models.len(), rows);
        assert_eq!(KNOWN.as_of, "2026-11", "the guide names the month");
        for (name, KnownModel { prices, context }) in &KNOWN.models {
            let Prices { input, output, cache_read, cache_write } = *prices;
            assert!(cache_read <= input && input <= cache_write && input < output, "{name}");
            assert!((100_000..=2_000_000).contains(context), "{name}");
        }
    }

    #[test]
    fn the_longest_name_counts_and_ends_at_a_boundary() {
        let input = |model: &str| of(model).map(|known| known.prices.input);
        for (model, price) in [
            ("gpt-5.5", Some(5_000_000)),
            ("gpt-5.5-2026-04-23", Some(5_000_000)),
            ("gpt-5.5-pro", Some(30_000_000)),
            ("openai/gpt-5-mini", Some(250_000)),
            ("gpt-5.9", None),
            ("gpt-50", None),
            ("claude-opus-5-5", Some(4_000_000)),
            ("claude-opus-5-5[1m]", Some(4_000_000)),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Some(3_000_000)),
            ("models/gemini-2.5-flash", Some(300_000)),
            ("gemini-3.1-pro-preview", Some(2_000_000)),
            ("claude-test-1", None),
            ("", None),
        ] {
            assert_eq!(input(model), price, "{model}");
        }
    }

    #[test]
    fn a_context_is_as_large_as_its_model_says() {
        assert_eq!(context_of("claude-sonnet-4-5"), Some(200_000));
        assert_eq!(context_of("claude-sonnet-4-5[1m]"), Some(1_000_000));
        assert_eq!(context_of("claude-of-tomorrow[1m]"), Some(1_000_000));
        assert_eq!(context_of("gemini-2.5-pro"), Some(1_048_576));
        assert_eq!(context_of("some-model"), None);
    }
}
