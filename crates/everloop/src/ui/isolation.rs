//! Which isolation holds for a loop's commands, and what it does not cover, in words.

use everloop_agents::isolation::Means;
use everloop_core::isolation::{IsolationMode, IsolationSpec};
use everloop_core::spec::{AgentKind, LoopSpec};

/// One line: the means, and what they leave open.
pub fn line(spec: &LoopSpec) -> String {
    let gaps = Means::of(spec.isolation.mode).gaps();
    let mut gaps: Vec<String> = gaps.into_iter().map(str::to_owned).collect();
    if spec.agents().any(|agent| agent.kind == AgentKind::Pane) {
        gaps.push("an agent in a pane runs as its pane was started".to_owned());
    }
    let open = spec.watch.monitors.iter().filter(|monitor| monitor.access.mode == Some(IsolationMode::None));
    gaps.extend(open.map(|monitor| format!("the command of monitor {} runs as you", monitor.name)));
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
