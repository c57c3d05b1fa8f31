//! How much is simulated: as much as a given time allows. `SIM_SECONDS` is the time of each test,
//! `SIM_SEED` the first seed, as in the testkit, which the core cannot use.

use std::time::{Duration, Instant};

/// A few seconds: these tests are a part of `cargo test -p everloop-core`, which takes seconds.
const SIM_SECONDS: u64 = 3;

/// Does `each` for one seed after the other until the time is over, and at least for `least` of
/// them; returns how many were done.
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock to know when it has done enough")]
pub fn seeds(least: u64, mut each: impl FnMut(u64)) -> u64 {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let end = Instant::now() + Duration::from_secs(number("SIM_SECONDS").unwrap_or(SIM_SECONDS));
    let first = number("SIM_SEED").unwrap_or(0);
    let mut done = 0;
    while done < least || Instant::now() < end {
        each(first + done);
        done += 1;
    }
    done
}
