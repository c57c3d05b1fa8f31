//! The end of a session's transcript, as its CLI writes it: the last words, and how full the
//! context is. Never trusted: an unreadable line is skipped.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use everloop_agents::prices;
use serde_json::Value;

/// The last records fit in here; reading more would cost time in every hook.
const TAIL_BYTES: u64 = 256 << 10;
/// The window of a model that is not known: that of most.
const USUAL_WINDOW: u64 = 200_000;
/// The next larger one that vendors offer.
const LARGE_WINDOW: u64 = 1_000_000;
/// Last words are cut here.
const WORDS_MAX_CHARS: usize = 3000;

/// The end of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptEnd {
    pub words: String,
    /// Tokens in the context at its last answer.
    pub context_tokens: Option<u64>,
    /// Tokens that fit into the context, by what the CLI writes or else by the model's name.
    pub window: Option<u64>,
}

/// Reads the end of a transcript; empty without one.
pub fn ending(path: &Path) -> TranscriptEnd {
    let mut found = TranscriptEnd::default();
    for line in tail(path).unwrap_or_default().lines().rev() {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        let heard = heard(&record);
        found.context_tokens = found.context_tokens.or(heard.context_tokens);
        found.window = found.window.or(heard.window);
        if found.words.is_empty() {
            found.words = heard.words.chars().take(WORDS_MAX_CHARS).collect();
        }
        if !found.words.is_empty() && found.context_tokens.is_some() {
            break;
        }
    }
    found
}

/// What one record says, in each CLI's format.
fn heard(record: &Value) -> TranscriptEnd {
    let payload = &record["payload"];
    let window = |model: &Value| model.as_str().and_then(prices::context_of);
    match record["type"].as_str().unwrap_or_default() {
        // A sub-agent has a context of its own.
        "assistant" if record["isSidechain"] != true => {
            let message = &record["message"];
            TranscriptEnd {
                words: said(message),
                context_tokens: message.get("usage").and_then(used),
                window: window(&message["model"]),
            }
        }
        "response_item" if payload["type"] == "message" && payload["role"] == "assistant" => {
            TranscriptEnd { words: said(payload), ..TranscriptEnd::default() }
        }
        "event_msg" if payload["type"] == "token_count" => {
            let info = &payload["info"];
            TranscriptEnd {
                context_tokens: info["last_token_usage"]["total_tokens"].as_u64(),
                window: info["model_context_window"].as_u64().filter(|window| *window > 0),
                ..TranscriptEnd::default()
            }
        }
        "gemini" => TranscriptEnd {
            words: said(record),
            context_tokens: record["tokens"]["total"].as_u64(),
            window: window(&record["model"]),
        },
        _ => TranscriptEnd::default(),
    }
}

/// The size of a context that holds `tokens`, where it is not configured: as the CLI or the model's
/// name gives it. A context that holds more than that is one of the large ones.
pub fn window(known: Option<u64>, tokens: u64) -> u64 {
    let window = known.unwrap_or(USUAL_WINDOW);
    if tokens > window { window.max(LARGE_WINDOW) } else { window }
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
        assert_eq!(found, TranscriptEnd { words: "I did it".into(), context_tokens: Some(160_100), window: None });
        assert_eq!(percent(160_100, window(None, 160_100)), 80);
        assert_eq!(ending(&dir.path().join("none")), TranscriptEnd::default());
    }

    #[test]
    fn the_transcripts_of_codex_and_gemini_are_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let codex = [
            r#"{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"half done"}]}}"#,
            r#"{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"total_tokens":999},"last_token_usage":{"total_tokens":118}}}}"#,
            r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]}}"#,
        ];
        let gemini = [
            r#"{"type":"gemini","content":"half done","tokens":{"input":111,"output":7,"total":118}}"#,
            r#"{"type":"user","content":[{"text":"go on"}]}"#,
            r#"{"$set":{"lastUpdated":"x"}}"#,
        ];
        for lines in [codex, gemini] {
            std::fs::write(&path, lines.join("\n")).unwrap();
            let found = ending(&path);
            assert_eq!((found.words.as_str(), found.context_tokens), ("half done", Some(118)));
        }
    }

    #[test]
    fn the_window_is_as_large_as_the_cli_or_its_model_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        for (line, size) in [
            (
                r#"{"type":"assistant","message":{"model":"claude-opus-5-5","content":"x","usage":{"input_tokens":170000}}}"#,
                1_000_000,
            ),
            (
                r#"{"type":"assistant","message":{"model":"claude-haiku-4-5","content":"x","usage":{"input_tokens":170000}}}"#,
                200_000,
            ),
            (
                r#"{"type":"assistant","message":{"model":"other","content":"x","usage":{"input_tokens":170000}}}"#,
                200_000,
            ),
            (
                r#"{"type":"assistant","message":{"model":"other","content":"x","usage":{"input_tokens":370000}}}"#,
                1_000_000,
            ),
            (
                r#"{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"total_tokens":170000},"model_context_window":272000}}}"#,
                272_000,
            ),
            (r#"{"type":"gemini","content":"x","model":"gemini-of-tomorrow","tokens":{"total":170000}}"#, 1_048_576),
        ] {
            std::fs::write(&path, line).unwrap();
            let found = ending(&path);
            assert_eq!(window(found.window, found.context_tokens.unwrap()), size, "{line}");
        }
    }
}
