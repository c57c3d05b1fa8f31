//! The tool behind Claude Code's `--permission-prompt-tool`: a request becomes a ticket, and its
//! answer is the CLI's. Whatever fails is a refusal with the reason, which the model reads.

use std::sync::Arc;
use std::time::Duration;

use everloop_core::permission::PermissionCall;
use everloop_engine::services::ServiceContext;
use everloop_engine::services::permissions::{self, PermissionReply};
use serde_json::{Map, Value, json};

/// Its name; Claude Code puts `mcp__everloop__` before it.
const NAME: &str = "permission";

pub fn tool() -> rmcp::model::Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "tool_name": { "type": "string" },
            "input": { "type": "object" },
            "tool_use_id": { "type": "string" },
        },
        "required": ["tool_name", "input"],
    });
    let Value::Object(schema) = schema else { unreachable!("it was written as an object") };
    rmcp::model::Tool::new(NAME, "Answers a request for permission: a person does.", Arc::new(schema))
}

/// The answer in the form that Claude Code reads.
pub fn answer(context: &ServiceContext, arguments: &Map<String, Value>, within: Duration) -> String {
    let input = arguments.get("input").cloned().unwrap_or_else(|| json!({}));
    let tool = arguments.get("tool_name").and_then(Value::as_str).unwrap_or("a tool").to_owned();
    let call = PermissionCall::new(tool, &input);
    let reply = permissions::ask(context, &call, within);
    form(reply.map_err(|failure| failure.message), &input).to_string()
}

fn form(reply: Result<PermissionReply, String>, input: &Value) -> Value {
    match reply {
        Ok(PermissionReply::Allow) => json!({ "behavior": "allow", "updatedInput": input }),
        Ok(PermissionReply::Deny { why }) | Err(why) => json!({ "behavior": "deny", "message": why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_repeats_the_input_and_everything_else_is_a_refusal() {
        let input = json!({ "command": "make" });
        let allowed = form(Ok(PermissionReply::Allow), &input);
        assert_eq!(allowed, json!({ "behavior": "allow", "updatedInput": { "command": "make" } }));
        let denied = form(Ok(PermissionReply::Deny { why: "no".to_owned() }), &input);
        assert_eq!(denied, json!({ "behavior": "deny", "message": "no" }));
        assert_eq!(form(Err("no ledger".to_owned()), &input)["behavior"], "deny");
    }
}
