//! Claude Code's own record of its state: `sessions/<pid>.json` in its folder. The file of a killed
//! process stays, so it counts only when pid and start time are those of a living process in the
//! pane.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Pane;
use crate::process::{self, Identity};

/// A record is a few hundred bytes; a longer file is something else.
const LARGEST: u64 = 1 << 20;

/// What the program reports that it is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    /// Working, retrying, or running a tool.
    Busy,
    /// Waiting for a person.
    Waiting {
        reason: String,
    },
    /// An unknown status.
    Other,
}

/// State of a Claude Code session, read from its own record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneSession {
    pub status: Status,
    /// When the status changed, as the program writes it; only compared.
    pub updated: String,
    /// The id of the session.
    pub id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    pid: Option<i64>,
    status: String,
    waiting_for: Option<String>,
    session_id: Option<String>,
    status_updated_at: Option<serde_json::Value>,
    proc_start: Option<serde_json::Value>,
}

/// The record of the program in this pane; `None` when there is no trustworthy one.
pub(super) fn find(pane: &Pane) -> Option<PaneSession> {
    let family = process::descendants(pane.process.pid).iter().map(process::Stat::identity).collect::<Vec<_>>();
    std::iter::once(pane.process.clone()).chain(family).find_map(|one| {
        let path = folder(one.pid)?.join("sessions").join(format!("{}.json", one.pid));
        let fits = fs::metadata(&path).ok()?.len() <= LARGEST;
        parse(&one, &fs::read(path).ok().filter(|_| fits)?)
    })
}

/// Where that process keeps its files, by its own environment.
pub(super) fn folder(pid: i32) -> Option<PathBuf> {
    let var = |name: &str| variable(pid, name).map(PathBuf::from);
    var("CLAUDE_CONFIG_DIR").or_else(|| Some(var("HOME")?.join(".claude")))
}

/// A variable of a process, by its environment when it was started.
pub(super) fn variable(pid: i32, name: &str) -> Option<OsString> {
    let bytes = fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).ok()?;
    let prefix = format!("{name}=");
    let entry = bytes.split(|b| *b == 0).find_map(|e| e.strip_prefix(prefix.as_bytes()))?;
    (!entry.is_empty()).then(|| OsString::from_vec(entry.to_vec()))
}

fn parse(process: &Identity, bytes: &[u8]) -> Option<PaneSession> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    let start = match record.proc_start? {
        serde_json::Value::Number(n) => n.as_u64(),
        serde_json::Value::String(s) => s.trim().parse().ok(),
        _ => None,
    };
    // A start time in an unknown form proves nothing; then the screen has to suffice.
    if start != Some(process.start_ticks) || record.pid.is_some_and(|pid| pid != i64::from(process.pid)) {
        return None;
    }
    let status = match record.status.as_str() {
        "idle" => Status::Idle,
        "busy" => Status::Busy,
        "waiting" => Status::Waiting { reason: record.waiting_for.unwrap_or_default() },
        _ => Status::Other,
    };
    let updated = record.status_updated_at.map(|v| v.to_string()).unwrap_or_default();
    Some(PaneSession { status, updated, id: record.session_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_record_of_this_very_process_counts() {
        let process = Identity { pid: 7, start_ticks: 123, boot: "b".to_owned() };
        let record = |start: &str, pid: i32| {
            format!(r#"{{"pid":{pid},"status":"waiting","waitingFor":"permission prompt","procStart":{start},"x":1}}"#)
        };
        let good = parse(&process, record("\"123\"", 7).as_bytes()).unwrap();
        assert_eq!(good.status, Status::Waiting { reason: "permission prompt".to_owned() });
        assert!(parse(&process, record("123", 7).as_bytes()).is_some());
        for (start, pid) in [("124", 7), ("\"Mon Nov 16\"", 7), ("123", 8), ("null", 7)] {
            assert_eq!(parse(&process, record(start, pid).as_bytes()), None, "{start} {pid}");
        }
        assert_eq!(parse(&process, b"{"), None);
    }
}
