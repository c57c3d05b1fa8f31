//! Scripted agents: what each kind does in a turn.

use std::time::Duration;

use everloop_core::ids::TaskId;
use everloop_core::jitter::mix;
use everloop_core::stream::{LimitClass, Quota, TurnReport, VendorLimit};
use everloop_core::time::Time;

use super::git::Tree;
use crate::random::Random;

/// A used-up window begins anew after this.
const RESETS_AFTER: Duration = Duration::from_secs(1800);

/// A way to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes one more check pass.
    Good,
    /// The same, and takes an hour.
    Slow,
    /// The same, and exits 1.
    Clumsy,
    /// Reports that all is done and does nothing.
    Liar,
    /// Changes a protected file so that all checks pass.
    Cheater,
    /// Breaks a check that passed.
    Breaker,
    /// Changes something that no check looks at.
    Busy,
    /// Two states in turn.
    PingPong,
    /// Exits 1 at once.
    Crasher,
    /// Exits 1 at once and requests a short delay.
    DiesYoung,
    /// Does nothing and requests a delay of five minutes.
    Asks,
    /// Never ends, gives no sign of life.
    Hang,
    /// Its shim is killed: no record of its end.
    Vanish,
    /// Cannot be started.
    Missing,
    /// Its account's window is used up; the vendor reports until when.
    Limited,
    /// The vendor is overloaded and does not report until when.
    Overloaded,
    /// Changes something that no check looks at, and reports how much of its account's window is
    /// used.
    Metered,
    /// Reports that all is done and does nothing until its prompt requests another approach; then
    /// it makes one more check pass.
    Stubborn,
}

/// What a turn of a kind is like.
#[derive(Clone, Copy)]
struct Traits {
    /// The least and the most that it takes, in milliseconds.
    takes: Option<(u64, u64)>,
    code: i32,
    /// How often it behaves so at a task that [`Script::first`] names it for.
    times: u32,
}

const MOMENT: Option<(u64, u64)> = Some((200, 3_000));
const MINUTE: Option<(u64, u64)> = Some((5_000, 90_000));
const HOUR: Option<(u64, u64)> = Some((3_000_000, 4_200_000));

const fn row(kind: Kind, takes: Option<(u64, u64)>, code: i32, times: u32) -> (Kind, Traits) {
    (kind, Traits { takes, code, times })
}

/// All of them.
const KINDS: [(Kind, Traits); 18] = [
    row(Kind::Good, MINUTE, 0, u32::MAX),
    row(Kind::Slow, HOUR, 0, u32::MAX),
    row(Kind::Clumsy, MINUTE, 1, u32::MAX),
    row(Kind::Liar, MINUTE, 0, u32::MAX),
    row(Kind::Cheater, MINUTE, 0, u32::MAX),
    row(Kind::Breaker, MINUTE, 0, u32::MAX),
    row(Kind::Busy, MINUTE, 0, u32::MAX),
    row(Kind::PingPong, MINUTE, 0, u32::MAX),
    row(Kind::Crasher, MOMENT, 1, 1),
    row(Kind::DiesYoung, MOMENT, 1, 1),
    row(Kind::Asks, MINUTE, 0, u32::MAX),
    row(Kind::Hang, None, 0, 1),
    row(Kind::Vanish, MINUTE, 0, 1),
    row(Kind::Missing, MOMENT, 0, 1),
    row(Kind::Limited, MOMENT, 1, 2),
    row(Kind::Overloaded, MOMENT, 1, 2),
    row(Kind::Metered, MINUTE, 0, u32::MAX),
    row(Kind::Stubborn, MINUTE, 0, u32::MAX),
];

/// A window of an account, as its vendor counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// When it began.
    began: Time,
    /// Thousandths that are used of it.
    used: u32,
}

/// The window's length.
pub const METERED: Duration = Duration::from_secs(3600);
/// What a metered turn uses of it, in thousandths.
const TURN_USES: u32 = 50;

impl Meter {
    /// Counts a turn that ended at `now`; returns the quota that its agent receives.
    pub fn turn(&mut self, now: Time) -> Quota {
        if now >= self.began + METERED || now < self.began {
            *self = Self { began: now, used: 0 };
        }
        self.used = (self.used + TURN_USES).min(1000);
        Quota {
            window: "hour".to_owned(),
            used_permille: self.used,
            reset_at: Some(self.began + METERED),
            length_ms: Some(METERED.as_millis() as u64),
        }
    }
}

/// How an agent behaves over the tasks of its loop.
#[derive(Clone, Debug)]
pub struct Script {
    /// For each of the first tasks: how, and how often before it behaves well.
    pub tasks: Vec<(Kind, u32)>,
    /// From then on.
    pub rest: (Kind, u32),
}

impl Script {
    /// Always the same.
    pub fn always(kind: Kind) -> Self {
        Self { tasks: Vec::new(), rest: (kind, u32::MAX) }
    }

    /// These, one task each, then good. A kind that makes its task fail does so once; one that ends
    /// its task does so however often it is interrupted, so that a run with crashes ends like one
    /// without.
    pub fn first(kinds: &[Kind]) -> Self {
        Self { tasks: kinds.iter().map(|k| (*k, k.traits().times)).collect(), rest: (Kind::Good, 1) }
    }

    /// How it behaves when it has taken up `task` `runs` times before.
    pub fn kind(&self, task: &TaskId, runs: u32) -> Kind {
        let number = task.as_str().rsplit('-').next().and_then(|n| n.parse::<usize>().ok());
        let (kind, times) = number.and_then(|n| self.tasks.get(n.wrapping_sub(1))).copied().unwrap_or(self.rest);
        if runs < times { kind } else { Kind::Good }
    }
}

impl Kind {
    pub fn draw(random: &mut Random) -> Self {
        random.pick(&KINDS).0
    }

    fn traits(self) -> Traits {
        let (_, traits) = KINDS.into_iter().find(|(kind, _)| *kind == self).expect("every kind has its row");
        traits
    }

    /// How long a turn takes, in milliseconds; `None` never ends by itself.
    pub fn takes_ms(self, seed: u64) -> Option<u64> {
        self.traits().takes.map(|(low, high)| low + mix(seed, 9) % (high - low))
    }

    pub fn code(self) -> i32 {
        self.traits().code
    }

    /// The report that results from its stream.
    pub fn report(self, ended_at: Time) -> Option<Box<TurnReport>> {
        let (class, reset_at) = match self {
            Kind::Limited => (LimitClass::Window, Some(ended_at + RESETS_AFTER)),
            Kind::Overloaded => (LimitClass::Overload, None),
            _ => return None,
        };
        let limit = VendorLimit { rule: "simulated".to_owned(), class, reset_at, text: "not now".to_owned() };
        Some(Box::new(TurnReport {
            session: Some("conversation".to_owned()),
            limit: Some(limit),
            ok: Some(false),
            ..TurnReport::default()
        }))
    }

    /// The delay that it requests, in milliseconds.
    pub fn asks_ms(self) -> Option<u64> {
        match self {
            Kind::Asks => Some(300_000),
            Kind::DiesYoung => Some(1_000),
            _ => None,
        }
    }

    /// What it does to its checkout, at its end.
    pub fn work(self, tree: &mut Tree, checks: u32, task: &TaskId) {
        let before = tree.clone();
        match self {
            Kind::Good | Kind::Slow | Kind::Clumsy => {
                tree.fixed |= (0..checks).map(|n| 1 << n).find(|bit| tree.fixed & bit == 0).unwrap_or(0);
                tree.tampered = false;
            }
            Kind::Cheater => tree.tampered = true,
            Kind::Breaker if tree.fixed != 0 => tree.fixed &= tree.fixed - 1,
            Kind::Breaker | Kind::Busy | Kind::Metered => tree.scratch += 1,
            Kind::PingPong if tree.fixed & 1 != 0 => tree.fixed = (tree.fixed & !1) | 2,
            Kind::PingPong => tree.fixed = (tree.fixed & !2) | 1,
            Kind::Liar
            | Kind::Crasher
            | Kind::DiesYoung
            | Kind::Asks
            | Kind::Hang
            | Kind::Vanish
            | Kind::Missing
            | Kind::Limited
            | Kind::Overloaded
            | Kind::Stubborn => {}
        }
        if *tree != before {
            tree.log.push(task.to_string());
        }
    }
}
