//! What codex writes about a session to its own file and prints nowhere: allowances with exact
//! times, the fill of the context, and the usage of a failed turn.
//!
//! `$CODEX_HOME/sessions/2026/11/15/rollout-<time>-<thread>.jsonl`, appended to on resume.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use everloop_core::stream::{Quota, Usage};
use everloop_core::time::Time;
use serde_json::Value;

use super::reader::ProcessEnd;
use super::record::{self, Fields};
use super::{codex, reset};

/// The last record about tokens stands within this distance of the end; tools write long records in
/// between.
const TAIL_BYTES: u64 = 512 << 10;

/// Folders are searched from the newest on; sessions older than this many days are not resumed.
const DAYS: usize = 62;

/// Bound of the files searched per day.
const FILES: usize = 10_000;

/// The state at the end of the file.
#[derive(Debug, Default, PartialEq)]
pub struct Rollout {
    /// The windows `primary` and `secondary`.
    pub quotas: Vec<Quota>,
    /// Tokens in the context, and its size.
    pub context: Option<(u64, u64)>,
    /// The model of the last turn.
    pub model: Option<String>,
    /// Usage of the whole thread.
    pub in_all: Option<Usage>,
    /// A spending cap of the account is reached.
    pub spend_reached: bool,
    /// Why the last turn failed: a code, and the HTTP status where there was one.
    pub error: Option<(String, Option<u64>)>,
}

/// Finds the thread's file and reads its end. Everything is optional: what is missing is `None`.
pub fn find(thread: &str, end: &ProcessEnd<'_>) -> Option<Rollout> {
    // The id is only compared with file names, but an empty one would match every file.
    if thread.len() < 8 {
        return None;
    }
    let home = end.var("CODEX_HOME").map(PathBuf::from).or_else(|| Some(Path::new(end.var("HOME")?).join(".codex")))?;
    let suffix = format!("-{thread}.jsonl");
    let file = days(&home.join("sessions")).into_iter().take(DAYS).find_map(|day| file_in(&day, &suffix))?;
    Some(last_notes(&tail(&file)?, end.now))
}

/// Folders of days, newest first.
fn days(sessions: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for year in newest_first(sessions) {
        for month in newest_first(&year) {
            all.extend(newest_first(&month));
            if all.len() >= DAYS {
                return all;
            }
        }
    }
    all
}

fn newest_first(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries.take(FILES).flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all
}

fn file_in(day: &Path, suffix: &str) -> Option<PathBuf> {
    let ours = |name: &str| name.starts_with("rollout-") && name.ends_with(suffix);
    fs::read_dir(day).ok()?.take(FILES).flatten().find(|e| e.file_name().to_str().is_some_and(ours)).map(|e| e.path())
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_notes(text: &str, now: Time) -> Rollout {
    // The payload of the last record for which `is_ours` holds. Most lines lack the mark, so they are
    // not parsed.
    let find = |mark: &str, is_ours: &dyn Fn(&Value) -> bool| {
        let mark = format!("\"{mark}\"");
        text.lines().rev().filter(|line| line.contains(&mark)).find_map(|line| {
            let record: Value = serde_json::from_str(line).ok()?;
            is_ours(&record).then(|| record.at("payload").clone())
        })
    };
    let last = |kind: &str| {
        find(kind, &|record| {
            record.text("type") == Some("event_msg") && record.at("payload").text("type") == Some(kind)
        })
    };
    let tokens = last("token_count").map_or_else(Rollout::default, |note| read(&note, now));
    let error = last("task_complete").and_then(|note| error(note.at("error").at("codex_error_info")));
    let context = find("turn_context", &|record| record.text("type") == Some("turn_context"));
    let model = context.and_then(|note| note.text("model").map(record::name));
    Rollout { model, error, ..tokens }
}

/// Reads `"usage_limit_exceeded"` or `{"http_connection_failed":{"http_status_code":402}}`.
fn error(info: &Value) -> Option<(String, Option<u64>)> {
    match info {
        Value::String(word) => Some((record::name(word), None)),
        Value::Object(map) => map.iter().next().map(|(k, v)| (record::name(k), v.number("http_status_code"))),
        _ => None,
    }
}

fn read(note: &Value, now: Time) -> Rollout {
    let (info, limits) = (note.at("info"), note.at("rate_limits"));
    let window = info.number("model_context_window").filter(|w| *w > 0);
    let used = info.at("last_token_usage").number("total_tokens");
    Rollout {
        quotas: ["primary", "secondary"].iter().filter_map(|name| quota(name, limits.at(name), now)).collect(),
        context: used.zip(window),
        spend_reached: limits.at("spend_control_reached") == true,
        in_all: info.object("total_token_usage").map(|_| codex::usage(info.at("total_token_usage"))),
        model: None,
        error: None,
    }
}

fn quota(name: &str, window: &Value, now: Time) -> Option<Quota> {
    let percent = window.at("used_percent").as_f64().filter(|p| p.is_finite() && *p >= 0.0)?;
    Some(Quota {
        window: record::name(name),
        used_permille: (percent * 10.0).round() as u32,
        reset_at: window.number("resets_at").and_then(|n| reset::term(n, now)),
        length_ms: window.number("window_minutes").and_then(|m| m.checked_mul(60_000)),
    })
}
