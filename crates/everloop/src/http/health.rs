//! `GET /health`: whether this supervisor does its work, and on what. No goals, no paths, no
//! secrets: every program of this machine may read it.

use std::sync::Arc;

use axum::extract::State;
use everloop_agents::clock;
use everloop_engine::figures::Membership;
use serde_json::{Value, json};

use super::App;
use super::answer::Answer;
use super::look::look;

/// 200 when all is well, 503 when the supervisor is overdue or the ledger cannot be read.
pub async fn health(State(app): State<Arc<App>>) -> Answer {
    let seen = look(&app).await;
    let shared = &app.port;
    let overdue = shared.figures.overdue();
    let ok = seen.is_ok() && overdue.is_none();
    let (ledger, loops, leases) = match &seen {
        Ok(look) => (json!({ "kind": "sqlite", "last_seq": look.last_seq }), json!(look.loops), json!(look.leases)),
        // The cause names paths; it is in the log.
        Err(error) => {
            tracing::warn!(error, "the ledger cannot be read for /health");
            (json!({ "kind": "sqlite", "error": "cannot be read" }), Value::Null, Value::Null)
        }
    };
    let of = |phase: &str| seen.as_ref().map_or(0, |look| look.loops.get(phase).copied().unwrap_or(0));
    let running: u64 = ["running", "reflecting", "dreaming"].into_iter().map(of).sum();
    let wake = shared.figures.wake().map(|w| json!({ "at": w.at, "loop": w.owner, "why": w.why }));
    let mesh = shared.figures.membership().map(|m| {
        let (role, since) = (if m.leads { "supervisor" } else { "worker" }, m.away_since);
        let ago = Membership::seconds_since;
        json!({ "node": m.node, "role": role, "holds": m.holds, "hub_away_since": since, "members": m.members,
            "hub_answered_s": ago(m.heard_at), "replica_age_s": ago(m.remembered_at) })
    });
    let body = json!({
        "schema_version": 1,
        "ok": ok,
        "node": shared.node,
        "version": env!("CARGO_PKG_VERSION"),
        "role": shared.role,
        "since": shared.since,
        "uptime_s": clock::now().since(shared.since).as_secs(),
        "ledger": ledger,
        "loops": loops,
        "leases": leases,
        "agents_running": running,
        "next_wake": wake,
        "mesh": mesh,
        "overdue_s": overdue.map(|late| late.as_secs()),
    });
    Answer::json(if ok { 200 } else { 503 }, &body)
}
