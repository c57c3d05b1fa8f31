//! The JSON of an agent's CLI for its hooks. Fields that a CLI does not have are empty; nothing
//! here can fail.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A larger payload is not read: no CLI sends one, and a hook must stay fast.
const MAX_BYTES: u64 = 4 << 20;
/// Things a session waits for that are shown.
const PENDING_MAX: usize = 20;
/// Each of them is cut here.
const PENDING_MAX_CHARS: usize = 120;
/// Files of one patch that are read.
const PATCHED_MAX: usize = 100;

/// The hook. Codex has the names of Claude Code; Gemini has its own for the same moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// A session begins, goes on, or was compacted.
    SessionStart,
    /// A person sent a prompt.
    UserPromptSubmit,
    /// A tool is about to be used.
    PreToolUse,
    /// A tool was used.
    PostToolUse,
    /// The agent wants to stop.
    Stop,
    /// The vendor refused service.
    StopFailure,
    /// A part of it wants to stop; the whole is what counts.
    SubagentStop,
    /// The context is about to be compacted.
    PreCompact,
    /// The session needs a person.
    Notification,
    /// The session is over.
    SessionEnd,
}

impl HookEvent {
    /// Parses its name in any spelling: `PreToolUse`, `pre-tool-use`, Gemini's `BeforeTool`.
    pub fn named(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match plain.to_ascii_lowercase().as_str() {
            "sessionstart" => HookEvent::SessionStart,
            "userpromptsubmit" | "beforeagent" => HookEvent::UserPromptSubmit,
            "pretooluse" | "beforetool" => HookEvent::PreToolUse,
            "posttooluse" | "aftertool" => HookEvent::PostToolUse,
            "stop" | "afteragent" => HookEvent::Stop,
            "stopfailure" => HookEvent::StopFailure,
            "subagentstop" => HookEvent::SubagentStop,
            "precompact" | "precompress" => HookEvent::PreCompact,
            "notification" => HookEvent::Notification,
            "sessionend" => HookEvent::SessionEnd,
            _ => return None,
        })
    }
}

/// The CLI's JSON.
#[derive(Clone, Debug)]
pub struct Payload(Value);

impl Payload {
    /// Reads it; `None` when it is too large, no JSON, or names no session.
    pub fn read(input: impl Read) -> Option<Self> {
        let mut bytes = Vec::new();
        input.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > MAX_BYTES {
            return None;
        }
        let payload = Self(serde_json::from_slice(&bytes).ok()?);
        (!payload.session().is_empty()).then_some(payload)
    }

    /// A text field.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// A boolean field.
    pub fn flag(&self, field: &str) -> bool {
        self.0.get(field).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The session's id, as its CLI gives it.
    pub fn session(&self) -> &str {
        self.text("session_id")
    }

    /// Where the session works.
    pub fn cwd(&self) -> Option<PathBuf> {
        let cwd = Path::new(self.text("cwd"));
        cwd.is_absolute().then(|| cwd.to_owned())
    }

    /// The session's agent, by fields that only one of the CLIs has.
    pub fn agent(&self) -> &'static str {
        if self.0.get("turn_id").is_some() {
            "codex"
        } else if self.0.get("timestamp").is_some() {
            "gemini"
        } else {
            "claude"
        }
    }

    /// A field of the tool's input, as the CLI sent it.
    pub fn input(&self, field: &str) -> Option<&Value> {
        self.0.get("tool_input")?.get(field)
    }

    /// The file that the tool would change, made absolute; `None` when it is no such tool.
    pub fn target(&self) -> Option<PathBuf> {
        let changes = ["Write", "Edit", "MultiEdit", "NotebookEdit", "write_file", "replace"];
        if !changes.contains(&self.text("tool_name")) {
            return None;
        }
        let field = ["file_path", "notebook_path", "path", "absolute_path"];
        let path = field.iter().find_map(|f| self.input(f)).and_then(Value::as_str)?;
        Some(self.cwd()?.join(path))
    }

    /// All files that the tool would change: also those of a patch, as Codex hands it to its tool
    /// or to the shell.
    pub fn targets(&self) -> Vec<PathBuf> {
        if let Some(path) = self.target() {
            return vec![path];
        }
        let text = ["command", "input", "patch"].iter().find_map(|f| self.input(f)?.as_str()).unwrap_or_default();
        let (Some((_, patch)), Some(cwd)) = (text.split_once("*** Begin Patch"), self.cwd()) else { return Vec::new() };
        let names = ["*** Update File: ", "*** Delete File: ", "*** Add File: ", "*** Move to: "];
        let named =
            |line: &str| names.iter().find_map(|name| line.strip_prefix(name)).map(|path| cwd.join(path.trim()));
        patch.lines().filter_map(named).take(PATCHED_MAX).collect()
    }

    /// What the session still waits for: its background tasks and timers, in words.
    pub fn pending(&self) -> Vec<String> {
        let done = |item: &Value| {
            let state = item.get("status").or_else(|| item.get("state")).and_then(Value::as_str).unwrap_or_default();
            ["completed", "done", "failed", "killed", "stopped", "exited"].contains(&state)
        };
        let lists = ["background_tasks", "session_crons"].iter().filter_map(|f| self.0.get(f)?.as_array());
        lists.flatten().filter(|item| !done(item)).take(PENDING_MAX).map(words).collect()
    }

    /// The agent's last words, where the CLI passes them to its hook.
    pub fn last_words(&self) -> &str {
        let fields = ["last_assistant_message", "prompt_response"];
        fields.iter().map(|field| self.text(field)).find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Tokens in the context, where the CLI gives them.
    pub fn context_tokens(&self) -> Option<u64> {
        self.0.get("context_tokens")?.as_u64()
    }
}

/// The most descriptive field of something that is waited for.
fn words(item: &Value) -> String {
    let telling = ["description", "command", "name", "prompt", "cron", "schedule", "id"];
    let text = match item {
        Value::String(text) => text.clone(),
        _ => telling.iter().find_map(|f| item.get(f)?.as_str()).map_or_else(|| item.to_string(), str::to_owned),
    };
    text.chars().take(PENDING_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Option<Payload> {
        Payload::read(text.as_bytes())
    }

    #[test]
    fn moments_are_known_by_all_their_names() {
        for name in ["PreToolUse", "pre-tool-use", "pre_tool_use", "BeforeTool"] {
            assert_eq!(HookEvent::named(name), Some(HookEvent::PreToolUse), "{name}");
        }
        assert_eq!(HookEvent::named("AfterAgent"), Some(HookEvent::Stop));
        assert_eq!(HookEvent::named("SomethingNew"), None);
    }

    #[test]
    fn what_is_no_payload_is_none() {
        for text in ["", "[]", "{}", "{\"session_id\":7}", "not json"] {
            assert!(payload(text).is_none(), "{text}");
        }
        let large = format!("{{\"session_id\":\"a\",\"x\":\"{}\"}}", "x".repeat(MAX_BYTES as usize));
        assert!(payload(&large).is_none());
    }

    #[test]
    fn the_files_of_a_patch_are_known() {
        let text = r#"{"session_id":"a","cwd":"/p","tool_name":"Bash","tool_input":{"command":"apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.rs\n*** Move to: b.rs\n@@\n-x\n+*** Delete File: no\n*** Add File: /q/c.rs\n*** End Patch\nEOF"}}"#;
        let paths: Vec<String> = payload(text).unwrap().targets().iter().map(|p| p.display().to_string()).collect();
        assert_eq!(paths, ["/p/a.rs", "/p/b.rs", "/q/c.rs"]);
        let plain =
            r#"{"session_id":"a","cwd":"/p","tool_name":"Bash","tool_input":{"command":"echo *** Update File: a.rs"}}"#;
        assert!(payload(plain).unwrap().targets().is_empty());
    }

    #[test]
    fn what_is_pending_is_told_and_what_is_done_is_not() {
        let text = r#"{"session_id":"a","background_tasks":[{"id":"b1","command":"make","status":"running"},
            {"id":"b2","status":"completed"}],"session_crons":[{"cron":"0 9 * * *","prompt":"look again"}]}"#;
        assert_eq!(payload(text).unwrap().pending(), ["make", "look again"]);
        assert!(payload(r#"{"session_id":"a","background_tasks":[]}"#).unwrap().pending().is_empty());
    }

    #[test]
    fn the_target_of_a_change_is_absolute() {
        let text = r#"{"session_id":"a","cwd":"/p/sub","tool_name":"Write","tool_input":{"file_path":"x.md"}}"#;
        assert_eq!(payload(text).unwrap().target(), Some(PathBuf::from("/p/sub/x.md")));
        let read = text.replace("Write", "Read");
        assert_eq!(payload(&read).unwrap().target(), None);
    }
}
