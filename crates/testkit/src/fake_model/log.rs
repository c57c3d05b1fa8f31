//! The requests and the steps that answered them: in memory for the test, as JSON lines for another
//! process.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A loop with more requests than this is out of control; further ones are counted, not kept.
const MAX_KEPT: usize = 20_000;

/// Number of requests that are kept with their body.
const MAX_WHOLE: usize = 16;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// With tools: a turn of the agent. Only these play the script.
    Main,
    /// Titles, topics, token counts, lists of models.
    Side,
    /// A path that a model server does not have.
    Other,
}

/// One request and its response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub method: String,
    /// The path with its query.
    pub path: String,
    pub kind: RequestKind,
    /// The step that answered, as it was written.
    pub step: Option<String>,
    /// The position of that step in the script.
    pub index: Option<usize>,
    /// The status of the response; `None` when there is none.
    pub status: Option<u16>,
    /// The requested model.
    pub model: Option<String>,
    /// The form of the key: `bearer`, `x-api-key`, `x-goog-api-key` or `none`; never the key.
    pub auth: String,
    /// Headers that name the program, a session or a thread.
    pub headers: Vec<(String, String)>,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// The beginning of the last user text.
    pub last_user: String,
    /// Whether the request ends with a tool result.
    pub has_tool_result: bool,
    pub body_bytes: usize,
    /// The whole body, of the first requests only; not in the file.
    #[serde(skip)]
    pub body: String,
}

#[derive(Debug, Default)]
struct Kept {
    records: Vec<RequestRecord>,
    main: usize,
    file: Option<File>,
}

/// All requests so far.
#[derive(Debug, Default)]
pub struct Log {
    kept: Mutex<Kept>,
    grown: Condvar,
}

impl Log {
    /// Also writes each record to `file`.
    pub fn new(file: Option<File>) -> Self {
        Self { kept: Mutex::new(Kept { file, ..Kept::default() }), grown: Condvar::new() }
    }

    /// Adds a record before its response is sent, so that a test that sees the response finds the
    /// record.
    pub fn add(&self, mut record: RequestRecord) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.main += usize::from(record.kind == RequestKind::Main);
        let written = match &mut kept.file {
            // In one write: another process may read the file at any time.
            Some(file) => serde_json::to_string(&record)
                .map_err(io::Error::from)
                .and_then(|line| file.write_all(format!("{line}\n").as_bytes())),
            None => Ok(()),
        };
        if kept.records.len() >= MAX_WHOLE {
            record.body = String::new();
        }
        if kept.records.len() < MAX_KEPT {
            kept.records.push(record);
        }
        self.grown.notify_all();
        written
    }

    /// A copy of the records.
    pub fn records(&self) -> Vec<RequestRecord> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).records.clone()
    }

    /// How many main requests there were.
    pub fn main_calls(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).main
    }

    /// Waits for the main request number `calls`; false when it did not come within `patience`.
    pub fn wait_for_main_calls(&self, calls: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.main < calls {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            kept = self.grown.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Reads a log file. A last line that is still being written is left out.
pub fn read(path: &Path) -> io::Result<Vec<RequestRecord>> {
    let mut records = Vec::new();
    for line in BufReader::new(File::open(path)?).lines().take(MAX_KEPT) {
        match serde_json::from_str(&line?) {
            Ok(record) => records.push(record),
            Err(_) => break,
        }
    }
    Ok(records)
}
