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
    fn odd_numbers_are_no_numbers() {
        assert_eq!(whole(&json!(-3)), None);
        assert_eq!(whole(&json!(1e300)), Some(u64::MAX));
        assert_eq!(microusd(&json!(0.000_884)), Some(884));
        assert_eq!(microusd(&json!("1")), None);
    }
}
