//! Permission requests of a CLI: which are allowed by the agent's configuration, and how an answer
//! is sent. Pure.

use std::path::{Component, Path, PathBuf};

use everloop_core::permission::{PermissionCall, begins_with};
use everloop_core::spec::Permission;
use serde_json::{Value, json};

use super::AcpTurn;
use super::translate::tool_name;
use crate::agent::record::{self, Fields};

/// What a CLI wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRequest {
    /// The tool and its arguments, word for word.
    pub call: PermissionCall,
    kind: String,
    command: Option<String>,
    paths: Vec<PathBuf>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    Allow,
    Deny { why: String },
}

impl PermissionRequest {
    pub(super) fn of(call: &Value) -> Self {
        let input = call.at("rawInput");
        let places = call.list("locations").iter().chain(call.list("content")).filter_map(|place| place.text("path"));
        let named = ["file_path", "filePath", "path"].into_iter().filter_map(|name| input.text(name));
        let arguments = if input.is_null() { call.at("title") } else { input };
        Self {
            call: PermissionCall::new(tool_name(call), arguments),
            kind: record::name(call.text("kind").unwrap_or_default()),
            command: input.text("command").map(str::to_owned),
            paths: places.chain(named).map(PathBuf::from).collect(),
        }
    }

    /// The request as a line.
    pub fn describe(&self) -> String {
        format!("{}: {}", self.call.tool, record::brief(&self.call.input.as_str().into()))
    }

    /// Whether the configuration allows it: everything under `full`; else changes inside of the
    /// workspace, and the allowed commands.
    pub(super) fn is_allowed(&self, turn: &AcpTurn) -> bool {
        if turn.permission == Permission::Full {
            return true;
        }
        let inside = self.paths.iter().all(|path| is_inside(path, &turn.cwd));
        match self.kind.as_str() {
            "read" | "search" | "think" => inside,
            "edit" | "delete" | "move" => inside && !self.paths.is_empty(),
            "execute" => self.command.as_deref().is_some_and(|command| is_listed(command, &turn.allow)),
            _ => false,
        }
    }
}

fn is_listed(command: &str, allow: &[String]) -> bool {
    allow.iter().any(|beginning| begins_with(command.trim(), beginning))
}

/// Compared by name: what a link points to is up to the isolation of the turn.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && (path.is_relative() || path.starts_with(folder))
}

/// The choice among the CLI's own options. Never one for always: that would be written to its
/// settings, for everything that uses it.
pub(super) fn outcome(options: &[Value], answer: &PermissionAnswer) -> Value {
    let kinds: [&str; 2] = match answer {
        PermissionAnswer::Allow => ["allow_once", "allow_once"],
        PermissionAnswer::Deny { .. } => ["reject_once", "reject_always"],
    };
    let found = kinds.iter().find_map(|kind| options.iter().find(|option| option.text("kind") == Some(kind)));
    match found.and_then(|option| option.text("optionId")) {
        Some(id) => json!({ "outcome": "selected", "optionId": id }),
        None => json!({ "outcome": "cancelled" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(permission: Permission) -> AcpTurn {
        AcpTurn {
            argv: Vec::new(),
            cwd: PathBuf::from("/home/me"),
            prompt: String::new(),
            resume: None,
            model: None,
            permission,
            allow: vec!["cargo test".to_owned()],
        }
    }

    fn run(command: &str) -> PermissionRequest {
        PermissionRequest::of(&json!({"kind": "execute", "rawInput": {"command": command}}))
    }

    #[test]
    fn edits_stay_inside_and_commands_are_listed() {
        let edit = |path: &str| PermissionRequest::of(&json!({"kind": "edit", "locations": [{"path": path}]}));
        let (edits, full) = (turn(Permission::Edits), turn(Permission::Full));
        for (request, allowed) in [
            (run("cargo test"), true),
            (run("cargo test --all"), true),
            (run("cargo testament"), false),
            (run("cargo test; rm -rf /"), false),
            (run("cargo test $(rm x)"), false),
            (run("rm x"), false),
            (edit("/home/me/src/a.rs"), true),
            (edit("src/a.rs"), true),
            (edit("/home/me/../etc/passwd"), false),
            (edit("/etc/passwd"), false),
            (PermissionRequest::of(&json!({"kind": "edit"})), false),
            (PermissionRequest::of(&json!({"kind": "fetch", "rawInput": {"url": "http://x"}})), false),
            (PermissionRequest::of(&json!({"kind": "read", "rawInput": {"path": "/etc/shadow"}})), false),
        ] {
            assert_eq!(request.is_allowed(&edits), allowed, "{request:?}");
            assert!(request.is_allowed(&full));
        }
    }

    #[test]
    fn nothing_is_allowed_for_ever_in_the_clis_own_settings() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "kind": kind, "name": id});
        let all = [option("a", "allow_always"), option("o", "allow_once"), option("r", "reject_once")];
        let deny = PermissionAnswer::Deny { why: String::new() };
        assert_eq!(outcome(&all, &PermissionAnswer::Allow)["optionId"], "o");
        assert_eq!(outcome(&all, &deny)["optionId"], "r");
        assert_eq!(outcome(&all[..1], &PermissionAnswer::Allow)["outcome"], "cancelled");
        assert_eq!(outcome(&[], &deny)["outcome"], "cancelled");
    }
}
