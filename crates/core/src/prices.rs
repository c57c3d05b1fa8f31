//! Prices of tokens, and the dollars of a turn where its agent reports none.

use serde::{Deserialize, Serialize};

use crate::stream::Usage;

/// Prices in millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Tokens read, without those from a cache.
    pub input: u64,
    /// Tokens written, thinking included.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens put into a cache.
    pub cache_write: u64,
}

impl Prices {
    /// The cost of this usage, in millionths of a dollar, rounded up.
    pub fn cost(&self, used: &Usage) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = part(used.input, self.input)
            .saturating_add(part(used.output, self.output))
            .saturating_add(part(used.cache_read, self.cache_read))
            .saturating_add(part(used.cache_write, self.cache_write));
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The prices for one turn, as they were when it ended: a later list changes no turn of the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    #[serde(flatten)]
    #[expect(missing_docs, reason = "the type says it")]
    pub prices: Prices,
    /// Month of everloop's own list, `2026-11`; `None` for prices of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// The dollars of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dollars {
    /// Millionths of a dollar.
    pub microusd: u64,
    /// They come from everloop's list, which knows no discounts and may be out of date.
    pub estimated: bool,
}

/// The dollars of this usage: by configured prices, else as the agent reports them, else by
/// everloop's list.
pub fn dollars(used: &Usage, rates: Option<&Rates>) -> Option<Dollars> {
    let priced = rates.map(|r| Dollars { microusd: r.prices.cost(used), estimated: r.as_of.is_some() });
    let reported = used.microusd.map(|microusd| Dollars { microusd, estimated: false });
    priced.filter(|d| !d.estimated).or(reported).or(priced)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Prices = Prices { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 3_750_000 };

    #[test]
    fn a_cost_is_rounded_up_and_never_overflows() {
        let used = Usage { input: 1_000, output: 100, cache_read: 10_000, cache_write: 1_000, microusd: None };
        assert_eq!(LIST.cost(&used), 3_000 + 1_500 + 3_000 + 3_750);
        let least = Prices { input: 1, output: 1, cache_read: 1, cache_write: 1 };
        assert_eq!(least.cost(&Usage { input: 1, ..Usage::default() }), 1);
        let (most, all) = (u64::MAX, Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() });
        assert_eq!(Prices { input: most, output: most, cache_read: most, cache_write: most }.cost(&all), most);
    }

    #[test]
    fn configured_prices_come_before_a_report_and_a_report_before_the_list() {
        let (tokens, reported) = (Usage { input: 1_000_000, ..Usage::default() }, 700);
        let exact = Usage { microusd: Some(reported), ..tokens };
        let list = Rates { prices: LIST, as_of: Some("2026-11".to_owned()) };
        let own = Rates { prices: LIST, as_of: None };
        let found = |used: &Usage, rates| dollars(used, rates).map(|d| (d.microusd, d.estimated));
        assert_eq!(found(&tokens, None), None);
        assert_eq!(found(&tokens, Some(&list)), Some((3_000_000, true)));
        assert_eq!(found(&exact, Some(&list)), Some((reported, false)));
        assert_eq!(found(&exact, Some(&own)), Some((3_000_000, false)));
    }
}
