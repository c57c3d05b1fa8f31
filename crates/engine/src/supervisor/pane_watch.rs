//! Watches the panes between turns. A CLI that continues by itself is a start like any other: the
//! guard permits and counts it, or the CLI is interrupted and a ticket names the reason.
//!
//! A thread with a connection of its own: tmux is waited for here, and loops are not.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use everloop_agents::agent::pane_of;
use everloop_agents::clock;
use everloop_agents::tmux::{Pane, TmuxServer};
use everloop_core::event::Event;
use everloop_core::guard::permit::{PermitRequest, held, permit};
use everloop_core::guard::{PermitDecision, Scope, Spend};
use everloop_core::op::Op;
use everloop_core::pane::PaneActivity;
use everloop_core::reason::Reason;
use everloop_core::spec::{AgentKind, AgentSpec, DEFAULT_ACCOUNT};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why;
use everloop_store::{Ledger, OpenMode, Sqlite, Tickets};

use crate::error::Failure;
use crate::hold::CliStart;
use crate::record::read_state;
use crate::state_folder::{StateFolder, node_id};

/// Poll interval: a look starts tmux a few times, and a CLI works for longer.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The same while there is no pane.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The watch of the panes of a state folder; it ends when this is dropped.
pub(super) struct PaneWatch {
    _alive: Sender<()>,
}

impl PaneWatch {
    pub(super) fn start(home: &StateFolder) -> Option<Self> {
        let (alive, gone) = channel();
        let home = home.clone();
        let run = move || watch(&home, &gone);
        let thread = std::thread::Builder::new().name("panes".to_owned()).spawn(run);
        thread.inspect_err(|e| tracing::warn!(error = %e, "cannot start the watch of panes")).ok()?;
        Some(Self { _alive: alive })
    }
}

fn watch(home: &StateFolder, gone: &Receiver<()>) {
    let (mut known, mut interval) = (BTreeMap::new(), POLL_INTERVAL);
    while gone.recv_timeout(clock::machine_period(interval)) == Err(RecvTimeoutError::Timeout) {
        if let Err(failure) = look(home, &mut known) {
            tracing::debug!(error = failure.message, "cannot look at the panes");
        }
        interval = if known.is_empty() { IDLE_POLL_INTERVAL } else { POLL_INTERVAL };
    }
}

/// Looks at every pane once; `known` has those that are there afterwards.
fn look(home: &StateFolder, known: &mut BTreeMap<String, PaneActivity>) -> Result<(), Failure> {
    // Opening it would make the folder.
    if !home.root().join("panes").is_dir() {
        known.clear();
        return Ok(());
    }
    let cannot = |e: everloop_agents::tmux::PaneError| Failure::failed(e.to_string());
    let server = TmuxServer::open(home.root()).map_err(cannot)?;
    let panes = server.panes().map_err(cannot)?;
    known.retain(|name, _| panes.iter().any(|pane| pane.name.as_str() == name));
    for pane in panes {
        let Some(sample) = server.sample(&pane).map_err(cannot)? else { continue };
        if !known.entry(pane.name.to_string()).or_default().begins(sample.seen) {
            continue;
        }
        let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite)?;
        let start = PaneStart::of(&pane, &ledger, clock::now())?;
        match start.refusal(&ledger)? {
            // A person at the pane is not interrupted.
            Some(reason) if !sample.attended => {
                server.interrupt(&pane).map_err(cannot)?;
                start.report(&mut ledger, &reason)?;
                home.wake();
            }
            _ => start.count(&mut ledger)?,
        }
    }
    Ok(())
}

/// A start of the CLI in a pane, by itself.
struct PaneStart<'a> {
    pane: &'a Pane,
    /// The loop that takes turns in the pane.
    user: Option<(LoopState, AgentSpec)>,
    now: Time,
}

impl<'a> PaneStart<'a> {
    fn of(pane: &'a Pane, ledger: &Sqlite, now: Time) -> Result<Self, Failure> {
        let is_here = |agent: &&AgentSpec| pane_of(agent) == Some(pane.name.as_str());
        let mut user = None;
        for row in ledger.loops()? {
            let state = read_state(&row)?;
            let agent = state.spec.agents().find(is_here).cloned();
            if let Some(agent) = agent.filter(|_| !state.is_over()) {
                user = Some((state, agent));
            }
        }
        Ok(Self { pane, user, now })
    }

    fn account(&self) -> String {
        let usual = || format!("{DEFAULT_ACCOUNT}/{}", AgentKind::Pane.label());
        self.user.as_ref().map_or_else(usual, |(_, agent)| agent.guard_account())
    }

    /// Why the guard does not permit it.
    fn refusal(&self, ledger: &Sqlite) -> Result<Option<Reason>, Failure> {
        let (guards, account, node) = (ledger.guards()?, self.account(), node_id());
        let Some((state, _)) = &self.user else { return Ok(held(&guards, &account, &node, self.now)) };
        let request = PermitRequest {
            owner: &state.id,
            account: &account,
            node: &node,
            spec: &state.spec.guard,
            reserve: Spend::default(),
            noops: 0,
            priority: 0,
        };
        Ok(match permit(&guards, &request, self.now) {
            PermitDecision::Go(_) => None,
            PermitDecision::Wait(reason) | PermitDecision::Spent(reason) => Some(reason),
        })
    }

    fn key(&self) -> String {
        format!("pane:{}", self.pane.name)
    }

    fn is_open(&self, ledger: &Sqlite) -> Result<bool, Failure> {
        Ok(ledger.tickets(Tickets::Open)?.iter().any(|ticket| ticket.key == self.key()))
    }

    /// Counts it, and closes the ticket about an earlier one.
    fn count(&self, ledger: &mut Sqlite) -> Result<(), Failure> {
        let own = self.user.as_ref().map(|(state, _)| Scope::Loop(state.id.clone()));
        let rest = [Scope::Account(self.account()), Scope::Node(node_id()), Scope::All];
        let scopes: Vec<Scope> = own.into_iter().chain(rest).collect();
        let by = format!("itself in pane {}", self.pane.name);
        let start = CliStart { scopes, agent: self.pane.kind.label(), by, now: self.now };
        start.count(ledger, |_| None)?;
        if self.is_open(ledger)? {
            let close = Op::CloseTicket { key: self.key(), answer: "the guard permits it again".to_owned() };
            let closed = Event::TicketClosed { key: self.key() };
            ledger.transact(self.now, &[close, Op::Append { owner: None, events: vec![closed] }])?;
        }
        Ok(())
    }

    /// Opens a ticket, once.
    fn report(&self, ledger: &mut Sqlite, reason: &Reason) -> Result<(), Failure> {
        if self.is_open(ledger)? {
            return Ok(());
        }
        let name = &self.pane.name;
        let why = why::waiting(reason, self.now, &crate::quantities::here);
        let text = format!(
            "the program in pane `{name}` went on by itself and was interrupted: {why} (`everloop pane attach {name}` \
             shows it)"
        );
        let open = Op::OpenTicket { key: self.key(), owner: None, text: text.clone() };
        let opened = Event::TicketOpened { key: self.key(), text };
        ledger.transact(self.now, &[open, Op::Append { owner: None, events: vec![opened] }])?;
        Ok(())
    }
}
