//! Events of personas in the journal: the lines of version 11 stay readable.

use std::time::Duration;

use everloop_core::event::{EVENT_VERSION, Event, Exit};
use everloop_core::rhythm::inward::form::Reflection;
use everloop_core::rhythm::inward::memory::MemoryChange;
use everloop_core::rhythm::inward::plan::{IfWoken, PlanUse};
use everloop_core::rhythm::inward::{Inward, InwardCost, ReflectOn};
use everloop_core::rhythm::metabolism::{Channel, TurnOutcome};
use everloop_core::rhythm::next::WakeCause;
use everloop_core::rhythm::persona::PersonaSpec;
use everloop_core::rhythm::reflex::SignalPattern;
use everloop_core::rhythm::signal::SignalClass;
use everloop_core::rhythm::state::{Effect, RhythmStep};
use everloop_core::rhythm::wish::{WakeWish, WishLine};
use everloop_core::time::Time;

const VERSION_11: &str = include_str!("../fixtures/journal-v11.jsonl");
const AT: Time = Time(1_767_225_600_000);

/// Additions of version 11: steps of a persona, and what it is made of.
fn eleventh_added() -> Vec<Event> {
    let rhythm = |step| Event::Rhythm { step: Box::new(step) };
    let received = |effect| rhythm(RhythmStep::Received { at: AT, key: String::from("cli/deploy-1"), effect });
    let rested = |wish| rhythm(RhythmStep::Rested { at: AT, outcome: TurnOutcome::Good, wish });
    let cause = Some(WakeCause::Signal { class: SignalClass::High });
    let exit = |wish| Event::TurnExited {
        turn: "k3f9-2.3".parse().expect("the id of a turn"),
        exit: Exit { wish: Some(wish), ..Exit::default() },
    };
    vec![
        received(Effect::Ignored),
        received(Effect::Faint),
        received(Effect::Wakes { class: SignalClass::Medium }),
        rhythm(RhythmStep::Arrived { at: AT, channel: Channel::Message }),
        rhythm(RhythmStep::Summoned { at: AT }),
        rhythm(RhythmStep::Looked { at: AT }),
        rhythm(RhythmStep::Began { at: AT, cause, taken: 3, ignored: 1, plan: None, replies: Vec::new() }),
        rhythm(RhythmStep::Began {
            at: AT,
            cause: Some(WakeCause::Backlog { left: 2 }),
            taken: 2,
            ignored: 0,
            plan: None,
            replies: Vec::new(),
        }),
        exit(WishLine::Wish(WakeWish::In { wait: Duration::from_secs(900) })),
        exit(WishLine::Unreadable(String::from("soon"))),
        rested(None),
        rested(Some(WakeWish::On { topic: String::from("deploy.*"), or_in: Some(Duration::from_secs(7200)) })),
        rested(Some(WakeWish::When { flag: String::from("ci-green") })),
    ]
    .into_iter()
    .chain(inward_added())
    .collect()
}

/// The same of reflections, dreams and the memory.
fn inward_added() -> Vec<Event> {
    let rhythm = |step| Event::Rhythm { step: Box::new(step) };
    let (at, used) = (AT, InwardCost { tokens: 700, microusd: 2_000 });
    let text = |text: &str| text.to_owned();
    let full = Reflection {
        at,
        on: ReflectOn::OnSelf,
        worth: Some(false),
        notes: vec![text("eu is slow")],
        wish: Some(WakeWish::Tomorrow),
        corrections: vec![text("read the log")],
        dropped: vec![text("`mood` is no key of the form")],
    };
    let dreamed = |memory, plans| rhythm(RhythmStep::Dreamed { at, memory, plans, dropped: Vec::new(), used });
    let plan = IfWoken {
        when: Some(SignalPattern::new("topic:deploy.*")),
        class: Some(SignalClass::High),
        text: text("look at eu"),
    };
    let began = |plan| {
        let replies = Vec::new();
        rhythm(RhythmStep::Began { at, cause: None, taken: 1, ignored: 0, plan: Some(plan), replies })
    };
    let reflection = Inward::Reflection { on: ReflectOn::OnCycle };
    vec![
        rhythm(RhythmStep::TurnedInward { at, inward: reflection }),
        rhythm(RhythmStep::TurnedInward { at, inward: Inward::Dream }),
        rhythm(RhythmStep::Reflected { at, reflection: Box::new(Reflection { at, ..Reflection::default() }), used }),
        rhythm(RhythmStep::Reflected { at, reflection: Box::new(full), used }),
        dreamed(MemoryChange::Kept, None),
        dreamed(MemoryChange::Compacted { number: 2, chars: 40 }, Some(vec![plan])),
        dreamed(MemoryChange::Refused { lost: vec![text("- never touch billing")] }, None),
        rhythm(RhythmStep::Unanswered { at, inward: Inward::Dream, why: text("no answer"), used }),
        rhythm(RhythmStep::Remembered { at, by: text("ann"), line: text("never touch billing") }),
        began(PlanUse::Hit { plan: 0 }),
        began(PlanUse::Miss),
    ]
}

#[test]
fn every_event_that_version_11_added_is_read_as_it_was_meant_and_written_as_it_was_written() {
    assert_eq!(EVENT_VERSION, 11, "a new version gets a fixture of its own beside this one");
    let written: Vec<String> =
        eleventh_added().iter().map(|event| serde_json::to_string(event).expect("events have a JSON form")).collect();
    assert_eq!(VERSION_11.lines().collect::<Vec<_>>(), written, "{}", written.join("\n"));
    for (line, event) in VERSION_11.lines().zip(eleventh_added()) {
        assert_eq!(serde_json::from_str::<Event>(line).expect("an old line stays readable"), event);
    }
    let spec = r#"{"cadence":{"profile":"staccato"},"reflex":{}}"#;
    let read: PersonaSpec = serde_json::from_str(spec).expect("what is missing has a default");
    assert_eq!(read.reflex, PersonaSpec::default().reflex);
}
