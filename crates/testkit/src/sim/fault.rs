//! What goes wrong at which step.

use crate::random::Random;

/// Something that goes wrong at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The supervisor is killed before the step.
    KillBefore,
    /// The supervisor is killed after it.
    KillAfter,
    /// The power fails before the step.
    PowerBefore(Loss),
    /// The power fails after it.
    PowerAfter(Loss),
    /// The step itself fails.
    Error,
    /// The machine stands still for this many milliseconds before the step.
    Delay(u64),
}

/// What happens to unsynced data when the power fails. Nothing that a reader sees is ever torn: a
/// batch of the ledger is there as a whole or not at all, and a record gets its name when its
/// content is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it is gone.
    All,
    /// Its beginning is there.
    Part,
}

impl Loss {
    /// How many of so many unsynced writes survive.
    pub fn keeps(self, writes: u64, random: &mut Random) -> u64 {
        match self {
            Loss::All => 0,
            Loss::Part => random.below(writes + 1),
        }
    }
}

/// The kinds that the exhaustive test tries at every step.
pub const EVERY: [Fault; 7] = [
    Fault::KillBefore,
    Fault::KillAfter,
    Fault::Error,
    Fault::PowerBefore(Loss::All),
    Fault::PowerAfter(Loss::All),
    Fault::PowerAfter(Loss::Part),
    Fault::Delay(300_000),
];

/// Which faults a run meets: those of one machine, or of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultPlan<F = Fault> {
    /// No faults at all.
    Calm,
    /// These, at these steps.
    At(Vec<(u64, F)>),
    /// By chance, until the world heals.
    Random {
        /// On average one in so many steps.
        one_in: u64,
        /// And no more than this.
        most: u32,
    },
}

/// A plan under way.
#[derive(Clone, Debug)]
pub struct Faults<F = Fault> {
    plan: FaultPlan<F>,
    random: Random,
    pub steps: u64,
    pub met: u32,
}

impl<F> Default for Faults<F> {
    fn default() -> Self {
        Self::new(FaultPlan::Calm, 0)
    }
}

impl Fault {
    pub fn draw(random: &mut Random) -> Self {
        let loss = random.pick(&[Loss::All, Loss::Part, Loss::Part]);
        match random.below(10) {
            0..=1 => Fault::KillBefore,
            2..=4 => Fault::KillAfter,
            5 => Fault::PowerBefore(loss),
            6 => Fault::PowerAfter(loss),
            7..=8 => Fault::Error,
            _ => Fault::Delay(random.pick(&[5_000, 20_000, 300_000])),
        }
    }
}

impl<F> Faults<F> {
    pub fn new(plan: FaultPlan<F>, seed: u64) -> Self {
        Self { plan, random: Random::new(seed ^ 0xfa17), steps: 0, met: 0 }
    }

    /// Counts a step; returns the fault that strikes at it.
    pub fn meet(&mut self, draw: fn(&mut Random) -> F) -> Option<F>
    where
        F: Copy,
    {
        self.steps += 1;
        let fault = match &self.plan {
            FaultPlan::Calm => None,
            FaultPlan::At(list) => list.iter().find(|(step, _)| *step == self.steps).map(|(_, fault)| *fault),
            FaultPlan::Random { one_in, most } => {
                let hit = self.met < *most && self.random.one_in(*one_in);
                hit.then(|| draw(&mut self.random))
            }
        };
        self.met += u32::from(fault.is_some());
        fault
    }

    /// Whether things go wrong by chance.
    pub fn is_random(&self) -> bool {
        matches!(self.plan, FaultPlan::Random { .. })
    }

    pub fn heal(&mut self) {
        if self.is_random() {
            self.plan = FaultPlan::Calm;
        }
    }
}
