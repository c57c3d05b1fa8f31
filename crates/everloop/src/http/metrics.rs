//! `GET /metrics`: the same for Prometheus, in its text format. Counters begin at 0 with the
//! supervisor, as Prometheus expects.

use std::fmt::{Display, Write};
use std::sync::Arc;

use axum::extract::State;
use everloop_engine::figures::Membership;

use super::App;
use super::answer::Answer;
use super::look::look;

/// What Prometheus calls its format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything there is to count.
pub async fn metrics(State(app): State<Arc<App>>) -> Answer {
    let shared = &app.port;
    let counts = shared.figures.counts();
    let mut page = Page::default();
    page.counter("everloop_turns_started_total", "Turns that started.").value(counts.started);
    page.counter("everloop_turns_ended_total", "Turns that ended, by outcome.").by("outcome", &counts.ended);
    page.counter("everloop_permits_refused_total", "Waits that a rule began, by rule.").by("rule", &counts.refused);
    page.counter("everloop_tokens_total", "Tokens that ended turns were charged.").value(counts.tokens);
    let dollars = counts.microusd as f64 / 1e6;
    page.counter("everloop_cost_usd_total", "Dollars that ended turns were charged.").value(dollars);
    let sums = shared.telemetry.sums();
    page.counter("everloop_telemetry_requests_total", "Answers of models in the agents' telemetry.")
        .value(sums.requests);
    page.counter("everloop_telemetry_errors_total", "Errors of models in the agents' telemetry.").value(sums.errors);
    page.counter("everloop_telemetry_ignored_total", "Telemetry that is not needed here.").value(sums.ignored);
    let seen = look(&app).await;
    if let Ok(look) = &seen {
        page.gauge("everloop_loops", "Loops by phase.").by("phase", &look.loops);
        page.gauge("everloop_leases", "Tasks that are held.").value(look.leases);
        page.gauge("everloop_journal_seq", "Number of the last journal record.").value(look.last_seq);
    }
    page.gauge("everloop_ledger_up", "Whether the ledger can be read.").value(u8::from(seen.is_ok()));
    if let Some(wake) = shared.figures.wake() {
        let at = wake.at.0 as f64 / 1e3;
        page.gauge("everloop_next_wake_timestamp_seconds", "When the next timer ends.").value(at);
    }
    if let Some(membership) = shared.figures.membership() {
        page.mesh(&membership);
    }
    let late = shared.figures.overdue().unwrap_or_default().as_secs();
    page.gauge("everloop_owner_overdue_seconds", "How long the owner task is overdue; 0 is well.").value(late);
    let since = shared.since.0 as f64 / 1e3;
    page.gauge("process_start_time_seconds", "When the supervisor began.").value(since);
    if let Some(bytes) = resident() {
        page.gauge("process_resident_memory_bytes", "Memory of the supervisor.").value(bytes);
    }
    Answer::text(FORMAT, page.text)
}

/// The page as it grows.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// What this machine is in a mesh. What is not known is left out.
    fn mesh(&mut self, m: &Membership) {
        self.gauge("everloop_mesh_hub_up", "Whether the hub answered the last call.")
            .value(u8::from(m.away_since.is_none()));
        self.gauge("everloop_mesh_supervisor", "Whether this node supervises the mesh.").value(u8::from(m.leads));
        self.gauge("everloop_mesh_tasks_held", "Tasks of the mesh that this node holds.").value(m.holds);
        let members = m.members.map(|members| members as u64);
        let ago = Membership::seconds_since;
        for (name, help, value) in [
            ("everloop_mesh_members", "Nodes that took tasks when this one last looked.", members),
            ("everloop_mesh_hub_answered_seconds", "How long ago the hub last answered.", ago(m.heard_at)),
            ("everloop_mesh_replica_age_seconds", "How old is what this node would go by alone.", ago(m.remembered_at)),
        ] {
            if let Some(value) = value {
                self.gauge(name, help).value(value);
            }
        }
    }

    fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, "counter", help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, "gauge", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes everything");
        self
    }

    fn value(&mut self, value: impl Display) {
        writeln!(self.text, "{} {value}", self.name).expect("a string takes everything");
    }

    fn by<'a, K: Display + 'a>(&mut self, label: &str, values: impl IntoIterator<Item = (&'a K, &'a u64)>) {
        for (key, value) in values {
            let key = escaped(&key.to_string());
            writeln!(self.text, "{}{{{label}=\"{key}\"}} {value}", self.name).expect("a string takes everything");
        }
    }
}

/// A label's value, as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// From procfs; not known elsewhere.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let mut page = Page::default();
        page.counter("turns_total", "Turns.").by("outcome", &BTreeMap::from([("a\"b\\c\nd", 3_u64)]));
        page.gauge("wake", "Next.").value(1.5);
        let text = "# HELP turns_total Turns.\n# TYPE turns_total counter\nturns_total{outcome=\"a\\\"b\\\\c\\nd\"} 3\n\
                    # HELP wake Next.\n# TYPE wake gauge\nwake 1.5\n";
        assert_eq!(page.text, text);
    }

    #[test]
    fn a_node_without_its_hub_says_so_and_nothing_that_it_does_not_know() {
        let mut page = Page::default();
        let (node, now) = (everloop_core::ids::NodeId::new("n1"), everloop_agents::clock::boottime());
        let mut member = Membership {
            node,
            leads: false,
            holds: 2,
            away_since: Some(everloop_core::time::Time(1)),
            members: None,
            heard_at: Some(now.saturating_sub(std::time::Duration::from_secs(90))),
            remembered_at: None,
        };
        page.mesh(&member);
        let values = |page: &Page| -> Vec<String> {
            page.text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let said = values(&page);
        assert_eq!(
            said[..3],
            ["everloop_mesh_hub_up 0", "everloop_mesh_supervisor 0", "everloop_mesh_tasks_held 2"].map(str::to_owned)
        );
        assert!(said.len() == 4 && said[3].starts_with("everloop_mesh_hub_answered_seconds 9"), "{said:?}");
        (member.away_since, member.leads, member.members) = (None, true, Some(3));
        let mut page = Page::default();
        page.mesh(&member);
        let said = values(&page);
        assert!(said[0].ends_with(" 1") && said[1].ends_with(" 1"), "{said:?}");
        assert_eq!(said[3], "everloop_mesh_members 3");
    }
}
