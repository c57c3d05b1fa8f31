//! JSON helpers shared by all parsers: fields that may be missing, text that is safe to keep,
//! fingerprints that stay the same between releases. Knows no CLI.

use everloop_core::stream::Usage;
use serde_json::{Map, Value};

/// Bytes kept of one record's text.
const TEXT_CAP: usize = 8_000;

/// Bytes kept of an error message: one or two sentences.
const SAYING_CAP: usize = 400;

/// Ids and names; every known one is shorter than half of it.
const NAME_CAP: usize = 200;

/// Characters of a tool's arguments: about two lines of a terminal.
const BRIEF_CAP: usize = 200;

/// Bytes of each end of a tool's result: the error is at one of them.
const EXCERPT_CAP: usize = 300;

static NULL: Value = Value::Null;

/// Access to fields that may be missing or of an unexpected type.
pub trait Fields {
    /// The field, or null.
    fn at(&self, name: &str) -> &Value;

    /// The field as text, if it is that.
    fn text(&self, name: &str) -> Option<&str> {
        self.at(name).as_str()
    }

    /// The field as a whole number; one written with a decimal point counts as well.
    fn number(&self, name: &str) -> Option<u64> {
        whole(self.at(name))
    }

    /// The field as a list; a missing one is empty.
    fn list(&self, name: &str) -> &[Value] {
        self.at(name).as_array().map_or(&[], Vec::as_slice)
    }

    /// The field as an object.
    fn object(&self, name: &str) -> Option<&Map<String, Value>> {
        self.at(name).as_object()
    }
}

impl Fields for Value {
    fn at(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NULL)
    }
}

/// A non-negative number, truncated.
pub fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|f| f.is_finite() && *f >= 0.0).map(|f| f as u64);
    value.as_u64().or_else(float)
}

/// Converts dollars to millionths of a dollar.
pub fn microusd(value: &Value) -> Option<u64> {
    let dollars = value.as_f64().filter(|d| d.is_finite() && *d >= 0.0)?;
    Some((dollars * 1e6).round() as u64)
}

/// Millionths of a dollar as dollars.
pub fn dollars(microusd: u64) -> String {
    format!("{}.{:06}", microusd / 1_000_000, microusd % 1_000_000)
}

/// Whether neither tokens nor money were used.
pub fn is_nothing(usage: &Usage) -> bool {
    usage.tokens() == 0 && usage.microusd.unwrap_or(0) == 0
}

/// Text of the model, capped and safe to show.
pub fn words(text: &str) -> String {
    clean(text, TEXT_CAP)
}

/// The error text of a CLI, shortened.
pub fn saying(text: &str) -> String {
    clean(text, SAYING_CAP)
}

/// An id or a name.
pub fn name(text: &str) -> String {
    clean(text, NAME_CAP)
}

/// The first `cap` characters. A text of at most `cap` bytes has no more characters than that.
fn head(text: &str, cap: usize) -> &str {
    if text.len() <= cap {
        return text;
    }
    text.char_indices().nth(cap).map_or(text, |(end, _)| &text[..end])
}

fn clean(text: &str, cap: usize) -> String {
    crate::job::plain(head(text, cap).trim().as_bytes())
}

/// The arguments of a tool call in one line: the one that names what it works on, else all of them.
pub fn brief(arguments: &Value) -> String {
    const TELLING: [&str; 10] =
        ["command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "prompt", "description"];
    let text = match arguments {
        Value::Object(map) => match TELLING.iter().find_map(|key| map.get(*key)) {
            Some(Value::Array(words)) => words.iter().map(flat).collect::<Vec<_>>().join(" "),
            Some(value) => flat(value),
            None if map.is_empty() => String::new(),
            None => arguments.to_string(),
        },
        Value::Array(list) => list.iter().map(brief).filter(|one| !one.is_empty()).collect::<Vec<_>>().join(" "),
        other => flat(other),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clean(&line, BRIEF_CAP)
}

/// Both ends of a tool's result.
pub fn excerpt(text: &str) -> String {
    let text = text.trim();
    if text.len() <= EXCERPT_CAP * 2 {
        return clean(text, EXCERPT_CAP * 2);
    }
    let from = text.len() - EXCERPT_CAP;
    let from = (from..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    format!("{}\n…\n{}", clean(text, EXCERPT_CAP), clean(&text[from..], EXCERPT_CAP))
}

/// FNV-1a: short and stable; crafted collisions are not a concern here.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A tag per type precedes the value, so that `["a"]` and `"a"` differ. Keys are sorted,
    /// because their order has no meaning.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.add(b"n"),
            Value::Bool(b) => self.add(if *b { b"t" } else { b"f" }),
            Value::Number(n) => {
                self.add(b"#");
                self.add(n.to_string().as_bytes());
            }
            Value::String(s) => {
                self.add(b"\"");
                self.add(s.as_bytes());
            }
            Value::Array(list) => {
                self.add(b"[");
                for item in list {
                    self.value(item);
                }
                self.add(b"]");
            }
            Value::Object(map) => {
                self.add(b"{");
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort();
                for key in keys {
                    self.add(key.as_bytes());
                    self.add(b":");
                    self.value(&map[key]);
                }
                self.add(b"}");
            }
        }
        self.add(b"\0");
    }
}

/// Fingerprint of a tool call: equal names and arguments give equal values.
pub fn fingerprint(name: &str, arguments: &Value) -> u64 {
    let mut fnv = Fnv::new();
    fnv.add(name.as_bytes());
    fnv.add(b"\0");
    fnv.value(arguments);
    fnv.0
}

/// Fingerprint of an error message. Numbers are skipped: times, ports and line counters change
/// while the error stays.
pub fn error_fingerprint(message: &str) -> u64 {
    let mut fnv = Fnv::new();
    let mut in_number = false;
    for byte in message.bytes().take(TEXT_CAP) {
        if byte.is_ascii_digit() {
            if !std::mem::replace(&mut in_number, true) {
                fnv.add(b"0");
            }
        } else {
            in_number = false;
            fnv.add(&[byte]);
        }
    }
    fnv.0
}

/// Text of a value: itself, the parts of a list (`[{"type":"text","text":…}]`), or JSON.
pub fn flat(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p.text("text")).collect::<Vec<_>>().join("\n"),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fingerprint_depends_on_content_only() {
        let a = fingerprint("Bash", &json!({"command": "ls", "timeout": 5}));
        assert_eq!(a, fingerprint("Bash", &json!({"timeout": 5, "command": "ls"})));
        assert_ne!(a, fingerprint("Bash", &json!({"timeout": 6, "command": "ls"})));
        assert_ne!(a, fingerprint("Read", &json!({"timeout": 5, "command": "ls"})));
        assert_ne!(fingerprint("x", &json!(["a"])), fingerprint("x", &json!("a")));
        // The value is stored in journals and must stay the same.
        assert_eq!(fingerprint("Bash", &json!({"command": "ls"})), 0xc270_b28d_49f5_79a3);
    }

    #[test]
    fn the_same_error_at_another_time_is_the_same() {
        assert_eq!(error_fingerprint("exit 1 after 12 ms"), error_fingerprint("exit 1 after 7 ms"));
        assert_ne!(error_fingerprint("no such file"), error_fingerprint("permission denied"));
    }

    #[test]
    fn calls_and_results_in_short() {
        for (arguments, short) in [
            (json!({"command": "cargo test\n  --all", "timeout": 5}), "cargo test --all"),
            (json!({"file_path": "/a.rs", "content": "long"}), "/a.rs"),
            (json!({"command": ["bash", "-lc", "ls"]}), "bash -lc ls"),
            (json!([null, "ls"]), "ls"),
            (json!([[{"path": "a.rs", "kind": "update"}]]), "a.rs"),
            (json!({}), ""),
            (json!({"x": 1}), "{\"x\":1}"),
            (json!("\u{1b}[31mred"), "red"),
        ] {
            assert_eq!(brief(&arguments), short, "{arguments}");
        }
        assert_eq!(brief(&json!("é".repeat(500))).chars().count(), BRIEF_CAP);
        assert_eq!(excerpt(" two\nlines "), "two\nlines");
        let long = excerpt(&format!("begin{}end", "é".repeat(2_000)));
        assert!(long.starts_with("begin") && long.ends_with("end") && long.len() < 1_500, "{long}");
    }

    #[test]
    fn odd_numbers_are_no_numbers() {
        assert_eq!(whole(&json!(-3)), None);
        assert_eq!(whole(&json!(1e300)), Some(u64::MAX));
        assert_eq!(microusd(&json!(0.000_884)), Some(884));
        assert_eq!(microusd(&json!("1")), None);
    }
}
