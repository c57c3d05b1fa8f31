//! The real agent programs under everloop, against a model server on loopback, in a network
//! namespace that has nothing else. Every request is counted, so that claims about calls are exact.

#[path = "../it/env.rs"]
#[expect(dead_code, reason = "the worlds of the other tests need more of it")]
mod env;
mod hooks;
mod limits;
mod mcp;
mod panes;
mod permission;
mod plugin;
mod research;
mod rhythm;
mod storms;
mod telemetry;
mod turns;
mod world;
