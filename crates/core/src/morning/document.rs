//! The morning report for people: what was asked, what is proved, what was kept and refused, what
//! waits, what it cost, and one picture.

use std::time::Duration;

use super::{Changes, LoopReport, MorningReport, RefusedTurns, Spent};
use crate::picture::document::{Block, Document, Section};
use crate::picture::page::dollars;
use crate::picture::timeline::{Lane, Timeline};
use crate::time::{Time, human};

/// Loops that have a section; a longer report is not read in the morning.
const MAX_LOOPS: usize = 20;
const MAX_TICKETS: usize = 20;
/// Columns of the picture in a terminal.
const PICTURE_COLUMNS: usize = 76;
/// Digits of a commit.
const COMMIT_DIGITS: usize = 9;

/// How times are shown to the reader.
pub struct ReaderClock<'a> {
    /// A point in time in words.
    pub stamp: &'a dyn Fn(Time) -> String,
    /// Seconds between the reader's zone and UTC.
    pub utc_offset: i64,
}

impl MorningReport {
    /// The bars of all loops.
    pub fn timeline<'a>(&'a self, title: &'a str, clock: &ReaderClock<'_>) -> Timeline<'a> {
        let lanes = self.loops.iter().map(|part| Lane { name: &part.name, bars: &part.bars }).collect();
        // The picture begins where something happened.
        let first = self.loops.iter().filter_map(|part| part.bars.first()).map(|bar| bar.from).min();
        let from = first.unwrap_or(self.from).max(self.from);
        let last = self.loops.iter().flat_map(|part| &part.bars).map(|bar| bar.to).max().unwrap_or(self.to);
        Timeline { title, from, to: last.max(from + Duration::from_secs(1)), lanes, utc_offset: clock.utc_offset }
    }

    /// The picture alone.
    pub fn svg(&self, clock: &ReaderClock<'_>) -> String {
        self.timeline(&self.headline(), clock).svg()
    }

    /// The result in a sentence.
    pub fn headline(&self) -> String {
        let reached = self.loops.iter().filter(|part| part.phase == "reached").count();
        let kept: u32 = self.loops.iter().map(|part| part.kept_count).sum();
        let refused: u32 = self.loops.iter().flat_map(|part| &part.refused).map(|reason| reason.count).sum();
        format!(
            "{} of {} reached their goal, {} kept, {} not used, {}",
            reached,
            count(self.loops.len(), "loop"),
            count(kept as usize, "change"),
            count(refused as usize, "turn"),
            match self.tickets.len() {
                0 => "nothing waits for you".to_owned(),
                1 => "1 ticket waits for you".to_owned(),
                n => format!("{n} tickets wait for you"),
            }
        )
    }

    /// The whole report.
    pub fn document(&self, clock: &ReaderClock<'_>) -> Document {
        let headline = self.headline();
        let line = self.timeline(&headline, clock);
        let mut blocks = vec![Block::Facts(self.facts())];
        if self.loops.iter().any(|part| !part.bars.is_empty()) {
            blocks.push(Block::Picture { svg: line.svg(), text: line.terminal(PICTURE_COLUMNS) });
        }
        let mut sections = vec![Section { title: "In short".to_owned(), blocks }];
        sections.extend(self.tickets_section(clock));
        sections.extend(self.loops.iter().take(MAX_LOOPS).map(|part| section(part, clock)));
        let more = self.loops.len().saturating_sub(MAX_LOOPS);
        if more > 0 {
            let text = format!("{} left out; `everloop status` shows all.", count(more, "loop"));
            sections.push(Section { title: "More loops".to_owned(), blocks: vec![Block::Text(text)] });
        }
        Document {
            title: "Morning report".to_owned(),
            lead: format!("{} to {}: {headline}.", (clock.stamp)(self.from), (clock.stamp)(self.to)),
            sections,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let asleep = self.loops.iter().map(|part| part.asleep).sum();
        let in_turns = self.loops.iter().map(|part| part.in_turns).sum();
        vec![
            ("Period", human(self.to.since(self.from))),
            ("Spent", spent(self.spent)),
            ("In turns", rounded(in_turns)),
            ("Asleep", rounded(asleep)),
        ]
    }

    fn tickets_section(&self, clock: &ReaderClock<'_>) -> Option<Section> {
        if self.tickets.is_empty() {
            return None;
        }
        let row = |ticket: &super::WaitingTicket| {
            let owner = ticket.owner.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string);
            vec![ticket.ticket.to_string(), owner, (clock.stamp)(ticket.opened_at), ticket.text.clone()]
        };
        let rows = self.tickets.iter().take(MAX_TICKETS).map(row).collect();
        let answer = ("everloop ticket answer ID \"TEXT\"".to_owned(), "answers one; the loop goes on".to_owned());
        let blocks =
            vec![Block::Table { head: vec!["Ticket", "Loop", "Since", "What"], rows }, Block::Commands(vec![answer])];
        Some(Section { title: "Waiting for you".to_owned(), blocks })
    }
}

fn section(part: &LoopReport, clock: &ReaderClock<'_>) -> Section {
    let mut blocks = vec![Block::Facts(vec![
        ("Asked", part.goal.clone()),
        ("Now", part.why.clone()),
        ("Spent", spent(part.spent)),
        ("Time", format!("{} in turns, {} asleep", rounded(part.in_turns), rounded(part.asleep))),
    ])];
    if let Some(result) = &part.research {
        blocks.push(Block::Heading("Result of the research run".to_owned()));
        blocks.push(Block::List(result.lines().map(str::to_owned).collect()));
    }
    if !part.checks.is_empty() {
        blocks.push(Block::Heading("Proved by checks".to_owned()));
        blocks.push(checks(part));
    }
    blocks.push(Block::Heading("Kept".to_owned()));
    blocks.extend(kept(part, clock));
    if !part.refused.is_empty() {
        blocks.push(Block::Heading("Not used, and why".to_owned()));
        blocks.push(refused(&part.refused));
    }
    Section { title: format!("{} ({}): {}", part.name, part.id, part.phase), blocks }
}

fn checks(part: &LoopReport) -> Block {
    let row = |check: &super::CheckStand| {
        let before = if check.passed_before { "pass" } else { "fail" };
        vec![check.name.clone(), check.verdict.clone(), before.to_owned()]
    };
    Block::Table { head: vec!["Check", "Now", "At the start"], rows: part.checks.iter().map(row).collect() }
}

fn kept(part: &LoopReport, clock: &ReaderClock<'_>) -> Vec<Block> {
    if part.kept.is_empty() {
        return vec![Block::Text("Nothing was kept in this period.".to_owned())];
    }
    let row = |turn: &super::KeptTurn| {
        let commit = turn.commit.as_deref().unwrap_or("–").chars().take(COMMIT_DIGITS).collect();
        vec![turn.number.to_string(), (clock.stamp)(turn.at), commit, turn.diffstat.clone()]
    };
    let mut blocks = vec![Block::Table {
        head: vec!["Turn", "When", "Commit", "Changes"],
        rows: part.kept.iter().map(row).collect(),
    }];
    let earlier = (part.kept_count as usize).saturating_sub(part.kept.len());
    if earlier > 0 {
        blocks.push(Block::Text(format!("{} before these.", count(earlier, "kept change"))));
    }
    if let Some(Changes { files, added, removed }) = part.changes {
        blocks.push(Block::Text(format!("In all: {}, +{added} −{removed} lines.", count(files, "file"))));
    }
    let diff = (format!("everloop diff {}", part.id), "shows all of it".to_owned());
    let show = (format!("everloop show {}", part.id), "where it is, and how to take it".to_owned());
    blocks.push(Block::Commands(vec![diff, show]));
    blocks
}

fn refused(reasons: &[RefusedTurns]) -> Block {
    let row = |reason: &RefusedTurns| {
        let rest = (reason.count as usize).saturating_sub(reason.turns.len());
        let first = reason.turns.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let turns = if rest == 0 { first } else { format!("{first} and {rest} more") };
        vec![turns, reason.outcome.to_owned(), reason.why.clone()]
    };
    Block::Table { head: vec!["Turns", "Outcome", "Why"], rows: reasons.iter().map(row).collect() }
}

/// `$0.30 and 12,000 tokens in 4 turns`.
fn spent(spent: Spent) -> String {
    let sign = if spent.estimated { "~" } else { "" };
    format!(
        "{sign}{} and {sign}{} tokens in {}",
        dollars(spent.microusd),
        spent.tokens,
        count(spent.turns as usize, "turn")
    )
}

/// Whole seconds, except for what is shorter.
fn rounded(millis: u64) -> String {
    human(Duration::from_millis(if millis < 1000 { millis } else { millis / 1000 * 1000 }))
}

fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
