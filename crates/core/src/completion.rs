//! Completion signs in work that everloop does not drive itself: a plan without open boxes, a
//! printed marker, an existing file. A sign is a signal and never a proof: only the checks decide
//! whether a goal is reached. Owns the rules and when a sign is reported; the caller reads files
//! and output.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Kind of the document that remembers a sign.
pub const SIGN: &str = "sign";
/// Version of that document. A newer one is refused, never guessed at.
pub const SIGN_VERSION: u32 = 1;
/// Files are read up to this size; a longer file contains no plan.
pub const FILE_MAX_BYTES: u64 = 256 << 10;

/// A named sign to watch for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionRule {
    pub name: String,
    /// Name of the loop it is limited to; `None` applies to all loops of the project.
    pub of: Option<String>,
    pub sign: CompletionSign,
}

/// What counts as a sign of completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionSign {
    /// A file with boxes (`- [x]`), none of them open.
    Plan {
        /// Path relative to the loop's folder.
        file: String,
    },
    /// A line in a file that equals the marker.
    Line { marker: String, file: String },
    /// A line in the agent's output that equals the marker.
    Said { marker: String },
    /// A file that exists.
    Appears { file: String },
}

impl CompletionSign {
    /// The file to read, if the sign is about one.
    pub fn file(&self) -> Option<&str> {
        match self {
            CompletionSign::Plan { file } | CompletionSign::Line { file, .. } | CompletionSign::Appears { file } => {
                Some(file)
            }
            CompletionSign::Said { .. } => None,
        }
    }
}

/// Material for one evaluation of a rule.
#[derive(Clone, Copy, Debug)]
pub struct CompletionEvidence<'a> {
    /// The observed turn or session.
    pub by: &'a str,
    /// The end of the agent's output; data.
    pub said: &'a str,
    /// Content of the rule's file; `None` when it does not exist.
    pub file: Option<&'a str>,
}

/// Stored memory of a rule, so that a sign is reported once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Format of this record.
    pub sign_version: u32,
    /// The sign was present at the last evaluation.
    pub there: bool,
    /// Checksum of the output that gave the sign; 0 for signs in files.
    pub mark: u32,
    /// Time of the last report.
    pub at: Time,
    /// The turn or session that gave the sign.
    pub by: String,
    /// The sign as a sentence.
    pub text: String,
}

/// Result of one evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionReading {
    Same,
    /// The sign is gone; its next appearance is reported again.
    Gone(Memory),
    /// The sign is new and must be reported.
    Seen(Memory),
}

impl CompletionRule {
    /// Evaluates the rule once. A sign in a file is reported when it appears, one in the output
    /// once per distinct output.
    pub fn look(&self, before: Option<&Memory>, evidence: &CompletionEvidence<'_>, now: Time) -> CompletionReading {
        let known = before.filter(|memory| memory.there);
        let mark = match &self.sign {
            CompletionSign::Said { .. } => crc32fast::hash([evidence.by, "\0", evidence.said].concat().as_bytes()),
            CompletionSign::Plan { .. } | CompletionSign::Line { .. } | CompletionSign::Appears { .. } => 0,
        };
        match (self.seen(evidence), known) {
            (None, None) => CompletionReading::Same,
            // Output cannot be taken back: its sign does not disappear.
            (None, Some(_)) if matches!(self.sign, CompletionSign::Said { .. }) => CompletionReading::Same,
            (None, Some(memory)) => CompletionReading::Gone(Memory { there: false, ..memory.clone() }),
            (Some(_), Some(memory)) if memory.mark == mark => CompletionReading::Same,
            (Some(text), _) => {
                let by = evidence.by.to_owned();
                CompletionReading::Seen(Memory { sign_version: SIGN_VERSION, there: true, mark, at: now, by, text })
            }
        }
    }

    /// Describes the sign, if it is present.
    fn seen(&self, evidence: &CompletionEvidence<'_>) -> Option<String> {
        match &self.sign {
            CompletionSign::Plan { file } => {
                let done = boxes(evidence.file?)?;
                Some(format!("`{file}` has no open box ({done} done)"))
            }
            CompletionSign::Line { marker, file } => {
                has_line(evidence.file?, marker).then(|| format!("`{file}` contains the line `{marker}`"))
            }
            CompletionSign::Said { marker } => {
                has_line(evidence.said, marker).then(|| format!("the agent printed `{marker}`"))
            }
            CompletionSign::Appears { file } => evidence.file.map(|_| format!("`{file}` is there")),
        }
    }
}

/// Number of ticked boxes; `None` when one is open or there is none. Boxes in a code block are no
/// plan.
fn boxes(text: &str) -> Option<u32> {
    let (mut done, mut code) = (0, false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("```") || line.starts_with("~~~") {
            code = !code;
        }
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['-', '*', '+', '.', ')']);
        if code || item.len() == line.len() {
            continue;
        }
        match item.trim_start().as_bytes() {
            [b'[', b' ', b']', ..] => return None,
            [b'[', b'x' | b'X', b']', ..] => done += 1,
            _ => {}
        }
    }
    (done > 0).then_some(done)
}

/// Whether a line equals the marker: a line that quotes or mentions it does not count.
fn has_line(text: &str, marker: &str) -> bool {
    let marker = marker.trim();
    !marker.is_empty() && text.lines().any(|line| line.trim() == marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(sign: CompletionSign) -> CompletionRule {
        CompletionRule { name: "r".to_owned(), of: None, sign }
    }

    fn plan() -> CompletionRule {
        rule(CompletionSign::Plan { file: "PLAN.md".to_owned() })
    }

    fn file(text: Option<&str>) -> CompletionEvidence<'_> {
        CompletionEvidence { by: "k-1.1", said: "", file: text }
    }

    fn memory(look: CompletionReading) -> Memory {
        match look {
            CompletionReading::Seen(memory) | CompletionReading::Gone(memory) => memory,
            CompletionReading::Same => panic!("nothing new"),
        }
    }

    #[test]
    fn a_plan_is_finished_when_it_has_boxes_and_none_is_open() {
        for (text, done) in [
            ("# Plan\n- [x] a\n  * [X] b\n1. [x] c\n", Some(3)),
            ("- [x] a\n- [ ] b\n", None),
            ("- [x] a\n12) [ ] b\n", None),
            ("nothing to tick", None),
            ("[x] is no item of a list", None),
            ("- [x] a\n```\n- [ ] an example\n```\n", Some(1)),
            ("- [link](x)\n- [x] a", Some(1)),
            ("", None),
        ] {
            assert_eq!(boxes(text), done, "{text:?}");
        }
    }

    #[test]
    fn a_marker_is_a_line_of_its_own() {
        assert!(has_line("so\n  ALL DONE \n", "ALL DONE"));
        for text in ["> ALL DONE", "I will say ALL DONE", "ALL DONE?", "", "all done"] {
            assert!(!has_line(text, "ALL DONE"), "{text}");
        }
        assert!(!has_line("\n\n", " "), "an empty marker is everywhere and means nothing");
    }

    #[test]
    fn a_sign_in_a_file_is_told_when_it_comes_up_and_again_after_it_was_gone() {
        let seen = memory(plan().look(None, &file(Some("- [x] a")), Time(1)));
        assert_eq!((seen.by.as_str(), seen.text.as_str()), ("k-1.1", "`PLAN.md` has no open box (1 done)"));
        assert_eq!(plan().look(Some(&seen), &file(Some("- [x] a\n- [x] b")), Time(2)), CompletionReading::Same);
        let gone = memory(plan().look(Some(&seen), &file(Some("- [ ] more")), Time(3)));
        assert!(!gone.there && gone.at == Time(1), "the time of the last report stays");
        assert_eq!(plan().look(Some(&gone), &file(None), Time(4)), CompletionReading::Same);
        assert!(
            matches!(plan().look(Some(&gone), &file(Some("- [x] more")), Time(5)), CompletionReading::Seen(m) if m.at == Time(5))
        );
    }

    #[test]
    fn the_same_words_are_told_once_and_the_next_turns_again() {
        let rule = rule(CompletionSign::Said { marker: "ALL DONE".to_owned() });
        let said = |by, said| CompletionEvidence { by, said, file: None };
        let first = memory(rule.look(None, &said("k-1.1", "ok\nALL DONE"), Time(1)));
        assert_eq!(rule.look(Some(&first), &said("k-1.1", "ok\nALL DONE"), Time(2)), CompletionReading::Same);
        assert_eq!(rule.look(Some(&first), &said("k-2.1", "not yet"), Time(3)), CompletionReading::Same);
        assert!(matches!(rule.look(Some(&first), &said("k-2.1", "ok\nALL DONE"), Time(4)), CompletionReading::Seen(_)));
    }

    #[test]
    fn a_file_is_there_or_not() {
        let rule = rule(CompletionSign::Appears { file: "out.txt".to_owned() });
        assert_eq!(rule.look(None, &file(None), Time(1)), CompletionReading::Same);
        assert!(matches!(rule.look(None, &file(Some("")), Time(1)), CompletionReading::Seen(_)));
        let line = self::rule(CompletionSign::Line { marker: "END".to_owned(), file: "log".to_owned() });
        assert!(
            matches!(line.look(None, &file(Some("a\nEND\n")), Time(1)), CompletionReading::Seen(m) if m.text == "`log` contains the line `END`")
        );
    }
}
