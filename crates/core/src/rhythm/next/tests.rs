//! Tables of the rules, with the numbers of the design.

use super::*;
use crate::rhythm::bucket::WakeAllowance;
use crate::rhythm::cadence::Profile;
use crate::rhythm::calendar::DayRange;
use crate::rhythm::metabolism::{Channel, TurnOutcome};
use crate::rhythm::tests_support::{at, minutes, zones};

/// A persona that rested at ten o'clock.
fn rested(brought: Brought, empty: u32) -> History {
    History { rested_at: Some(at(6, 1, 10, 0)), brought, empty, ..History::default() }
}

fn tasks(count: u32) -> Brought {
    Brought::Tasks { count, urgent: false }
}

fn ask(cadence: &Cadence, history: &History, hold: Option<&Hold>, now: Time) -> Next {
    let calendar = zones();
    let hints = Hints { calendar: &calendar, hold };
    let found = next(cadence, history, &hints, now);
    assert_eq!(found, next(cadence, history, &hints, now), "it depends on its arguments only");
    assert!(found.at >= now && !found.because.is_empty(), "{found:?}");
    found
}

/// Minutes from ten o'clock on.
fn wait(cadence: &Cadence, history: &History) -> u64 {
    ask(cadence, history, None, at(6, 1, 10, 0)).at.since(at(6, 1, 10, 0)).as_secs() / 60
}

#[test]
fn by_what_the_last_look_brought() {
    let cadence = Cadence::default();
    for (brought, expected) in [
        (Brought::Nothing, 20),
        (tasks(0), 20),
        (tasks(1), 10),
        (tasks(2), 10),
        (tasks(3), 2),
        (tasks(50), 2),
        (Brought::Tasks { count: 1, urgent: true }, 2),
        (Brought::Tasks { count: 0, urgent: true }, 2),
    ] {
        assert_eq!(wait(&cadence, &rested(brought.clone(), 0)), expected, "{brought:?}");
    }
}

#[test]
fn empty_looks_stretch_up_to_the_longest_and_snap_back() {
    let cadence = Cadence::default();
    for (empty, expected) in
        [(1, 20), (2, 30), (3, 45), (4, 67), (5, 101), (6, 151), (7, 227), (8, 240), (4_000_000, 240)]
    {
        assert_eq!(wait(&cadence, &rested(Brought::Nothing, empty)), expected, "{empty}");
    }
    let found = ask(&cadence, &rested(Brought::Nothing, 8), None, at(6, 1, 10, 0));
    assert!(matches!(
        found.because[..],
        [Factor::Brought { .. }, Factor::Empty { times: 8, .. }, Factor::Longest { .. }]
    ));
    assert_eq!(wait(&cadence, &rested(tasks(1), 0)), 10);
}

#[test]
fn wishes_are_cut_to_the_bounds_and_the_cut_is_named() {
    let cadence = Cadence { zone: "Europe/Berlin".to_owned(), ..Cadence::default() };
    let ten = at(6, 1, 10, 0);
    let on = |or_in| WakeWish::On { topic: "deploy.*".to_owned(), or_in };
    for (wish, expected, cut) in [
        (WakeWish::In { wait: minutes(15) }, 15, false),
        (WakeWish::In { wait: Duration::from_secs(1) }, 1, true),
        (WakeWish::In { wait: minutes(100_000) }, 240, true),
        (WakeWish::At { minute: 13 * 60 }, 60, false),
        (WakeWish::Tomorrow, 240, true),
        (on(Some(minutes(120))), 120, false),
        (on(None), 240, false),
        (WakeWish::When { flag: "x".to_owned() }, 240, false),
    ] {
        let history = History { wish: Some(wish.clone()), ..rested(tasks(5), 0) };
        let found = ask(&cadence, &history, None, ten);
        assert_eq!(found.at, ten + minutes(expected), "{wish}");
        assert_eq!(found.because.iter().any(|factor| matches!(factor, Factor::WishCut { .. })), cut, "{wish}");
        assert_eq!(found.topic.is_some(), matches!(wish, WakeWish::On { .. }));
        assert_eq!(found.flag.is_some(), matches!(wish, WakeWish::When { .. }));
    }
    let lost = Cadence { zone: "Nowhere".to_owned(), ..cadence };
    let history = History { wish: Some(WakeWish::Tomorrow), ..rested(tasks(1), 0) };
    let found = ask(&lost, &history, None, ten);
    assert_eq!(
        (found.at, &found.because[0]),
        (ten + minutes(10), &Factor::WishUnknown { text: "tomorrow".to_owned() })
    );
}

#[test]
fn the_rate_of_signals_shortens_and_lengthens() {
    let cadence = Cadence::default();
    let ten = at(6, 1, 10, 0);
    let with = |recent, floor| History { rate: SignalRate { recent, floor, at: ten }, ..rested(Brought::Nothing, 1) };
    for (recent, floor, expected) in [(0.0, 0.0, 20), (20.0, 1.0, 5), (0.0, 5.0, 80), (1.0, 1.0, 20), (2.0, 1.0, 10)] {
        assert_eq!(wait(&cadence, &with(recent, floor)), expected, "{recent} against {floor}");
    }
    let off = Cadence { weighted: false, ..cadence };
    assert_eq!(wait(&off, &with(20.0, 1.0)), 20);
}

#[test]
fn metabolism_quickens_and_failures_never_do() {
    let cadence = Cadence { metabolic: true, weighted: false, ..Cadence::default() };
    let ten = at(6, 1, 10, 0);
    let mut busy = rested(Brought::Nothing, 1);
    assert_eq!(wait(&cadence, &busy), 20);
    for channel in Channel::ALL {
        busy.arrivals.add(channel, ten);
    }
    // M = 0.4 + 0.4: a factor of 0.1^0.8.
    assert_eq!(wait(&cadence, &busy), 3);
    let mut failing = busy.clone();
    let mut last = wait(&cadence, &busy);
    for _ in 0..10 {
        failing.outcomes.add(TurnOutcome::Failed);
        let now = wait(&cadence, &failing);
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    assert_eq!(last, 20);
}

#[test]
fn the_wake_budget_delays_and_high_signals_overdraw_by_one() {
    let wakes = WakeAllowance { wakes: 4, per: Duration::from_secs(3600) };
    let cadence = Cadence { wakes: Some(wakes), ..Cadence::default() };
    let ten = at(6, 1, 10, 0);
    let mut history = rested(tasks(3), 0);
    for _ in 0..4 {
        history.bucket.take(wakes, ten);
    }
    let found = ask(&cadence, &history, None, ten);
    assert!(found.at >= ten + minutes(15) && found.at < ten + minutes(16), "{found:?}");
    assert!(found.because.iter().any(|factor| matches!(factor, Factor::Budget { .. })));
    let woken = |class| Some(WakeCause::Signal { class });
    history.pending = woken(SignalClass::Medium);
    assert!(ask(&cadence, &history, None, ten).at >= ten + minutes(15), "a medium one waits for the refill");
    history.pending = woken(SignalClass::High);
    let found = ask(&cadence, &history, None, ten);
    assert_eq!((found.at, found.because.last()), (ten, Some(&Factor::Overdraft { balance_milli: 0 })));
    history.bucket.take(wakes, ten);
    assert!(ask(&cadence, &history, None, ten).at >= ten + minutes(15), "the second one waits too");
    history.pending = Some(WakeCause::Person);
    assert_eq!(ask(&cadence, &history, None, ten).at, ten);
}

#[test]
fn holds_always_win() {
    let (cadence, ten) = (Cadence::default(), at(6, 1, 10, 0));
    let woken = History { pending: Some(WakeCause::Signal { class: SignalClass::High }), ..rested(tasks(3), 0) };
    let until = ten + minutes(50);
    for (hold, expected) in [
        (Hold::Cooling { until }, 50),
        (Hold::Limited { until }, 50),
        (Hold::Frozen { until: Some(until) }, 50),
        (Hold::Frozen { until: None }, 240),
        (Hold::Cooling { until: Time(0) }, 0),
    ] {
        let found = ask(&cadence, &woken, Some(&hold), ten);
        assert_eq!(found.at, ten + minutes(expected), "{hold:?}");
        assert_eq!(found.because.contains(&Factor::Held { hold: hold.clone() }), expected > 0);
    }
}

#[test]
fn cron_takes_the_place_of_the_interval() {
    let cadence =
        Cadence { cron: Some("*/15 9-18 * * 1-5".to_owned()), zone: "Europe/Berlin".to_owned(), ..Cadence::default() };
    let ten = at(6, 1, 10, 0);
    assert_eq!(wait(&cadence, &rested(Brought::Nothing, 30)), 15);
    let late = ask(&cadence, &rested(tasks(1), 0), None, ten + minutes(47));
    assert_eq!((late.at, late.because.last()), (ten + minutes(47), Some(&Factor::Missed { times: 3 })));
    let history = History { wish: Some(WakeWish::In { wait: minutes(5) }), ..rested(tasks(1), 0) };
    assert_eq!(wait(&cadence, &history), 5, "an earlier wish counts");
    let friday = History { rested_at: Some(at(6, 5, 17, 0)), ..History::default() };
    assert_eq!(ask(&cadence, &friday, None, at(6, 5, 17, 0)).at, at(6, 8, 7, 0), "beyond the longest nap");
    let unknown = Cadence { cron: Some("never".to_owned()), ..cadence };
    let found = ask(&unknown, &rested(tasks(1), 0), None, ten);
    assert_eq!(
        (found.at, &found.because[0]),
        (ten + minutes(10), &Factor::CronUnknown { expression: "never".to_owned() })
    );
}

#[test]
fn quiet_hours_hold_all_but_what_is_urgent() {
    let quiet = Some(DayRange { from: 11 * 60, to: 14 * 60 });
    let cadence = Cadence { quiet, zone: "Europe/Berlin".to_owned(), ..Cadence::default() };
    let ten = at(6, 1, 10, 0);
    let mut history = rested(tasks(1), 0);
    let found = ask(&cadence, &history, None, ten);
    assert_eq!(found.at, at(6, 1, 12, 0), "14:00 in Berlin");
    history.pending = Some(WakeCause::Signal { class: SignalClass::Medium });
    assert_eq!(ask(&cadence, &history, None, ten).at, at(6, 1, 12, 0));
    history.pending = Some(WakeCause::Signal { class: SignalClass::High });
    assert_eq!(ask(&cadence, &history, None, ten).at, ten);
}

#[test]
fn profiles_have_their_own_pace() {
    let ten = at(6, 1, 10, 0);
    for (profile, paces, longest) in [
        (Profile::Staccato, [300, 120, 30], 1),
        (Profile::Measured, [2400, 1200, 300], 8),
        (Profile::PhaseLinked, [1200, 600, 120], 4),
        (Profile::Steady, [1200, 1200, 1200], 4),
        (Profile::Custom, [1200, 600, 120], 4),
    ] {
        let secs = |brought| ask(&profile.cadence(), &rested(brought, 1), None, ten).at.since(ten).as_secs();
        assert_eq!([secs(Brought::Nothing), secs(tasks(2)), secs(tasks(4))], paces, "{profile:?}");
        assert_eq!(profile.cadence().longest, minutes(60 * longest), "{profile:?}");
    }
    assert_eq!(wait(&Profile::Steady.cadence(), &rested(Brought::Nothing, 9)), 20, "a fixed interval stays");
}

#[test]
fn clocks_that_jump_make_one_look_and_no_long_nap() {
    let (cadence, ten) = (Cadence::default(), at(6, 1, 10, 0));
    let history = rested(Brought::Nothing, 1);
    let late = ten + minutes(60 * 24 * 30);
    let found = ask(&cadence, &history, None, late);
    assert_eq!((found.at, found.because.last()), (late, Some(&Factor::Overdue { since: ten + minutes(20) })));
    let back = ten - minutes(60 * 24 * 30);
    assert_eq!(ask(&cadence, &history, None, back).at, back + minutes(20));
    assert_eq!(ask(&cadence, &History::default(), None, ten).because, [Factor::First]);
}

#[test]
fn of_two_causes_the_stronger_one_counts() {
    let signal = |class| WakeCause::Signal { class };
    let order = [
        WakeCause::Backlog { left: 1 },
        signal(SignalClass::Low),
        signal(SignalClass::Medium),
        signal(SignalClass::High),
        WakeCause::Person,
    ];
    for pair in order.windows(2) {
        assert_eq!(pair[0].clone().stronger(pair[1].clone()), pair[1]);
        assert_eq!(pair[1].clone().stronger(pair[0].clone()), pair[1]);
    }
}
