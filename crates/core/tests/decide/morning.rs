//! The morning report is the fold of what was decided.

use everloop_core::decide::Decision;
use everloop_core::event::{Event, Judgement};
use everloop_core::journal::JournalRecord;
use everloop_core::morning::document::ReaderClock;
use everloop_core::morning::{LoopReport, MorningFold, MorningReport};
use everloop_core::picture::timeline::BarKind;
use everloop_core::time::Time;

use crate::rig::{Rig, board, secs, work};

/// A loop whose decisions are written down.
struct Night {
    rig: Rig,
    records: Vec<JournalRecord>,
}

impl Night {
    fn new() -> Self {
        let mut night = Self { rig: Rig::with(|spec| spec.guard.min_gap = secs(600)), records: Vec::new() };
        let began = night.rig.baseline(0);
        night.saw(began);
        night
    }

    fn saw(&mut self, decision: Decision) {
        for event in decision.events {
            let seq = self.records.len() as u64 + 1;
            let owner = Some(self.rig.state.id.clone());
            self.records.push(JournalRecord { seq, at: self.rig.now, owner, version: 10, event });
        }
    }

    /// A turn of a minute, judged so; then the next one starts, however long that takes.
    fn turn(&mut self, judge: impl FnOnce(&mut Rig) -> Decision) {
        let exited = self.rig.exit(60, 0);
        self.saw(exited);
        let judged = judge(&mut self.rig);
        self.saw(judged);
        if self.rig.phase() == "integrating" {
            let landed = self.rig.landed();
            self.saw(landed);
        }
        if self.rig.phase() == "waiting" {
            let next = self.rig.wait_out();
            self.saw(next);
        }
    }

    fn report(&self, from: Time) -> LoopReport {
        let mut fold = MorningFold::new(from, self.rig.now);
        for record in &self.records {
            fold.take(record);
        }
        fold.finish(&self.rig.state, "because".to_owned())
    }
}

/// Progress, a refusal, two turns without a change; the next turn is under way.
fn night() -> Night {
    let mut night = Night::new();
    night.turn(|rig| rig.judged(1));
    night.turn(|rig| {
        let found = work(&rig.turn(), board(3, 3));
        rig.judged_as(Judgement { violations: vec!["check.sh".to_owned()], ..found })
    });
    for _ in 0..2 {
        night.turn(|rig| rig.judged_as(Judgement { board: board(1, 3), ..Judgement::default() }));
    }
    night
}

#[test]
fn what_was_kept_refused_and_slept_is_counted_once() {
    let night = night();
    let start = night.rig.state.created_at;
    let report = night.report(start);
    assert_eq!((report.kept_count, report.kept.len(), report.kept[0].number), (1, 1, 1));
    assert_eq!(report.kept[0].diffstat, "1 file");
    let refused: Vec<(&str, u32, &[u32])> =
        report.refused.iter().map(|r| (r.outcome, r.count, r.turns.as_slice())).collect();
    assert_eq!(refused, [("no-op", 2, [3, 4].as_slice()), ("refused", 1, [2].as_slice())]);
    assert!(report.refused[1].why.contains("check.sh"), "{:?}", report.refused);
    assert_eq!(report.spent.turns, 4);
    assert_eq!(report.in_turns, 4 * 60_000);
    let kinds: Vec<BarKind> = report.bars.iter().map(|bar| bar.kind).filter(|kind| *kind != BarKind::Asleep).collect();
    assert_eq!(kinds, [BarKind::Kept, BarKind::Refused, BarKind::Tried, BarKind::Tried, BarKind::Working]);
    let whole = u64::try_from(night.rig.now.since(start).as_millis()).expect("it is short");
    assert_eq!(report.asleep + report.in_turns, whole, "every moment is a turn or a sleep");
    assert_eq!(
        (report.checks[0].passes, report.checks[0].passed_before, report.checks[1].passes),
        (true, false, false)
    );
}

#[test]
fn a_period_counts_what_ended_in_it_and_cuts_what_began_before() {
    let night = night();
    let is_refusal = |record: &&JournalRecord| match &record.event {
        Event::TurnEnded { outcome, .. } => outcome.label() == "refused",
        _ => false,
    };
    let refused = night.records.iter().find(is_refusal).expect("there is one").at;
    // In the middle of the second turn.
    let report = night.report(Time(refused.0 - 30_000));
    assert_eq!((report.kept_count, report.spent.turns, report.in_turns), (0, 3, 30_000 + 2 * 60_000));
    let later = night.report(night.rig.now);
    assert_eq!((later.spent.turns, later.asleep, later.in_turns), (0, 0, 0));
}

#[test]
fn the_document_has_every_part_in_every_form() {
    let night = night();
    let report = MorningReport::new(night.rig.state.created_at, night.rig.now, vec![night.report(Time(0))], Vec::new());
    let clock = ReaderClock { stamp: &|at| format!("t{}", at.0), utc_offset: 0 };
    let document = report.document(&clock);
    for form in [document.html(), document.markdown(), document.text()] {
        for words in ["1 change kept", "check.sh", "everloop diff k", "nothing waits for you", "because"] {
            assert!(form.contains(words), "`{words}` is missing:\n{form}");
        }
    }
    let html = document.html();
    assert!(html.contains("<svg") && html.len() < 300_000 && !html.contains("<script"));
    assert!(document.text().contains('█'), "{}", document.text());
}
