//! Which isolation holds for a loop's commands, and what it does not cover, in words.

use everloop_agents::isolation::Means;
use everloop_core::isolation::IsolationSpec;
use everloop_core::spec::{AgentKind, LoopSpec};

/// One line: the means, and what they leave open.
pub fn line(spec: &LoopSpec) -> String {
    let mut gaps = Means::of(spec.isolation.mode).gaps();
    if spec.agents().any(|agent| agent.kind == AgentKind::Pane) {
        gaps.push("an agent in a pane runs as its pane was started");
    }
    format!("{}; not covered: {}", means(&spec.isolation), gaps.join("; "))
}

/// The means alone.
pub fn means(spec: &IsolationSpec) -> String {
    Means::of(spec.mode).describe()
}

/// Whether a loop's commands are isolated at all.
pub fn holds(spec: &LoopSpec) -> bool {
    Means::of(spec.isolation.mode).holds()
}
