//! Whether the CLI in a pane began to work by itself: after the end of a limit, or on news of a task
//! in the background. Such work is a start, which the guard counts like any other.

/// The process in a pane: its number and its start time.
pub type PaneProcess = (i32, u64);

/// What a CLI does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaneDoing {
    /// It waits for a prompt, or for the end of a limit.
    Waits,
    /// It works on something.
    Works,
    /// It waits for an answer: going on with its work is not a start.
    NeedsAnswer,
    /// Between two screens nothing may be recognised.
    Unknown,
}

/// What was seen of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaneSighting {
    /// The process that was seen.
    pub process: PaneProcess,
    /// What it does at that moment.
    pub doing: PaneDoing,
    /// A turn runs in it, or something was typed into it just now.
    pub prompted: bool,
}

/// What is known of one pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaneActivity {
    /// The process that was last seen to wait.
    waiting: Option<PaneProcess>,
}

impl PaneActivity {
    /// Whether the CLI began to work by itself since the last sighting. Each start is reported once.
    pub fn begins(&mut self, seen: PaneSighting) -> bool {
        let waited = self.waiting == Some(seen.process);
        match seen.doing {
            PaneDoing::Waits => self.waiting = Some(seen.process),
            PaneDoing::Works | PaneDoing::NeedsAnswer => self.waiting = None,
            PaneDoing::Unknown if !waited => self.waiting = None,
            PaneDoing::Unknown => {}
        }
        waited && seen.doing == PaneDoing::Works && !seen.prompted
    }
}

#[cfg(test)]
mod tests {
    use super::PaneDoing::{NeedsAnswer, Unknown, Waits, Works};
    use super::*;

    fn starts(sightings: &[(i32, PaneDoing, bool)]) -> usize {
        let mut activity = PaneActivity::default();
        let seen =
            |&(pid, doing, prompted): &(i32, PaneDoing, bool)| PaneSighting { process: (pid, 1), doing, prompted };
        sightings.iter().filter(|one| activity.begins(seen(one))).count()
    }

    #[test]
    fn work_that_nothing_was_typed_for_is_a_start_once() {
        assert_eq!(starts(&[(1, Waits, false), (1, Works, false), (1, Works, false)]), 1);
        assert_eq!(starts(&[(1, Waits, false), (1, Unknown, false), (1, Works, false)]), 1);
        assert_eq!(starts(&[(1, Waits, false), (1, Works, false), (1, Waits, false), (1, Works, false)]), 2);
    }

    #[test]
    fn other_work_is_none() {
        assert_eq!(starts(&[(1, Works, false)]), 0, "it was at work before it was seen");
        assert_eq!(starts(&[(1, Waits, false), (1, Works, true), (1, Works, false)]), 0, "it has a prompt");
        assert_eq!(starts(&[(1, Waits, false), (1, NeedsAnswer, false), (1, Works, false)]), 0, "it has its answer");
        assert_eq!(starts(&[(1, Waits, false), (2, Works, false)]), 0, "it is another process");
    }
}
