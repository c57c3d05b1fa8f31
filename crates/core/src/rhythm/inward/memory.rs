//! The memory of a persona: a text, with the versions before it, and its latest reflections. A
//! document of the ledger; files are made from it.
//!
//! Lines under the heading `## Keep` are protected, and so is every line that ends with `[keep]`: a
//! dream that drops one is refused as a whole, and the version before it stays.

use serde::{Deserialize, Serialize};

use super::form::Reflection;
use super::plan::IfWoken;
use crate::ids::LoopId;
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::time::Time;

/// Kind of the documents that hold memories; their key is the persona's loop.
pub const DOC: &str = "persona-memory";
/// Most characters of a memory: it goes into every prompt, and an answer that holds it has to fit
/// into the last words of an agent, of which 8,000 are kept.
pub const MEMORY_MAX_CHARS: usize = 4_000;
/// Most characters of a line that a person adds.
pub const LINE_MAX_CHARS: usize = 300;
/// Versions and reflections that are kept; the journal has all of them.
const VERSIONS_KEPT: usize = 5;
const REFLECTIONS_KEPT: usize = 40;
const KEEP_HEADING: &str = "## keep";
const KEEP_MARK: &str = "[keep]";

/// A version of a memory's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryVersion {
    /// Counts from 1.
    pub number: u32,
    pub at: Time,
    /// `a dream`, or the person.
    pub by: String,
    pub text: String,
}

/// What a persona remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The latest one last.
    pub versions: Vec<MemoryVersion>,
    /// The latest one last.
    pub reflections: Vec<Reflection>,
    pub plans: Vec<IfWoken>,
}

/// A memory with the version of its document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredMemory {
    pub version: u64,
    pub memory: Memory,
}

impl StoredMemory {
    /// The operation that writes it again.
    pub fn save(&self, owner: &LoopId) -> Op {
        let body = serde_json::to_string(&self.memory).expect("a memory is plain data and always has a JSON form");
        Op::SaveDoc { kind: DOC.to_owned(), key: owner.to_string(), version: self.version, body }
    }
}

/// What became of a dream's version of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum MemoryChange {
    /// The dream left it as it is.
    Kept,
    /// There is a new version.
    Compacted { number: u32, chars: usize },
    /// Protected lines are not in it.
    Refused { lost: Vec<String> },
}

impl Memory {
    /// The present text.
    pub fn text(&self) -> &str {
        self.versions.last().map_or("", |version| &version.text)
    }

    /// Puts the text of a dream beside the one before, unless it drops a protected line.
    pub fn dream(&mut self, text: Option<&str>, at: Time) -> MemoryChange {
        let Some(text) = text.map(str::trim).filter(|text| *text != self.text().trim()) else {
            return MemoryChange::Kept;
        };
        let lost = lost(self.text(), text);
        if !lost.is_empty() && !planted::is(Bug::RhythmProtectedLineDropped) {
            return MemoryChange::Refused { lost };
        }
        let number = self.put(text.to_owned(), "a dream", at);
        MemoryChange::Compacted { number, chars: text.chars().count() }
    }

    /// Adds a protected line; `None` if it is there already or there is no room.
    pub fn keep(&mut self, line: &str, by: &str, at: Time) -> Option<u32> {
        let line = format!("- {}", line.trim());
        let mut lines: Vec<String> = self.text().lines().map(str::to_owned).collect();
        if lines.iter().any(|known| known.trim() == line) {
            return None;
        }
        match lines.iter().position(|known| is_keep_heading(known)) {
            Some(heading) => lines.insert(heading + 1, line),
            None => {
                lines.splice(0..0, ["## Keep".to_owned(), line, String::new(), "## Notes".to_owned()]).for_each(drop);
            }
        }
        let text = lines.join("\n");
        (text.chars().count() <= MEMORY_MAX_CHARS).then(|| self.put(text, by, at))
    }

    /// Remembers a reflection.
    pub fn reflect(&mut self, reflection: Reflection) {
        self.reflections.push(reflection);
        let extra = self.reflections.len().saturating_sub(REFLECTIONS_KEPT);
        self.reflections.drain(..extra);
    }

    fn put(&mut self, text: String, by: &str, at: Time) -> u32 {
        let number = self.versions.last().map_or(0, |version| version.number) + 1;
        self.versions.push(MemoryVersion { number, at, by: by.to_owned(), text });
        let extra = self.versions.len().saturating_sub(VERSIONS_KEPT);
        self.versions.drain(..extra);
        number
    }
}

/// Protected lines of the old text that are not protected lines of the new one.
fn lost(old: &str, new: &str) -> Vec<String> {
    let kept = protected(new);
    protected(old).into_iter().filter(|line| !kept.contains(line)).map(str::to_owned).collect()
}

/// The protected lines of a memory.
fn protected(text: &str) -> Vec<&str> {
    let mut under = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with('#') {
            under = is_keep_heading(line);
            continue;
        }
        let line = line.trim();
        if !line.is_empty() && (under || line.ends_with(KEEP_MARK)) {
            found.push(line);
        }
    }
    found
}

fn is_keep_heading(line: &str) -> bool {
    line.trim().eq_ignore_ascii_case(KEEP_HEADING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(text: &str) -> Memory {
        let mut memory = Memory::default();
        memory.put(text.to_owned(), "a dream", Time(0));
        memory
    }

    #[test]
    fn a_dream_that_drops_a_protected_line_is_refused() {
        let old = "## Keep\n- never touch billing\n\n## Notes\n- eu is slow\n- the key is in the vault [keep]\n- old";
        for (new, lost) in [
            ("## Keep\n- never touch billing\n## Notes\n- the key is in the vault [keep]", &[][..]),
            ("# Short\n  - the key is in the vault [keep]\n## KEEP\n- new\n- never touch billing  ", &[]),
            ("## Keep\n- never touch billing", &["- the key is in the vault [keep]"]),
            // Below another heading it would not be protected the next time.
            ("## Notes\n- never touch billing\n- the key is in the vault [keep]", &["- never touch billing"]),
            ("", &["- never touch billing", "- the key is in the vault [keep]"]),
        ] {
            let mut memory = memory(old);
            let change = memory.dream(Some(new), Time(1));
            if lost.is_empty() {
                assert!(matches!(change, MemoryChange::Compacted { number: 2, .. }), "{new}");
                assert_eq!((memory.versions.len(), memory.text()), (2, new.trim()), "the old one stays beside it");
            } else {
                assert_eq!(change, MemoryChange::Refused { lost: lost.iter().map(|l| (*l).to_owned()).collect() });
                assert_eq!(memory.text(), old);
            }
        }
        assert_eq!(memory(old).dream(None, Time(1)), MemoryChange::Kept);
        assert_eq!(memory(old).dream(Some(old), Time(1)), MemoryChange::Kept);
    }

    #[test]
    fn a_line_of_a_person_is_protected_and_stands_once() {
        let mut memory = memory("- eu is slow");
        assert_eq!(memory.keep("never touch billing", "ann", Time(1)), Some(2));
        assert_eq!(memory.text(), "## Keep\n- never touch billing\n\n## Notes\n- eu is slow");
        assert_eq!(memory.keep(" never touch billing", "ann", Time(2)), None);
        assert_eq!(memory.keep("nor the vault", "ann", Time(3)), Some(3));
        assert_eq!(protected(memory.text()), ["- nor the vault", "- never touch billing"]);
        let mut full = self::memory(&"x".repeat(MEMORY_MAX_CHARS));
        assert_eq!(full.keep("one more", "ann", Time(1)), None);
    }

    #[test]
    fn old_versions_and_reflections_are_forgotten() {
        let mut memory = Memory::default();
        for n in 0..100 {
            memory.dream(Some(&format!("version {n}")), Time(n));
            memory.reflect(Reflection::default());
        }
        assert_eq!((memory.versions.len(), memory.reflections.len()), (VERSIONS_KEPT, REFLECTIONS_KEPT));
        assert_eq!((memory.text(), memory.versions.last().map(|last| last.number)), ("version 99", Some(100)));
    }
}
