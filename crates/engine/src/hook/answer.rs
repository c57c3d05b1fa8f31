//! How each CLI is refused something: as JSON on standard output, with exit code 0. An exit code of 2
//! with the reason on standard error is not enough: Claude Code takes some reasons (those with "no
//! such file" in them) for a hook that is missing, and goes on as if nothing had been said.

use serde_json::{Value, json};

use super::payload::{HookEvent, Payload};

/// The answer that refuses a moment, in the words of the session's CLI.
pub fn refusal(agent: &str, moment: HookEvent, payload: &Payload, why: &str) -> Value {
    let name = payload.text("hook_event_name");
    match (agent, moment) {
        ("gemini", _) => json!({ "decision": "deny", "reason": why }),
        (_, HookEvent::PreToolUse) => json!({
            "hookSpecificOutput": {
                "hookEventName": name,
                "permissionDecision": "deny",
                "permissionDecisionReason": why,
            },
        }),
        _ => json!({ "decision": "block", "reason": why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cli_is_refused_in_its_own_words() {
        let text = r#"{"session_id":"a","hook_event_name":"PreToolUse"}"#;
        let payload = Payload::read(text.as_bytes()).expect("it is a payload");
        let why = "cat: x: No such file or directory";
        let of = |agent, moment| refusal(agent, moment, &payload, why);
        for agent in ["claude", "codex"] {
            assert_eq!(of(agent, HookEvent::Stop), json!({ "decision": "block", "reason": why }));
            let tool = &of(agent, HookEvent::PreToolUse)["hookSpecificOutput"];
            assert_eq!((&tool["permissionDecision"], &tool["hookEventName"]), (&json!("deny"), &json!("PreToolUse")));
        }
        assert_eq!(of("gemini", HookEvent::Stop)["decision"], "deny");
    }
}
