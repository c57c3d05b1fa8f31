//! The lines that are printed: value, floor, ratio, goal, met.

use std::time::Duration;

/// One measured value.
#[derive(Clone, Debug, Default)]
pub struct BenchRow {
    what: String,
    value: String,
    floor: Option<String>,
    ratio: Option<f64>,
    goal: Option<(String, bool)>,
}

impl BenchRow {
    pub fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), ..Self::default() }
    }

    /// The lower bound, and the ratio to it.
    pub fn floor(mut self, name: &str, value: &str, ratio: f64) -> Self {
        self.floor = Some(format!("{value} ({name})"));
        self.ratio = Some(ratio);
        self
    }

    /// The goal and whether it is met.
    pub fn goal(mut self, goal: &str, met: bool) -> Self {
        self.goal = Some((goal.to_owned(), met));
        self
    }

    pub fn print(&self) {
        let (mut floor, mut goal) = (String::new(), String::new());
        if let (Some(value), Some(ratio)) = (&self.floor, self.ratio) {
            floor = format!("  | floor {value} | {ratio:.2}x");
        }
        if let Some((wanted, met)) = &self.goal {
            goal = format!("  | goal {wanted} | met {}", if *met { "yes" } else { "NO" });
        }
        println!("{:<44} {:>24}{floor}{goal}", self.what, self.value);
    }
}

/// Begins a section.
pub fn heading(text: &str) {
    println!("\n{text}");
}

/// A remark under a section.
pub fn remark(text: &str) {
    println!("  {text}");
}

pub fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

pub fn mb(kb: u64) -> String {
    // PEERS and goals are in MB of 1000 × 1000.
    format!("{:.1} MB", kb as f64 * 1024.0 / 1e6)
}

pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}
