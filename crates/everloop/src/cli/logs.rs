//! `everloop logs`: the journal as lines, and the output of turns. Reads only; following costs a
//! query every 200 ms.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::journal::JournalRecord;
use everloop_core::state::LoopState;
use everloop_core::time::{Time, parse_duration};
use everloop_engine::error::{Code, Failure};
use everloop_engine::record::read_state;
use everloop_engine::services::journal::{self, JournalRange};
use everloop_engine::services::speech::Speech;
use everloop_store::{Ledger, Sqlite};
use jiff::civil;
use jiff::tz::TimeZone;

use super::VerbSession;
use crate::ui::events::spoken;
use crate::ui::{EventLines, Format, LogDetail};

mod output;

const HELP: &str = "Examples:
  everloop logs -f k3f9
  everloop logs --since 2h -n 1000
  everloop logs --since \"2026-11-15 21:00\" --json
  everloop logs --turn k3f9-3.1 -f        # what that turn's agent says and does
  everloop logs --turn 3 --raw k3f9       # its output as it was written";

/// Between two reads of the ledger: too short to notice, too long to cost CPU time.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Records that may become one line, with room to spare.
const RECORDS_PER_LINE: usize = 8;

/// Shows what happened, oldest first: of one loop, or of all of them, the guard and the supervisor.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct LogsArgs {
    /// Loop id or name [default: what is about this folder, if a loop works here]
    id: Option<String>,
    /// Show what is about other folders too
    #[arg(long, conflicts_with_all = ["id", "turn"])]
    all: bool,
    /// Keep showing new records until the loop ends, of one loop also what its agent says
    #[arg(short, long)]
    follow: bool,
    /// Show this many lines [default: 50, or with --since all of them]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Only what happened after this: `2h` (ago), `21:00`, `2026-11-15`, `2026-11-15 21:00`,
    /// `2026-11-15T21:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show what this turn's agent said and did instead; an id (`k3f9-3.1`) or, with a loop, a
    /// number
    #[arg(long, value_name = "TURN", conflicts_with_all = ["lines", "since"])]
    turn: Option<String>,
    /// Show the output of the turn as it was written: of most agents that is JSON
    #[arg(long, requires = "turn")]
    raw: bool,
    /// Show every event, also the steps of a turn and the bookkeeping of quarantine
    #[arg(short, long, conflicts_with = "turn")]
    verbose: bool,
}

pub fn logs(args: &LogsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else { return Err(super::no_loops()) };
    if let Some(turn) = &args.turn {
        return output::show(turn, args, session, &ledger);
    }
    let owner = session.named_loop(&ledger, args.id.as_deref())?;
    let elsewhere = if owner.is_some() || args.all { BTreeSet::new() } else { elsewhere(session, &ledger)? };
    let lines = RefCell::new(EventLines::new(LogDetail::of(args.verbose)));
    let printer = Printer { session, lines, elsewhere };
    let since = since(args, session)?;
    let range = JournalRange { owner: owner.as_ref(), lines: args.lines, since };
    let lines = args.lines.or_else(|| since.is_none().then_some(journal::LINES));
    let last = match lines.filter(|_| !args.verbose && session.ui.format() == Format::Text) {
        // A turn's records are one line, so more of them are read than lines are wanted.
        Some(lines) => {
            let range = JournalRange { lines: Some(lines.saturating_mul(RECORDS_PER_LINE)), ..range };
            let mut text = Vec::new();
            let last = journal::read(&ledger, &range, |records| {
                text.extend(printer.text(records));
                Ok(())
            })?;
            session.ui.out_lines(&text[text.len().saturating_sub(lines)..])?;
            last
        }
        None => journal::read(&ledger, &range, |records| printer.print(records))?,
    };
    if args.follow {
        follow(&ledger, owner.as_ref(), last, &printer)?;
    }
    Ok(Code::Ok)
}

/// The loops that work in other folders, where one works in this.
fn elsewhere(session: &VerbSession, ledger: &Sqlite) -> Result<BTreeSet<LoopId>, Failure> {
    let mut others = BTreeSet::new();
    let rows = ledger.loops()?;
    for row in &rows {
        if !read_state(row)?.is_in(&session.dir) {
            others.insert(row.id.clone());
        }
    }
    Ok(if others.len() == rows.len() { BTreeSet::new() } else { others })
}

fn since(args: &LogsArgs, session: &VerbSession) -> Result<Option<Time>, Failure> {
    args.since.as_deref().map(|text| past(text, session)).transpose()
}

/// Parses a point in time from the command line.
pub(super) fn past(text: &str, session: &VerbSession) -> Result<Time, Failure> {
    let point = point_in_time(text, session.now(), &TimeZone::system());
    point.ok_or_else(|| {
        Failure::usage(format!("`{text}` is not a point in time"))
            .hint("write it like `2h`, `21:00` or `2026-11-15 21:00`")
    })
}

/// How long ago, a time of today, a day, a day and a time, or an exact timestamp.
fn point_in_time(text: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    if let Ok(ago) = parse_duration(text) {
        return Some(now - ago);
    }
    if let Ok(exact) = text.parse::<jiff::Timestamp>() {
        return Some(Time(exact.as_millisecond()));
    }
    let today = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
    let local = text
        .parse::<civil::DateTime>()
        .or_else(|_| text.parse::<civil::Date>().map(|d| d.to_datetime(civil::Time::midnight())))
        .or_else(|_| text.parse::<civil::Time>().map(|t| today.to_datetime(t)))
        .ok()?;
    Some(Time(local.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond()))
}

/// Prints matching records.
struct Printer<'a> {
    session: &'a VerbSession,
    lines: RefCell<EventLines>,
    /// Loops of which no record is printed.
    elsewhere: BTreeSet<LoopId>,
}

impl Printer<'_> {
    fn is_wanted(&self, record: &JournalRecord) -> bool {
        record.owner.as_ref().is_none_or(|owner| !self.elsewhere.contains(owner))
    }

    fn text(&self, records: &[JournalRecord]) -> Vec<String> {
        let mut lines = self.lines.borrow_mut();
        records.iter().filter(|record| self.is_wanted(record)).flat_map(|record| lines.of(record)).collect()
    }

    fn speech(&self) -> Result<Speech, Failure> {
        Ok(Speech::new(&self.session.home()?))
    }

    /// Prints the new output of the running turn's agent.
    fn say(&self, speech: Option<&mut Speech>, state: Option<&LoopState>) -> Result<(), Failure> {
        let (Some(speech), Some(state)) = (speech, state) else { return Ok(()) };
        speech.read(state).iter().try_for_each(|line| self.session.ui.out(&spoken(line)))
    }

    fn print(&self, records: &[JournalRecord]) -> Result<(), Failure> {
        let ui = &self.session.ui;
        for record in records.iter().filter(|record| self.is_wanted(record)) {
            match ui.format() {
                Format::Json => ui.json(record)?,
                Format::Text => self.lines.borrow_mut().of(record).iter().try_for_each(|line| ui.out(line))?,
            }
            if ui.closed() {
                break;
            }
        }
        Ok(())
    }
}

/// Prints new records until the loop is over or the output is closed.
fn follow(ledger: &Sqlite, owner: Option<&LoopId>, mut after: u64, printer: &Printer<'_>) -> Result<(), Failure> {
    let mut seen = None;
    let mut speech =
        owner.filter(|_| printer.session.ui.format() == Format::Text).map(|_| printer.speech()).transpose()?;
    let mut state = None;
    loop {
        let version = ledger.data_version()?;
        if seen != Some(version) {
            seen = Some(version);
            state =
                owner.map(|id| ledger.get_loop(id)).transpose()?.flatten().map(|row| read_state(&row)).transpose()?;
            printer.say(speech.as_mut(), state.as_ref())?;
            let (last, over) = journal::read_new(ledger, owner, after, |records| printer.print(records))?;
            after = last;
            if over {
                return Ok(());
            }
        }
        printer.say(speech.as_mut(), state.as_ref())?;
        if printer.session.ui.closed() {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_read_in_the_readers_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = Time(1_794_776_400_000); // 2026-11-15 21:00 UTC, 22:00 here
        let read = |text| point_in_time(text, now, &zone).map(|t| (t.0 - now.0) / 60_000);
        assert_eq!(read("2h"), Some(-120));
        assert_eq!(read("21:30"), Some(-30));
        assert_eq!(read("2026-11-15 21:30"), Some(-30));
        assert_eq!(read("2026-11-15T21:30:00Z"), Some(30));
        assert_eq!(read("2026-11-15"), Some(-22 * 60));
        assert_eq!(read("yesterday-ish"), None);
    }
}
