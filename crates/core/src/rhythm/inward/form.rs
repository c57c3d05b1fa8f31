//! The answer of an inward turn: a JSON object in its last words. What is wrong with it is repaired
//! where nothing is lost, or dropped and named; nothing is guessed, and nothing is cut.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ReflectOn;
use super::memory::MEMORY_MAX_CHARS;
use super::plan::{IfWoken, PLAN_MAX_CHARS, PLANS_MAX};
use crate::rhythm::reflex::SignalPattern;
use crate::rhythm::signal::WORD_MAX_CHARS;
use crate::rhythm::wish::{self, WakeWish};
use crate::time::Time;

/// Most notes of a reflection, and most characters of one: the next dream reads many of them.
const NOTES_MAX: usize = 5;
const NOTE_MAX_CHARS: usize = 300;
/// Most corrections of a reflection, and most characters of one.
const CORRECTIONS_MAX: usize = 3;
const CORRECTION_MAX_CHARS: usize = 200;
/// Characters of a value that are repeated when it is dropped.
const SHOWN_CHARS: usize = 60;

/// What a reflection found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    pub at: Time,
    pub on: ReflectOn,
    /// Whether waking was worth it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<bool>,
    /// Data, like everything that follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// When to wake next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<WakeWish>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<String>,
    /// What was dropped of the answer, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

impl Default for Reflection {
    fn default() -> Self {
        Self {
            at: Time(0),
            on: ReflectOn::OnCycle,
            worth: None,
            notes: Vec::new(),
            wish: None,
            corrections: Vec::new(),
            dropped: Vec::new(),
        }
    }
}

/// The answer of a dream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DreamAnswer {
    /// `None` leaves the memory as it is.
    pub memory: Option<String>,
    /// `None` leaves the plans as they are.
    pub plans: Option<Vec<IfWoken>>,
    pub dropped: Vec<String>,
}

/// Reads the answer of a reflection.
pub fn reflection(words: &str, on: ReflectOn, at: Time) -> Result<Reflection, String> {
    let mut fields = Fields::read(words, &["worth", "notes", "wake", "corrections"])?;
    let worth = fields.take("worth").and_then(|value| {
        let read = value.as_bool();
        fields.drop_unless(read.is_some(), "worth", "is neither true nor false", &value);
        read
    });
    let notes = fields.texts("notes", NOTES_MAX, NOTE_MAX_CHARS);
    let wish = fields.text("wake", WORD_MAX_CHARS).and_then(|text| {
        let read = wish::read(&text);
        fields.drop_unless(read.is_some(), "wake", "is no time to wake", &Value::String(text));
        read
    });
    let corrections = fields.texts("corrections", CORRECTIONS_MAX, CORRECTION_MAX_CHARS);
    Ok(Reflection { at, on, worth, notes, wish, corrections, dropped: fields.dropped })
}

/// Reads the answer of a dream.
pub fn dream(words: &str) -> Result<DreamAnswer, String> {
    let mut fields = Fields::read(words, &["memory", "plans"])?;
    let memory = fields.text("memory", MEMORY_MAX_CHARS);
    let plans = fields.take("plans").map(|value| fields.plans(value));
    Ok(DreamAnswer { memory, plans, dropped: fields.dropped })
}

/// The keys of an answer that are not read yet, and what was dropped.
struct Fields {
    map: Map<String, Value>,
    dropped: Vec<String>,
}

impl Fields {
    /// The last object of the words with one of these keys.
    fn read(words: &str, known: &[&str]) -> Result<Self, String> {
        let has_key = |map: &Map<String, Value>| map.keys().any(|key| known.contains(&key.as_str()));
        let found = candidates(words).into_iter().find_map(|text| {
            let map = serde_json::from_str::<Map<String, Value>>(text).ok();
            map.filter(has_key)
        });
        let Some(mut map) = found else {
            return Err(format!("there is no JSON object with one of {}", known.join(", ")));
        };
        let (mut dropped, keys): (Vec<String>, Vec<String>) = (Vec::new(), map.keys().cloned().collect());
        for key in keys.iter().filter(|key| !known.contains(&key.as_str())) {
            map.remove(key);
            dropped.push(format!("`{}` is no key of the form", shown(key)));
        }
        Ok(Self { map, dropped })
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    fn drop_unless(&mut self, good: bool, key: &str, why: &str, value: &Value) {
        if !good {
            self.dropped.push(format!("`{key}` {why}: {}", shown(&value.to_string())));
        }
    }

    /// A text; empty ones are none.
    fn text(&mut self, key: &str, most: usize) -> Option<String> {
        let value = self.take(key)?;
        self.one(key, value, most)
    }

    fn one(&mut self, key: &str, value: Value, most: usize) -> Option<String> {
        let Value::String(text) = value else {
            self.drop_unless(false, key, "is no text", &value);
            return None;
        };
        let text: String = text.trim().chars().filter(|c| !c.is_control() || *c == '\n').collect();
        let chars = text.chars().count();
        if chars > most {
            self.dropped.push(format!("`{key}` has {chars} characters; hint: at most {most}"));
            return None;
        }
        (!text.is_empty()).then_some(text)
    }

    /// A list of texts; a single text is a list of one.
    fn texts(&mut self, key: &str, most: usize, chars: usize) -> Vec<String> {
        let list = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(value) => vec![value],
        };
        let mut texts: Vec<String> = list.into_iter().filter_map(|value| self.one(key, value, chars)).collect();
        self.keep(key, &mut texts, most);
        texts
    }

    fn keep<T>(&mut self, key: &str, list: &mut Vec<T>, most: usize) {
        if list.len() > most {
            self.dropped.push(format!("`{key}` has {} entries; those after the first {most} are dropped", list.len()));
            list.truncate(most);
        }
    }

    fn plans(&mut self, value: Value) -> Vec<IfWoken> {
        let list = match value {
            Value::Array(list) => list,
            value => vec![value],
        };
        let mut plans: Vec<IfWoken> = list.into_iter().filter_map(|value| self.plan(value)).collect();
        self.keep("plans", &mut plans, PLANS_MAX);
        plans
    }

    fn plan(&mut self, value: Value) -> Option<IfWoken> {
        let Value::Object(mut map) = value else {
            self.drop_unless(false, "plans", "has an entry that is no object", &value);
            return None;
        };
        let mut part = |key: &str, most: usize| {
            let value = map.remove(key).filter(|value| !value.is_null())?;
            self.one(key, value, most)
        };
        let (when, class, text) =
            (part("when", WORD_MAX_CHARS), part("class", WORD_MAX_CHARS), part("text", PLAN_MAX_CHARS));
        let class = match class.map(|word| word.parse().map_err(|_| word)) {
            None => None,
            Some(Ok(class)) => Some(class),
            Some(Err(word)) => {
                self.drop_unless(false, "plans", "has an entry of an unknown class", &Value::String(word));
                return None;
            }
        };
        match text {
            Some(text) if when.is_some() || class.is_some() => {
                Some(IfWoken { when: when.map(SignalPattern::new), class, text })
            }
            _ => {
                self.dropped.push("`plans` has an entry without `text`, or with neither `when` nor `class`".to_owned());
                None
            }
        }
    }
}

/// Texts that may be the object: fenced blocks, the last one first, then all between the outermost
/// braces.
fn candidates(words: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for (n, block) in words.split("```").enumerate() {
        if n % 2 == 1 {
            found.insert(0, block.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim());
        }
    }
    if let (Some(from), Some(to)) = (words.find('{'), words.rfind('}'))
        && from < to
    {
        found.push(&words[from..=to]);
    }
    found
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '`').take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::signal::SignalClass;
    use std::time::Duration;

    fn reflect(words: &str) -> Reflection {
        reflection(words, ReflectOn::OnCycle, Time(7)).expect("it is read")
    }

    #[test]
    fn answers_are_read_with_prose_and_fences_around() {
        let object = r#"{"worth": true, "notes": ["eu is slow"], "wake": "in 2h", "corrections": ["read the log"]}"#;
        for words in [
            object.to_owned(),
            format!("Here it is.\n```json\n{object}\n```\nDone."),
            format!("First {{draft}}\n```\n{{\"notes\": []}}\n```\nthen\n```json\n{object}\n```"),
            format!("I thought about it: {object} That is all."),
        ] {
            let found = reflect(&words);
            assert_eq!((found.worth, found.notes.as_slice()), (Some(true), &["eu is slow".to_owned()][..]), "{words}");
            assert_eq!(found.wish, Some(WakeWish::In { wait: Duration::from_secs(7200) }));
            assert_eq!((found.corrections.len(), found.dropped.len()), (1, 0), "{words}");
        }
    }

    #[test]
    fn what_is_wrong_is_repaired_without_loss_or_dropped() {
        let one = reflect(r#"{"notes": "  just one ", "worth": null, "wake": "<WAKE tomorrow>", "corrections": [""]}"#);
        assert_eq!((one.notes.as_slice(), one.wish), (&["just one".to_owned()][..], Some(WakeWish::Tomorrow)));
        assert!(one.dropped.is_empty(), "{:?}", one.dropped);
        let long = "x".repeat(301);
        for (words, has) in [
            (r#"{"notes": [], "mood": "blue"}"#.to_owned(), "`mood` is no key"),
            (r#"{"worth": "yes"}"#.to_owned(), "`worth` is neither"),
            (r#"{"wake": "soon"}"#.to_owned(), "`wake` is no time"),
            (r#"{"notes": [5]}"#.to_owned(), "`notes` is no text: 5"),
            (format!(r#"{{"notes": ["{long}"]}}"#), "`notes` has 301 characters"),
            (r#"{"notes": ["1","2","3","4","5","6"]}"#.to_owned(), "`notes` has 6 entries"),
        ] {
            let found = reflect(&words);
            assert!(found.dropped.len() == 1 && found.dropped[0].contains(has), "{words}: {:?}", found.dropped);
            assert_eq!((found.worth, found.wish), (None, None));
        }
        for words in ["", "it was good", "{notes: [1]}", "[1]", r#"{"mood": "blue"}"#, "}{"] {
            assert!(reflection(words, ReflectOn::OnSelf, Time(0)).is_err(), "{words}");
            assert!(dream(words).is_err(), "{words}");
        }
    }

    #[test]
    fn plans_are_three_at_most_and_whole() {
        let plan = |n: u32| format!(r#"{{"when": "topic:deploy.{n}", "class": "high", "text": "begin {n}"}}"#);
        let all: Vec<String> = (0..4).map(plan).collect();
        let found = dream(&format!(r#"{{"memory": "short", "plans": [{}]}}"#, all.join(","))).expect("it is read");
        let plans = found.plans.expect("plans");
        assert_eq!((plans.len(), plans[0].class, found.dropped.len()), (3, Some(SignalClass::High), 1));
        for bad in [r#"{"text": "x"}"#, r#"{"when": "x"}"#, r#"{"class": "urgent", "text": "x"}"#, "7"] {
            let found = dream(&format!(r#"{{"plans": [{bad}]}}"#)).expect("it is read");
            assert_eq!((found.plans, found.memory), (Some(Vec::new()), None), "{bad}");
            assert_eq!(found.dropped.len(), 1, "{bad}: {:?}", found.dropped);
        }
        let long = dream(&format!(r#"{{"memory": "{}"}}"#, "x".repeat(4_001))).expect("it is read");
        assert!(long.memory.is_none() && long.dropped[0].contains("4001 characters"), "{:?}", long.dropped);
    }
}
