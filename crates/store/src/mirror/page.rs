//! One file of a mirror: readable JSON with a kind and the id of the mirror, and a checksum as its
//! last line.
//!
//! The checksum covers every byte before it and its own line has a fixed form, so no bit of a file
//! can flip without notice.

use everloop_core::journal::sum;
use serde_json::{Value, json};

use super::VERSION;

/// Content of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Page {
    pub kind: String,
    /// Id of the mirror that it belongs to.
    pub of: String,
    pub row: Value,
}

/// `,\n  "sum": "00000000"\n}\n`
const TAIL: usize = 24;

fn tail(sum: u32) -> String {
    format!(",\n  \"sum\": \"{sum:08x}\"\n}}\n")
}

/// The text of a file.
pub(super) fn encode(kind: &str, of: &str, row: &Value) -> String {
    let whole = json!({ "mirror": VERSION, "kind": kind, "of": of, "row": row });
    let mut text = serde_json::to_string_pretty(&whole).expect("a value always has a JSON form");
    text.truncate(text.len() - "\n}".len());
    let end = tail(sum(text.as_bytes()));
    text.push_str(&end);
    text
}

/// Reads a file and refuses everything that is not exactly what was written.
pub(super) fn open(bytes: &[u8]) -> Result<Page, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is damaged: it is no text".to_owned())?;
    let end = text.len().checked_sub(TAIL).filter(|at| text.is_char_boundary(*at));
    let (body, found) = end.map(|at| text.split_at(at)).ok_or("it is cut off")?;
    if found != tail(sum(body.as_bytes())) {
        return Err("it is cut off or damaged: its checksum does not fit".to_owned());
    }
    let mut whole: Value = serde_json::from_str(text).map_err(|e| format!("it cannot be read: {e}"))?;
    match whole["mirror"].as_u64() {
        Some(VERSION) => {}
        Some(newer) => return Err(format!("its format {newer} is not known to this everloop ({VERSION})")),
        None => return Err("it is no file of a mirror".to_owned()),
    }
    let mut part = |name: &str| match whole[name].take() {
        Value::String(text) => Ok(text),
        _ => Err(format!("its `{name}` is missing")),
    };
    Ok(Page { kind: part("kind")?, of: part("of")?, row: whole["row"].take() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_flips_and_no_byte_is_lost_without_notice() {
        let text = encode("loop", "a1", &json!({ "id": "k3f9", "state": "Größe\n\"x\"" }));
        let page = open(text.as_bytes()).unwrap();
        assert_eq!((page.kind.as_str(), page.of.as_str(), page.row["id"].as_str()), ("loop", "a1", Some("k3f9")));
        for end in 0..text.len() {
            assert!(open(&text.as_bytes()[..end]).is_err(), "cut off at {end}");
        }
        for byte in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[byte] ^= 1 << bit;
                assert!(open(&bytes).is_err(), "bit {bit} of byte {byte}");
            }
        }
    }

    #[test]
    fn a_file_of_a_newer_everloop_is_named_as_such() {
        let newer = encode("loop", "a1", &Value::Null).replace("\"mirror\": 1", "\"mirror\": 2");
        let body = &newer[..newer.len() - TAIL];
        let newer = format!("{body}{}", tail(sum(body.as_bytes())));
        assert_eq!(open(newer.as_bytes()), Err("its format 2 is not known to this everloop (1)".to_owned()));
    }
}
