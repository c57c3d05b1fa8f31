//! The files of a project that each agent's CLI reads: instructions, hooks, MCP servers. Our
//! entries are known by the command in them.

use std::io;
use std::path::Path;

use everloop_core::spec::AgentKind;
use serde_json::{Value, json};
use toml::de::DeTable;

use super::FileChange;
use super::json::{self, JsonInsert};
use super::section::{MARKDOWN, TOML};

/// The moments at which Claude Code calls everloop.
pub const CLAUDE: [&str; 10] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "StopFailure",
    "SubagentStop",
    "PreCompact",
    "Notification",
    "SessionEnd",
];

/// The same moments, as far as Codex has them.
const CODEX: [&str; 8] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "SessionEnd",
];

/// The names in Gemini. Its `PreCompress` comes before every answer of the model, compressed or
/// not: too often to be used.
const GEMINI: [&str; 7] =
    ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "Notification", "SessionEnd"];

/// Marks a hook as ours.
const OURS: &str = "everloop hook ";
/// The name of our MCP server.
const SERVER: &str = "everloop";

/// Our MCP server, as codex reads it.
const CODEX_SERVER: &str = "[mcp_servers.everloop]\ncommand = \"everloop\"\nargs = [\"mcp\"]";
/// Where codex reads a project's MCP servers.
const CODEX_CONFIG: &str = ".codex/config.toml";

/// The instructions for agents, for the file that their CLIs read.
const INSTRUCTIONS: &str = include_str!("instructions.md");

/// An agent CLI that `everloop install` can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentCli {
    /// Claude Code of Anthropic
    Claude,
    /// Codex of OpenAI
    Codex,
    /// Gemini CLI of Google
    Gemini,
    /// opencode, any vendor
    Opencode,
}

impl AgentCli {
    /// Every CLI, in the order of lists and help.
    pub const ALL: [AgentCli; 4] = [AgentCli::Claude, AgentCli::Codex, AgentCli::Gemini, AgentCli::Opencode];

    /// Its kind as an agent.
    pub fn kind(self) -> AgentKind {
        match self {
            AgentCli::Claude => AgentKind::Claude,
            AgentCli::Codex => AgentKind::Codex,
            AgentCli::Gemini => AgentKind::Gemini,
            AgentCli::Opencode => AgentKind::Opencode,
        }
    }

    /// The file of instructions that it reads.
    fn instructions(self) -> &'static str {
        match self {
            AgentCli::Claude => "CLAUDE.md",
            AgentCli::Codex | AgentCli::Opencode => "AGENTS.md",
            AgentCli::Gemini => "GEMINI.md",
        }
    }

    /// The JSON file of the project that names MCP servers, where in it, and how.
    fn servers(self) -> Option<(&'static str, &'static [&'static str], Value)> {
        match self {
            AgentCli::Claude => Some((".mcp.json", &["mcpServers"], json!({ "command": "everloop", "args": ["mcp"] }))),
            AgentCli::Gemini => {
                Some((".gemini/settings.json", &["mcpServers"], json!({ "command": "everloop", "args": ["mcp"] })))
            }
            AgentCli::Opencode => {
                Some(("opencode.json", &["mcp"], json!({ "type": "local", "command": ["everloop", "mcp"] })))
            }
            AgentCli::Codex => None,
        }
    }

    /// The JSON file of the project that names its hooks, and the moments that it has.
    pub(super) fn hooks(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            AgentCli::Claude => Some((".claude/settings.json", &CLAUDE)),
            AgentCli::Codex => Some((".codex/hooks.json", &CODEX)),
            AgentCli::Gemini => Some((".gemini/settings.json", &GEMINI)),
            AgentCli::Opencode => None,
        }
    }

    /// What a person has to do or to know besides.
    pub fn by_hand(self) -> Option<&'static str> {
        match self {
            AgentCli::Codex => Some(
                "codex reads .codex/ of a project that you trust, and runs hooks that you trust: start `codex` here, confirm, and check \
                 `/hooks`",
            ),
            AgentCli::Gemini => Some("gemini reads .gemini/ of a folder that you trust: confirm when it starts here"),
            AgentCli::Opencode => Some(
                "opencode has no hooks that run commands: it reads AGENTS.md and the MCP server, and nothing holds it when it stops",
            ),
            AgentCli::Claude => None,
        }
    }
}

/// The new content of a file; `None` to remove it.
type Edited = Result<Option<String>, Unplain>;

/// A file has an unexpected form and is not touched.
struct Unplain;

/// A hook's entry. It does nothing where everloop is not installed. Claude Code is detected from
/// its JSON, the others are named by `--for`.
pub fn hook(cli: AgentCli, moment: &str) -> Value {
    let who = match cli {
        AgentCli::Claude => String::new(),
        AgentCli::Codex | AgentCli::Gemini | AgentCli::Opencode => format!(" --for {}", cli.kind().label()),
    };
    entry(&format!("{moment}{who}"))
}

/// The same for the plugin of Claude Code, which leaves a moment to a project that has this hook.
pub fn plugin_hook(moment: &str) -> Value {
    entry(&format!("{moment} --plugin"))
}

fn entry(words: &str) -> Value {
    let command = format!("command -v everloop >/dev/null || exit 0; {OURS}{words}");
    json!({ "hooks": [{ "type": "command", "command": command }] })
}

fn is_our_hook(value: &Value) -> bool {
    let commands = value["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    commands.iter().any(|hook| hook["command"].as_str().is_some_and(|command| command.contains(OURS)))
}

/// Whether the settings call everloop at a moment.
pub(super) fn has_our_hook(settings: &Value, moment: &str) -> bool {
    settings["hooks"][moment].as_array().is_some_and(|there| there.iter().any(is_our_hook))
}

/// The changes for these CLIs. The error names a file that cannot be edited safely.
pub fn put(root: &Path, clis: &[AgentCli]) -> io::Result<Vec<FileChange>> {
    let mut changes: Vec<FileChange> = Vec::new();
    for cli in clis {
        edit(&mut changes, root, cli.instructions(), |text| Ok(Some(MARKDOWN.put(text, INSTRUCTIONS))))?;
        if let Some((file, path, value)) = cli.servers() {
            let pieces = [JsonInsert { path, key: Some(SERVER), value }];
            edit(&mut changes, root, file, |text| {
                let there = text.is_some_and(|text| json::names(text, path).iter().any(|name| name == SERVER));
                if there { Ok(text.map(str::to_owned)) } else { add(text, &pieces) }
            })?;
        }
        if *cli == AgentCli::Codex {
            edit(&mut changes, root, CODEX_CONFIG, put_codex_server)?;
        }
        if let Some((file, moments)) = cli.hooks() {
            edit(&mut changes, root, file, |text| put_hooks(text, *cli, moments))?;
        }
    }
    changes.retain(FileChange::is_real);
    Ok(changes)
}

fn put_hooks(text: Option<&str>, cli: AgentCli, moments: &[&str]) -> Edited {
    let parsed: Value = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let lacks = |moment: &&&str| !has_our_hook(&parsed, moment);
    let paths: Vec<[&str; 2]> = moments.iter().filter(lacks).map(|moment| ["hooks", *moment]).collect();
    if paths.is_empty() {
        return Ok(text.map(str::to_owned));
    }
    let pieces: Vec<JsonInsert<'_>> =
        paths.iter().map(|path| JsonInsert { path, key: None, value: hook(cli, path[1]) }).collect();
    add(text, &pieces)
}

/// Adds a table at the end of a TOML file; one that another tool wrote stays.
fn put_codex_server(text: Option<&str>) -> Edited {
    // The same parser as for everloop.toml: another one would be another hundred kilobytes.
    let (parsed, wrong) = DeTable::parse_recoverable(text.unwrap_or_default());
    if !wrong.is_empty() {
        return Err(Unplain);
    }
    let servers = parsed.get_ref().get("mcp_servers").and_then(|servers| servers.get_ref().as_table());
    let there = servers.is_some_and(|servers| servers.contains_key(SERVER));
    if there && !text.is_some_and(|text| TOML.are_in(text)) {
        return Ok(text.map(str::to_owned));
    }
    let with = TOML.put(text, CODEX_SERVER);
    // Where `mcp_servers` is written in another way, no table can be added to it.
    let good = DeTable::parse_recoverable(&with).1.is_empty();
    if good { Ok(Some(with)) } else { Err(Unplain) }
}

fn add(text: Option<&str>, pieces: &[JsonInsert<'_>]) -> Edited {
    let added = match text.filter(|text| !text.trim().is_empty()) {
        None => json::fresh(pieces),
        Some(text) => pieces.iter().try_fold(text.to_owned(), |text, piece| json::put(&text, piece)),
    };
    added.map(Some).ok_or(Unplain)
}

/// The same files without our entries. `original` is the earlier content of a file, where that is
/// known.
pub fn take(root: &Path, original: &dyn Fn(&Path) -> Option<String>) -> io::Result<Vec<FileChange>> {
    let mut changes = Vec::new();
    for cli in AgentCli::ALL {
        edit(&mut changes, root, cli.instructions(), |text| Ok(text.and_then(|text| MARKDOWN.take(text))))?;
        if let Some((file, path, _)) = cli.servers() {
            let before = original(&root.join(file));
            edit(&mut changes, root, file, |text| {
                let Some(text) = text else { return Ok(None) };
                let taken = json::take(text, path, &|key, _| key == Some(SERVER)).ok_or(Unplain)?;
                if taken == text { Ok(Some(taken)) } else { without_empty(taken, &[path], before.as_deref()) }
            })?;
        }
    }
    edit(&mut changes, root, CODEX_CONFIG, |text| Ok(text.and_then(|text| TOML.take(text))))?;
    for (file, _) in AgentCli::ALL.into_iter().filter_map(AgentCli::hooks) {
        let before = original(&root.join(file));
        edit(&mut changes, root, file, |text| take_hooks(text, before.as_deref()))?;
    }
    changes.retain(FileChange::is_real);
    Ok(changes)
}

fn take_hooks(text: Option<&str>, before: Option<&str>) -> Edited {
    let Some(text) = text else { return Ok(None) };
    let mut text = text.to_owned();
    let mut touched = Vec::new();
    for moment in json::names(&text, &["hooks"]) {
        let taken = json::take(&text, &["hooks", &moment], &|_, value| is_our_hook(value)).ok_or(Unplain)?;
        if taken != text {
            touched.push(moment);
            text = taken;
        }
    }
    if touched.is_empty() {
        return Ok(Some(text));
    }
    let paths: Vec<[&str; 2]> = touched.iter().map(|moment| ["hooks", moment.as_str()]).collect();
    let mut empty: Vec<&[&str]> = paths.iter().map(<[&str; 2]>::as_slice).collect();
    empty.push(&["hooks"]);
    without_empty(text, &empty, before)
}

/// Removes what is empty now and was not there before; `None` when nothing is left of the file.
fn without_empty(mut text: String, paths: &[&[&str]], before: Option<&str>) -> Edited {
    for path in paths {
        let theirs = before.is_some_and(|before| json::is_empty(before, path).is_some());
        if let (Some(true), false, Some((last, outer))) = (json::is_empty(&text, path), theirs, path.split_last()) {
            text = json::take(&text, outer, &|key, _| key == Some(*last)).ok_or(Unplain)?;
        }
    }
    let nothing = json::is_empty(&text, &[]) == Some(true) && before.is_none();
    Ok((!nothing).then_some(text))
}

/// Edits a file that may have been edited already. The edit may fail as unsafe.
fn edit(
    changes: &mut Vec<FileChange>,
    root: &Path,
    file: &str,
    how: impl FnOnce(Option<&str>) -> Edited,
) -> io::Result<()> {
    let path = root.join(file);
    let mut change = match changes.iter().position(|change| change.path == path) {
        Some(there) => changes.remove(there),
        None => FileChange::of(path)?,
    };
    let edited = how(change.after.as_deref());
    change.after = edited.map_err(|Unplain| {
        io::Error::other(format!(
            "`{file}` has an unexpected form (JSON with a comment?) and is left alone; edit it by hand"
        ))
    })?;
    changes.push(change);
    Ok(())
}
