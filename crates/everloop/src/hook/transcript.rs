//! The end of a session's transcript, as its CLI writes it: the last words, and how full the context is. Only looked at,
//! never trusted: a line that cannot be read is skipped.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// The last records fit in here; a longer look would cost time in every hook.
const TAIL_BYTES: u64 = 256 << 10;
/// Last words are cut here.
const WORDS_MAX_CHARS: usize = 3000;

/// What the end of a transcript says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The agent's last words.
    pub words: String,
    /// Tokens in the context at its last answer.
    pub context_tokens: Option<u64>,
}

/// Reads it; nothing when there is none.
pub fn ending(path: &Path) -> Ending {
    let mut found = Ending::default();
    for line in tail(path).unwrap_or_default().lines().rev() {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        // A part of the session has a context of its own.
        if record.get("type").and_then(Value::as_str) != Some("assistant")
            || record.get("isSidechain").and_then(Value::as_bool) == Some(true)
        {
            continue;
        }
        let Some(message) = record.get("message") else { continue };
        if found.context_tokens.is_none() {
            found.context_tokens = message.get("usage").and_then(used);
        }
        if found.words.is_empty() {
            found.words = said(message).chars().take(WORDS_MAX_CHARS).collect();
        }
        if !found.words.is_empty() && found.context_tokens.is_some() {
            break;
        }
    }
    found
}

/// How full a window is.
pub fn percent(tokens: u64, window: u64) -> u32 {
    let percent = tokens.saturating_mul(100) / window.max(1);
    u32::try_from(percent).unwrap_or(u32::MAX)
}

fn used(usage: &Value) -> Option<u64> {
    let number = |field: &str| usage.get(field).and_then(Value::as_u64);
    let parts = ["cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];
    Some(number("input_tokens")? + parts.iter().filter_map(|f| number(f)).sum::<u64>())
}

fn said(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_and_the_last_use_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let lines = [
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"old"}],"usage":{"input_tokens":1}}}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I did it"}],"usage":{"input_tokens":10,"cache_read_input_tokens":160000,"output_tokens":90}}}"#,
            r#"{"type":"assistant","isSidechain":true,"message":{"content":"a part","usage":{"input_tokens":5}}}"#,
            r#"{"type":"user","message":{"content":"thanks"}}"#,
            "{ broken",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = ending(&path);
        assert_eq!(found, Ending { words: "I did it".into(), context_tokens: Some(160_100) });
        assert_eq!(percent(160_100, 200_000), 80);
        assert_eq!(ending(&dir.path().join("none")), Ending::default());
    }
}
