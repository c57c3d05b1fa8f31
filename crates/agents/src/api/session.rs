//! A session on disk: a header line, then one line per item, append-only.
//!
//! The file is locked while a turn uses it. A crash can leave half a line at the end, which the
//! next turn cuts off, and calls without a result, which it closes. What is sent equals what is
//! stored: both without secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use everloop_core::stream::LimitClass;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options::{ApiFormat, ApiTurnOptions};
use super::reply::ApiRefusal;
use crate::clock;
use crate::redact::{Redactor, Secret};

/// Version of the file format.
const VERSION: u32 = 1;
/// More fits into no model, so the session could not be resumed.
const LONGEST: u64 = 64 << 20;
/// Generated ids have 25 characters.
const LONGEST_ID: usize = 64;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    everloop_session: u32,
    /// Items of one API format are invalid in the other.
    wire: ApiFormat,
}

/// An open session.
#[derive(Debug)]
pub(super) struct ApiSession {
    id: String,
    path: PathBuf,
    file: Flock<File>,
    items: Vec<Value>,
    redactor: Redactor,
}

impl ApiSession {
    /// Starts a new session.
    pub(super) fn begin(options: &ApiTurnOptions, secrets: &[Secret]) -> Result<Self, ApiRefusal> {
        let dir = options.state_dir.join("sessions");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| failed("make", &dir, &e))?;
        let id = fresh_id();
        let path = dir.join(format!("{id}.jsonl"));
        let file =
            open(OpenOptions::new().create_new(true).mode(0o600), &path).map_err(|e| failed("make", &path, &e))?;
        let file = lock(file, &path)?;
        let mut session = Self { id, path, file, items: Vec::new(), redactor: Redactor::new(secrets) };
        let head = serde_json::to_vec(&Head { everloop_session: VERSION, wire: options.wire });
        session.append(&head.unwrap_or_default())?;
        Ok(session)
    }

    /// The session with this id; `None` when this API format cannot resume it.
    pub(super) fn resume(options: &ApiTurnOptions, id: &str, secrets: &[Secret]) -> Result<Option<Self>, ApiRefusal> {
        if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Ok(None);
        }
        let path = options.state_dir.join("sessions").join(format!("{id}.jsonl"));
        let file = match open(&mut OpenOptions::new(), &path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("open", &path, &e)),
        };
        let mut file = lock(file, &path)?;
        let mut bytes = Vec::new();
        (&mut *file).take(LONGEST + 1).read_to_end(&mut bytes).map_err(|e| failed("read", &path, &e))?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let Some(items) = items(&bytes[..whole], options.wire) else { return Ok(None) };
        if whole < bytes.len() {
            // The rest of a line that was being written during a crash.
            file.set_len(whole as u64).map_err(|e| failed("repair", &path, &e))?;
        }
        Ok(Some(Self { id: id.to_owned(), path, file, items, redactor: Redactor::new(secrets) }))
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// All items so far.
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// Adds an item, on disk first.
    pub(super) fn push(&mut self, item: &Value) -> Result<(), ApiRefusal> {
        let line = serde_json::to_vec(item).unwrap_or_default();
        let mut safe = Vec::with_capacity(line.len());
        self.redactor.push(&line, &mut |bytes| safe.extend_from_slice(bytes));
        self.redactor.finish(&mut |bytes| safe.extend_from_slice(bytes));
        // A redaction label has only plain letters, so this stays valid JSON; otherwise nothing
        // would be stored.
        let item = serde_json::from_slice(&safe).map_err(|e| failed("write to", &self.path, &e.into()))?;
        self.append(&safe)?;
        self.items.push(item);
        Ok(())
    }

    /// One line in one write, so that a crash leaves a whole line or the beginning of one.
    fn append(&mut self, line: &[u8]) -> Result<(), ApiRefusal> {
        let line = [line, b"\n"].concat();
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|e| failed("write to", &self.path, &e))
    }
}

fn items(bytes: &[u8], wire: ApiFormat) -> Option<Vec<Value>> {
    if bytes.len() as u64 > LONGEST {
        return None;
    }
    let mut lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let head: Head = serde_json::from_slice(lines.next()?).ok()?;
    if head.everloop_session != VERSION || head.wire != wire {
        return None;
    }
    lines.map(|line| serde_json::from_slice(line).ok().filter(Value::is_object)).collect()
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.read(true).append(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

fn lock(file: File, path: &Path) -> Result<Flock<File>, ApiRefusal> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, e)| ApiRefusal::plain(format!("session `{}` is in use: {e}", path.display())))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ApiRefusal {
    let text = format!("cannot {what} `{}`: {error}", path.display());
    match error.kind() {
        // The disk may be freed, and a retry costs nothing: no request was sent yet.
        io::ErrorKind::StorageFull => ApiRefusal::seen("api.disk", LimitClass::Overload, text),
        _ => ApiRefusal::plain(text),
    }
}

/// An id that sorts by time and cannot be guessed.
fn fresh_id() -> String {
    let mut random = [0_u8; 6];
    // Without it, time and process id have to suffice: `create_new` detects a clash.
    if getrandom::fill(&mut random).is_err() {
        random[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    }
    let random: u64 = random.iter().fold(0, |sum, b| sum << 8 | u64::from(*b));
    format!("{:012x}-{random:012x}", clock::now().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_of_the_first_version_is_read() {
        let old = concat!(
            r#"{"everloop_session":1,"wire":"messages"}"#,
            "\n",
            r#"{"role":"user","content":[{"type":"text","text":"hello"}]}"#,
            "\n",
        );
        let read = items(old.as_bytes(), ApiFormat::Messages).unwrap();
        assert_eq!(read, [json!({"role": "user", "content": [{"type": "text", "text": "hello"}]})]);
        assert!(items(old.as_bytes(), ApiFormat::Responses).is_none());
        assert!(items(old.replace(":1,", ":2,").as_bytes(), ApiFormat::Messages).is_none());
        assert!(items(b"not json\n", ApiFormat::Messages).is_none());
        assert!(items(b"", ApiFormat::Messages).is_none());
    }

    #[test]
    fn half_a_line_is_taken_off_and_secrets_are_left_out() {
        let home = tempfile::tempdir().unwrap();
        let options = ApiTurnOptions::new(ApiFormat::Messages, "m", home.path().into(), home.path().into());
        let secret = || [Secret { name: "KEY".to_owned(), value: b"sk-canary".to_vec() }];
        let mut session = ApiSession::begin(&options, &secret()).unwrap();
        session.push(&json!({"n": "the sk-canary sings"})).unwrap();
        assert!(ApiSession::resume(&options, session.id(), &secret()).is_err(), "it is in use");
        let (id, path) = (session.id().to_owned(), session.path.clone());
        drop(session);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"half").unwrap();
        let mut session = ApiSession::resume(&options, &id, &secret()).unwrap().unwrap();
        session.push(&json!({"n": 2})).unwrap();
        let wanted = [json!({"n": "the [redacted:KEY] sings"}), json!({"n": 2})];
        assert_eq!(session.items(), wanted);
        drop(session);
        assert_eq!(ApiSession::resume(&options, &id, &secret()).unwrap().unwrap().items(), wanted);
        for lost in ["", "../x", "none", "a/b"] {
            assert!(ApiSession::resume(&options, lost, &secret()).unwrap().is_none());
        }
    }
}
