//! Personas that sleep, as a supervisor remembers them: an id, a version and a timer. The state of
//! each is in the ledger alone; it is read when the persona wakes, and dropped when it sleeps again.
//!
//! Timers are ordered, so the next one is found, set and ended in O(log n).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use everloop_core::ids::LoopId;
use everloop_core::time::Time;

/// What is kept of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sleeper {
    /// The version with which it fell asleep. Another one was written by another process.
    pub version: u64,
    pub wake_at: Time,
    /// It knows that work waits, so more of it changes nothing before its timer.
    pub knows_work: bool,
}

/// All that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    all: BTreeMap<LoopId, (Sleeper, Arc<Path>)>,
    timers: BTreeSet<(Time, LoopId)>,
    /// Where they work, and how many in each folder.
    folders: BTreeMap<Arc<Path>, usize>,
}

impl Sleepers {
    /// Sets the timer of a persona that works in this folder.
    pub fn put(&mut self, id: LoopId, sleeper: Sleeper, folder: &Path) {
        self.take(&id);
        let known = self.folders.get_key_value(folder).map(|(known, _)| Arc::clone(known));
        let folder = known.unwrap_or_else(|| Arc::from(folder));
        *self.folders.entry(Arc::clone(&folder)).or_default() += 1;
        self.timers.insert((sleeper.wake_at, id.clone()));
        self.all.insert(id, (sleeper, folder));
    }

    /// Ends the timer of one that wakes.
    pub fn take(&mut self, id: &LoopId) -> Option<Sleeper> {
        let (sleeper, folder) = self.all.remove(id)?;
        self.timers.remove(&(sleeper.wake_at, id.clone()));
        if let Some(many) = self.folders.get_mut(&folder) {
            *many -= 1;
            if *many == 0 {
                self.folders.remove(&folder);
            }
        }
        Some(sleeper)
    }

    pub fn get(&self, id: &LoopId) -> Option<&Sleeper> {
        self.all.get(id).map(|(sleeper, _)| sleeper)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn ids(&self) -> impl Iterator<Item = &LoopId> {
        self.all.keys()
    }

    /// The next timer.
    pub fn next(&self) -> Option<(Time, &LoopId)> {
        self.timers.first().map(|(at, id)| (*at, id))
    }

    /// Those whose time has come, the earliest first, and no more than `most`.
    pub fn due(&self, now: Time, most: usize) -> Vec<LoopId> {
        self.timers.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, id)| id.clone()).collect()
    }

    /// The folder that one works in.
    pub fn folder_of(&self, id: &LoopId) -> Option<&Path> {
        self.all.get(id).map(|(_, folder)| &**folder)
    }

    /// The folders that they work in.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.keys().map(|folder| &**folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(wake_at: i64) -> Sleeper {
        Sleeper { version: 1, wake_at: Time(wake_at), knows_work: false }
    }

    fn id(n: u32) -> LoopId {
        LoopId::new(format!("k{n:05}"))
    }

    #[test]
    fn timers_come_in_their_order_and_each_once() {
        let mut sleepers = Sleepers::default();
        for n in 0..5_000_u32 {
            // Spread by a step that has no common divisor with their number.
            sleepers.put(id(n), sleeper(i64::from(n * 1_117 % 5_000)), Path::new("/home/me/project"));
        }
        assert!(sleepers.due(Time(-1), 10).is_empty());
        assert_eq!(sleepers.due(Time(5_000), 10).len(), 10, "a flood of timers is taken in parts");
        let (mut woken, mut last) = (0, Time(-1));
        while let Some((at, first)) = sleepers.next().map(|(at, id)| (at, id.clone())) {
            assert!(at > last, "{first} is late");
            assert_eq!(sleepers.due(at, 10), std::slice::from_ref(&first));
            assert!(sleepers.take(&first).is_some() && sleepers.take(&first).is_none());
            (woken, last) = (woken + 1, at);
        }
        assert_eq!((woken, sleepers.is_empty()), (5_000, true));
    }

    #[test]
    fn a_timer_that_is_set_again_takes_the_place_of_the_old_one() {
        let mut sleepers = Sleepers::default();
        sleepers.put(id(1), sleeper(10), Path::new("/a"));
        sleepers.put(id(2), sleeper(20), Path::new("/b"));
        sleepers.put(id(1), sleeper(30), Path::new("/b"));
        assert_eq!(sleepers.next(), Some((Time(20), &id(2))));
        assert_eq!(sleepers.due(Time(100), 10), [id(2), id(1)]);
        assert_eq!(sleepers.folders().collect::<Vec<_>>(), [Path::new("/b")], "none works in /a any more");
        assert_eq!((sleepers.folder_of(&id(1)), sleepers.folder_of(&id(3))), (Some(Path::new("/b")), None));
    }
}
