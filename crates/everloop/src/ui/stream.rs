//! Streams as text: their list, and their entries.

use everloop_core::op::streams::StreamEntry;
use everloop_engine::services::stream::{GroupView, StreamView};

use super::quantities::moment;
use super::status::StatusStyle;
use super::table::Table;
use super::text::clean;

/// Streams with their groups.
pub fn list_lines(found: &[StreamView], width: usize) -> Vec<String> {
    if found.is_empty() {
        return vec!["there are no streams".to_owned()];
    }
    let mut table = Table::new(&["STREAM", "ENTRIES", "LAST", "GROUPS"]);
    for stream in found {
        let group = |(name, group): (&String, &GroupView)| {
            format!("{} at {}, {} pending", clean(name), group.cursor, group.pending)
        };
        let groups: Vec<String> = stream.groups.iter().map(group).collect();
        let (entries, last) = (stream.entries.to_string(), stream.last.to_string());
        table.row([clean(&stream.name), entries, last, groups.join("; ")]);
    }
    table.lines(width)
}

/// `1 entry`, `3 entries`.
pub fn entries_of(n: u64) -> String {
    if n == 1 { "1 entry".to_owned() } else { format!("{n} entries") }
}

/// Entries, each with its number and its fields; a gap before them is said.
pub fn entry_lines(entries: &[StreamEntry], missed: u64, look: &StatusStyle) -> Vec<String> {
    let mut lines = Vec::new();
    if missed > 0 {
        lines.push(format!("{} before these were dropped unread", entries_of(missed)));
    }
    for entry in entries {
        lines.push(format!("{}  {}", entry.id, moment(entry.at, look.now, &look.zone)));
        lines.extend(entry.fields.iter().map(|(name, value)| format!("  {}: {}", clean(name), clean(value))));
    }
    lines
}
