//! How long a screen has not changed. Spinners and clocks of agents change it every second while
//! they work.

use std::time::{Duration, Instant};

/// Watches one screen.
#[derive(Clone, Debug, Default)]
pub struct ScreenQuiet {
    last: Option<(Instant, String)>,
}

impl ScreenQuiet {
    /// Takes the current screen; returns how long it has been the same.
    pub fn look(&mut self, screen: &str, now: Instant) -> Duration {
        match &self.last {
            Some((since, last)) if last == screen => now.saturating_duration_since(*since),
            _ => {
                self.last = Some((now, screen.to_owned()));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_begins_anew() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut quiet = ScreenQuiet::default();
        assert_eq!(quiet.look("a", at(0)), Duration::ZERO);
        assert_eq!(quiet.look("a", at(3)), Duration::from_secs(3));
        assert_eq!(quiet.look("b", at(4)), Duration::ZERO);
        assert_eq!(quiet.look("b", at(9)), Duration::from_secs(5));
    }
}
