//! The content of an answer, independent of a dialect.

use serde_json::{Value, json};

use super::request::{Ask, Dialect};
use super::script::{ScriptStep, ScriptedReply};

/// The text when the script gives none.
const SAY: &str = "FAKE-OK done";
/// The shell command when the script gives none.
const COMMAND: &str = "echo hi";
/// The approximate number of pieces of a trickle.
const TRICKLE_PIECES: usize = 20;

/// Tokens that an answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelUsage {
    pub input: u64,
    /// Input read from the vendor's cache.
    pub cached: u64,
    /// Input written to the cache; only Anthropic reports it.
    pub written: u64,
    pub output: u64,
}

impl ModelUsage {
    /// Without numbers in the script each answer reports the same small ones, all different, so
    /// that a parser that mixes them up is detected.
    fn of(step: &ScriptStep) -> Self {
        let given = step.number("in");
        Self {
            input: given.unwrap_or(11),
            cached: step.number("cached").unwrap_or(if given.is_some() { 0 } else { 1000 }),
            written: if given.is_some() { 0 } else { 100 },
            output: step.number("out").unwrap_or(7),
        }
    }

    /// All input, for dialects with a single count.
    pub fn all_input(self) -> u64 {
        self.input + self.cached + self.written
    }
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelToolCall {
    /// As the request offers it; `SERVER/TOOL` for codex's tools of servers.
    pub name: String,
    pub arguments: Value,
    /// Whether the arguments are plain text under `input` (codex's custom tools), not JSON.
    pub custom: bool,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelStop {
    /// The answer is complete.
    End,
    /// It waits for the result of a tool.
    Tool,
    /// It reached its output limit.
    MaxTokens,
}

/// An answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelMessage {
    /// The text in the pieces in which it is streamed.
    pub pieces: Vec<String>,
    pub call: Option<ModelToolCall>,
    pub stop: ModelStop,
    /// Tokens that it reports.
    pub usage: ModelUsage,
    /// A number that is unique per answer of a server, for ids.
    pub number: u64,
}

impl ModelMessage {
    /// An answer to a side request.
    pub fn plain(number: u64) -> Self {
        let usage = ModelUsage { input: 11, cached: 0, written: 0, output: 7 };
        Self { pieces: vec![SAY.to_owned()], call: None, stop: ModelStop::End, usage, number }
    }

    /// The answer of `step` to `ask`; an error when it cannot be played here.
    pub fn of(step: &ScriptStep, ask: &Ask, number: u64) -> Result<Self, String> {
        let call = match step.answer {
            ScriptedReply::Tool => Some(tool(step, ask)?),
            ScriptedReply::Edit => Some(edit(step, ask)?),
            _ => None,
        };
        let say = step.value("say").or(if call.is_none() { Some(SAY) } else { None });
        let pieces = match (&step.answer, say) {
            (ScriptedReply::Empty, _) | (_, None) => Vec::new(),
            (ScriptedReply::Trickle, Some(say)) => (0..TRICKLE_PIECES).map(|_| format!("{say} ")).collect(),
            (_, Some(say)) => halves(say),
        };
        let stop = match (&step.answer, &call) {
            (ScriptedReply::MaxTokens, _) => ModelStop::MaxTokens,
            (_, Some(_)) => ModelStop::Tool,
            _ => ModelStop::End,
        };
        Ok(Self { pieces, call, stop, usage: ModelUsage::of(step), number })
    }

    /// The whole text.
    pub fn text(&self) -> String {
        self.pieces.concat()
    }

    /// An id of a kind (`msg`, `call`, …) that is unique for this server.
    pub fn id(&self, kind: &str) -> String {
        format!("{kind}_fake{:012}", self.number)
    }
}

/// Two pieces, so that a cut in the middle leaves something.
fn halves(text: &str) -> Vec<String> {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty()).map(str::to_owned).collect()
}

fn tool(step: &ScriptStep, ask: &Ask) -> Result<ModelToolCall, String> {
    let json = step.value("json").map(|json| serde_json::from_str(json).unwrap_or_default());
    match (step.value("name"), json, step.value("cmd")) {
        (Some(name), json, _) => {
            Ok(ModelToolCall { name: name.to_owned(), arguments: json.unwrap_or_else(|| json!({})), custom: false })
        }
        (None, Some(arguments), _) => Ok(ModelToolCall { arguments, ..shell(COMMAND, ask)? }),
        (None, None, command) => shell(command.unwrap_or(COMMAND), ask),
    }
}

/// A command, by the shell tool that this request offers.
fn shell(command: &str, ask: &Ask) -> Result<ModelToolCall, String> {
    const SHELLS: &[&str] = &["Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "exec"];
    let offered = SHELLS.iter().find(|name| ask.tools.iter().any(|tool| tool == *name));
    let name = *offered.ok_or_else(|| format!("there is no shell among the tools {:?}", ask.tools))?;
    let arguments = match name {
        "exec_command" => json!({ "cmd": command }),
        "shell_command" => json!({ "command": command }),
        "shell" => json!({ "command": ["bash", "-lc", command] }),
        // Codex's newest models write JavaScript, in which the tools are functions.
        "exec" => json!(format!("const r = await tools.exec_command({}); text(r);", json!({ "cmd": command }))),
        _ => json!({ "command": command, "description": "run a command" }),
    };
    Ok(ModelToolCall { name: name.to_owned(), arguments, custom: name == "exec" })
}

/// A file, by the tool that writes files, or by the shell where there is none.
fn edit(step: &ScriptStep, ask: &Ask) -> Result<ModelToolCall, String> {
    const WRITERS: &[(&str, &str)] = &[("Write", "file_path"), ("write_file", "file_path"), ("write", "filePath")];
    let path = step.value("path").unwrap_or_default();
    let text = format!("{}\n", step.value("text").unwrap_or("made by the fake model"));
    let writer = WRITERS.iter().find(|(name, _)| ask.tools.iter().any(|tool| tool == name));
    let Some((name, key)) = writer.filter(|_| ask.dialect != Dialect::Responses) else {
        let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        return shell(&format!("printf %s {} > {}", quote(&text), quote(path)), ask);
    };
    // These tools need absolute paths.
    let path = match (&ask.folder, path.starts_with('/')) {
        (Some(folder), false) => format!("{folder}/{path}"),
        _ => path.to_owned(),
    };
    Ok(ModelToolCall { name: (*name).to_owned(), arguments: json!({ *key: path, "content": text }), custom: false })
}
