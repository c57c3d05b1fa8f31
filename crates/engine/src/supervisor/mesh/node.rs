//! The thread of a node: signs of life, the office of supervisor, and what errands bring back. It waits for one thing at a
//! time, and for nothing without an end: every call to the hub is bounded, and what takes longer is an errand.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use everloop_agents::job::ShimProgram;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::jitter;
use everloop_core::mesh::Report;
use everloop_core::mesh::alone::{Line, Replica};
use everloop_core::mesh::seat::{self, Seat};
use everloop_core::mesh::work::Held;
use everloop_core::op::{Op, Reply};
use everloop_core::scoreboard::Scoreboard;
use everloop_core::time::Time;
use everloop_store::postgres::HeartbeatReply;
use everloop_store::{Error, Ledger, OpenMode, Postgres, Sqlite};
use serde_json::json;
use tokio::runtime::Handle;

use super::fit::Fit;
use super::held::Shelf;
use super::mirror::HubMirror;
use super::pace::Pace;
use super::reconcile::Care;
use super::tells::Tells;
use crate::error::Failure;
use crate::membership::Membership;
use crate::state_folder::StateFolder;

/// Between two signs of life.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// Between two looks at loops of the mesh, as long as there is something to do; the rest comes as news.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// When nothing is free: the next sign of life tells, or a hint.
pub(super) const FAR: Duration = Duration::from_secs(3600);
/// After a call that the hub did not answer, before the next one: a call may take seconds to fail.
const CALL_AGAIN: Duration = Duration::from_secs(1);
/// After the hub was away, before it is listened to again.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// What wakes a node.
pub(super) enum News {
    /// Look again now.
    Look,
    /// Another node gives a hint.
    Hint(Hint),
    /// Give everything back and end.
    Go,
    /// An errand is over.
    Done(Box<Outcome>),
}

/// What nodes tell each other; it can be lost, and then it is found out a little later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// The office of supervisor is free.
    Seat,
    /// There is something to take, or to merge.
    Work,
    /// Somebody took this task: nobody else begins it, should the hub go away now.
    Taken(TaskId),
}

impl Hint {
    fn word(&self) -> String {
        match self {
            Hint::Seat => "seat".to_owned(),
            Hint::Work => "work".to_owned(),
            Hint::Taken(task) => format!("taken {task}"),
        }
    }

    /// What a newer node says and this one does not know means: look.
    fn read(word: &str) -> Self {
        match word.split_once(' ') {
            Some(("taken", task)) => Hint::Taken(TaskId::new(task)),
            _ if word == "seat" => Hint::Seat,
            _ => Hint::Work,
        }
    }
}

/// Passes hints on as long as the node is there; when the hub is away, it listens again later.
pub(super) fn listen(membership: &Membership, news: &mpsc::Sender<News>) {
    let heard = |word: &str| news.send(News::Hint(Hint::read(word))).is_ok();
    while membership.listen(heard).is_err() && news.send(News::Look).is_ok() {
        std::thread::sleep(LISTEN_AGAIN);
    }
}

/// What an errand brings back.
pub(super) enum Outcome {
    /// The loop that works on a task is made, or why not.
    Begun { held: Held, made: Result<(), String> },
    /// Work was pushed, or why not.
    Pushed { held: Held, pushed: Result<Report, String> },
    /// The checks were asked about the branch.
    Judged { id: LoopId, judged: Result<(String, Scoreboard), String> },
    /// Work of a task came to the branch, or did not.
    Merged { id: LoopId, task: TaskId, merged: Merged },
}

/// What became of a task's work.
pub(super) enum Merged {
    /// It stands on the branch; the checks say this about it, if they were asked.
    Landed { fence: Fence, node: NodeId, commit: String, board: Option<Scoreboard> },
    /// It may not.
    Refused(String),
    /// The branch holds it already, by other means.
    Contained,
    /// The branch moved meanwhile; it is tried again.
    Moved,
    /// Something else was in the way; it is tried again.
    Later(String),
}

/// A node of a mesh.
pub(super) struct Node {
    pub home: StateFolder,
    pub shim: ShimProgram,
    pub membership: Membership,
    pub pace: Pace,
    /// What loops of this machine live in.
    pub local: Sqlite,
    pub late_results: Shelf,
    hub: Option<Postgres>,
    /// Shared with errands, which look at it before they move a branch.
    pub seat: Arc<Mutex<Seat>>,
    /// The hub's clock is so far ahead of ours, in milliseconds.
    ahead: i64,
    beat_at: Time,
    ask_at: Time,
    /// Free tasks are not listed again before this, unless there is news.
    pub list_at: Time,
    /// When tickets of the hub are looked at again.
    pub tell_at: Time,
    /// Loops whose checks are being asked.
    pub judging: BTreeSet<LoopId>,
    /// Loops for which the last errand went well.
    pub served: BTreeSet<LoopId>,
    /// Held tasks about which an errand is under way.
    pub action_runs: BTreeSet<String>,
    /// When the hub last heard that a task is still held.
    pub renewed: std::collections::BTreeMap<String, Time>,
    /// It takes no further task.
    pub draining: bool,
    /// The supervisor's: errands run beside its own.
    runner: Handle,
    news: mpsc::Sender<News>,
    going: bool,
    /// Whether the hub can be reached.
    pub line: Line,
    /// What it said last.
    pub replica: Replica,
    /// When that was last looked at.
    pub remembered_at: Time,
    /// After the hub was away, no task is taken before this: nodes begin one after the other.
    pub claim_at: Time,
    /// A hub that is away is asked again then, and not with every wish.
    call_at: Time,
    /// What the hub knows, in files of this machine.
    pub mirror: HubMirror,
    /// What it knows about whether it can work.
    pub fit: Fit,
    /// What others on this machine may know about it.
    pub tells: Tells,
    /// What it knows of the loops while it supervises.
    pub care: Care,
}

impl Node {
    /// A node that does nothing yet.
    pub fn new(
        (home, shim): (StateFolder, ShimProgram),
        membership: Membership,
        news: mpsc::Sender<News>,
        runner: Handle,
    ) -> Result<Self, Failure> {
        let cannot = |e: &std::io::Error| Failure::failed("cannot make this machine a node").because(e);
        let replica = super::alone::read(&home);
        Ok(Self {
            local: Sqlite::open(&home.database(), OpenMode::ReadWrite)?,
            late_results: Shelf::open(&home.mesh().join("held")).map_err(|e| cannot(&e))?,
            runner,
            home,
            shim,
            membership,
            pace: Pace::new(),
            hub: None,
            seat: Arc::default(),
            ahead: 0,
            beat_at: Time::default(),
            ask_at: Time::default(),
            list_at: Time::default(),
            tell_at: Time::default(),
            judging: BTreeSet::new(),
            served: BTreeSet::new(),
            action_runs: BTreeSet::new(),
            renewed: std::collections::BTreeMap::new(),
            draining: false,
            news,
            going: false,
            line: Line::default(),
            replica,
            remembered_at: Time::default(),
            claim_at: Time::default(),
            call_at: Time::default(),
            mirror: HubMirror::default(),
            fit: Fit::default(),
            tells: Tells::default(),
            care: Care::default(),
        })
    }

    /// Is a node until it is told to go.
    pub fn run(mut self, heard: &mpsc::Receiver<News>) {
        while !self.going {
            self.step();
            match heard.recv_timeout(self.nap()) {
                Ok(News::Go) | Err(mpsc::RecvTimeoutError::Disconnected) => self.going = true,
                Ok(News::Done(outcome)) => {
                    self.list_at = Time::default();
                    self.over(*outcome);
                }
                Ok(News::Hint(Hint::Seat)) => {
                    self.ask_at = Seat::ask_after(self.pace.now(), Duration::ZERO, self.seed());
                }
                Ok(News::Hint(Hint::Work) | News::Look) => self.list_at = Time::default(),
                Ok(News::Hint(Hint::Taken(task))) => self.decline(&task),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        self.leave();
    }

    fn step(&mut self) {
        let now = self.pace.now();
        // What a hub that was away is asked first is to take a sign of life, and what its clock says.
        let asks_again = self.line.is_broken() && self.pace.wall() >= self.call_at;
        if asks_again || now >= self.beat_at {
            self.beat();
        }
        if now >= self.ask_at {
            self.ask();
        }
        if now >= self.mirror.look_at {
            self.mirror_hub();
        }
        self.tend();
        let term = self.seat.lock().expect("no holder panics").term(self.pace.now());
        if let Some(term) = term {
            self.lead(term);
            self.tell_people();
        }
        if self.line.is_away(self.pace.now()) {
            self.begin_alone();
        } else {
            self.take_more();
        }
        self.say_how_it_is();
    }

    fn nap(&self) -> Duration {
        let now = self.pace.now();
        let timers = [self.beat_at, self.ask_at].into_iter().map(|at| at.since(now)).min().unwrap_or(POLL_INTERVAL);
        let idle = self.late_results.all().is_empty()
            && !self.line.is_broken()
            && self.seat.lock().expect("no holder panics").term(now).is_none();
        self.pace.real(if idle { timers } else { timers.min(POLL_INTERVAL) })
    }

    /// An errand came back.
    fn over(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Begun { held, made } => self.begun(&held, made),
            Outcome::Pushed { held, pushed } => self.pushed(held, pushed),
            Outcome::Judged { id, judged } => {
                self.judging.remove(&id);
                self.judged(&id, judged);
            }
            Outcome::Merged { id, task, merged } => {
                self.judging.remove(&id);
                self.merged(&id, &task, merged);
            }
        }
    }

    /// Tells other nodes to look. Lost hints cost time and nothing else.
    pub fn hint(&mut self, hint: &Hint) {
        self.at_hub("give a hint", |hub| hub.hint(&hint.word()));
    }

    /// Differs from node to node and from time to time.
    fn seed(&self) -> u64 {
        self.pace.now().0.unsigned_abs() ^ (u64::from(std::process::id()) << 32)
    }

    /// What the hub's clock says, as far as this node knows.
    pub fn hub_now(&self) -> Time {
        Time(self.pace.wall().0 + self.ahead)
    }

    /// Sends something out; what comes of it is news.
    pub fn start_run(&self, action_run: impl Future<Output = Outcome> + Send + 'static) {
        let news = self.news.clone();
        self.runner.spawn(async move {
            // Nobody listens only when the node is gone, and then the next one looks for itself.
            news.send(News::Done(Box::new(action_run.await))).ok();
        });
    }

    /// Does something at the hub. `None`: it is away, and what it would have said is unknown.
    pub fn at_hub<T>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&mut Postgres) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        if self.line.is_broken() && self.pace.wall() < self.call_at {
            return None;
        }
        if self.hub.is_none() {
            match self.membership.open() {
                Ok(hub) => self.hub = Some(hub),
                Err(failure) => {
                    self.away(doing, &failure.message);
                    return None;
                }
            }
        }
        let answer = work(self.hub.as_mut().expect("it was just opened"));
        match answer {
            Ok(_) | Err(Error::Refused(_)) => {
                self.tells.heard();
                if self.line.is_broken() {
                    self.back();
                }
                Some(answer)
            }
            Err(error) => {
                self.away(doing, &error.to_string());
                None
            }
        }
    }

    fn away(&mut self, doing: &str, error: &str) {
        if !self.line.is_broken() {
            tracing::warn!(error, "the hub is away (could not {doing}); what is under way goes on");
        }
        self.line.failed(self.pace.now());
        self.call_at = self.pace.wall() + CALL_AGAIN;
    }

    fn beat(&mut self) {
        let now = self.pace.now();
        self.beat_at = now + jitter::between(BEAT.mul_f64(0.9), BEAT.mul_f64(1.1), self.seed());
        let info = self.info(Some(self.hub_now() + self.pace.real(self.beat_at.since(now))));
        let (node, wall) = (self.membership.node.clone(), self.pace.wall());
        let beaten = self.at_hub("give a sign of life", |hub| hub.beat(now, &node, &info));
        if let Some(Ok(heard)) = beaten {
            self.hear(&heard, wall);
        }
    }

    /// What the hub answered to a sign of life that was sent at `sent`, by this machine's clock.
    fn hear(&mut self, heard: &HeartbeatReply, sent: Time) {
        let now = self.pace.now();
        // A node whose own clock is wrong could not say otherwise when a task is to be tried again.
        self.ahead = heard.at.0 - sent.0;
        // One that was removed and comes back takes nothing, too.
        let drains = |wish: &String| serde_json::from_str(wish).unwrap_or(Wish::Drain) != Wish::Work;
        self.draining = heard.wish.as_ref().is_some_and(drains);
        if heard.waiting || !self.replica.free.is_empty() {
            self.list_at = self.list_at.min(now);
        } else {
            self.tells.remembered();
        }
        self.mirror.heard = Some(heard.seq);
        if self.seat.lock().expect("no holder panics").granted().is_none() {
            let left = heard.led_until.map_or(Duration::ZERO, |until| until.since(heard.at));
            self.ask_at = Seat::ask_after(now, self.pace.own(left), self.seed());
        }
    }

    /// What it says of itself, and when it will be heard again; not at all when it goes.
    fn info(&self, next_beat: Option<Time>) -> String {
        let held: Vec<TaskId> = self.late_results.all().into_iter().map(|held| held.task).collect();
        let info = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "holds": held,
            "leads": self.seat.lock().expect("no holder panics").term(self.pace.now()).is_some(),
            "draining": self.draining || next_beat.is_none(),
            "next_beat": next_beat,
            "leaving": next_beat.is_none(),
        });
        info.to_string()
    }

    /// Asks for the office of supervisor, or to keep it.
    fn ask(&mut self) {
        let asked = self.pace.now();
        self.ask_at = Seat::ask_next(asked, self.seed());
        if self.draining || self.seat.lock().expect("no holder panics").is_shy(asked) {
            return;
        }
        let elect = Op::Elect { node: self.membership.node.clone(), lease: self.pace.real(seat::LEASE) };
        let answer = self.at_hub("ask who supervises", |hub| hub.transact(asked, &[elect]));
        let Some(Ok(replies)) = answer else { return };
        let term = replies.iter().find_map(|r| if let Reply::Elected(term) = r { *term } else { None });
        let mut seat = self.seat.lock().expect("no holder panics");
        if seat.granted() != term {
            tracing::info!(?term, "the supervisor of the mesh changed");
        }
        seat.answered(asked, term);
    }

    /// Gives the office back, so that nobody has to wait for the end of its lease.
    pub(super) fn resign(&mut self) {
        let granted = self.seat.lock().expect("no holder panics").granted();
        let node = self.membership.node.clone();
        if let Some(term) = granted {
            self.at_hub("resign", |hub| hub.transact(Time::default(), &[Op::Resign { node, term }]));
            self.seat.lock().expect("no holder panics").answered(Time::default(), None);
            self.hint(&Hint::Seat);
        }
    }

    /// Gives back what it has.
    fn leave(&mut self) {
        self.resign();
        self.give_all_back();
        let (node, info) = (self.membership.node.clone(), self.info(None));
        self.at_hub("say that it goes", |hub| hub.transact(Time::default(), &[Op::Heartbeat { node, info }]));
        self.mirror.due();
        self.mirror_hub();
        // Also wakes its own ear, which then finds nobody to tell it to.
        self.hint(&Hint::Work);
    }
}

/// Kind of the documents that say what operators want of a node.
pub const NODE: &str = "node";

/// What an operator wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// It works.
    Work,
    /// It ends what it has and takes nothing more.
    Drain,
    /// It is gone for good.
    Remove,
}
