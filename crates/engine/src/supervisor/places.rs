//! Places for what computes: as many turns are prepared or collected at once as there are
//! processors, in order of arrival. Turns that begin together would otherwise all be ready together,
//! as late as the last one, and meet again after each check of the same length; one after the other,
//! they are spread from then on.

use std::sync::OnceLock;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Longest wait: a disk that hangs under one loop must not hold up the others.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for a place, which is free again when the permit is dropped; after a while it goes without.
pub(super) async fn place() -> Option<SemaphorePermit<'static>> {
    static PLACES: OnceLock<Semaphore> = OnceLock::new();
    let places = PLACES.get_or_init(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));
    timeout(WAIT_TIMEOUT, places.acquire()).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_as_many_as_processors_and_nothing_waits_for_ever() {
        let most = available_parallelism().map_or(1, usize::from);
        let mut held = Vec::new();
        for _ in 0..most {
            held.push(place().await.expect("a place is free"));
        }
        assert!(place().await.is_none(), "it goes on without a place");
        held.pop();
        assert!(place().await.is_some(), "a place is free again");
    }
}
