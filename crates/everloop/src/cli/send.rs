//! Leaves a command for a loop and makes sure that somebody takes it: the running supervisor, or we ourselves.

use std::collections::BTreeSet;

use everloop_core::action::Command;
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::Ledger;

use super::Session;
use crate::api::Listen;
use crate::error::Failure;
use crate::supervisor::{Options, Reach, Supervisor, Until, Watcher};

/// Whether a supervisor was there to take the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A running supervisor was woken.
    Supervisor,
    /// Nobody was there; it took effect in the stored state.
    Ourselves,
}

/// Sends a command to the loop that `word` means.
pub fn send(session: &Session, word: Option<&str>, command: &Command) -> Result<(LoopState, Taker), Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (row, _) = session.find_loop(&ledger, word)?;
    let body = serde_json::to_string(command).expect("a command is plain data and always has a JSON form");
    let signal = Op::Signal { to: row.id.to_string(), by: person(), body };
    ledger.transact(session.now(), &[signal])?;
    let taker = match home.own("command", session.now())? {
        Err(_) => {
            home.knock();
            Taker::Supervisor
        }
        Ok(ownership) => {
            let reach = Reach::Only(BTreeSet::from([row.id.clone()]));
            let options =
                Options { home, reach, until: Until::Idle, shim: super::up::own_shim()?, listen: Listen::Off };
            let supervisor = Supervisor::new(options, ledger, ownership);
            super::up::block_on(supervisor.run(&mut Silent))??;
            Taker::Ourselves
        }
    };
    let home = session.home()?;
    let ledger = session.writer(&home)?;
    let (_, state) = session.find_loop(&ledger, Some(row.id.as_str()))?;
    Ok((state, taker))
}

/// Who types.
pub fn person() -> String {
    std::env::var("USER").ok().filter(|u| !u.is_empty()).unwrap_or_else(|| "a person".to_owned())
}

/// Tells the user what became of a command.
pub fn tell(session: &Session, id: &LoopId, what: &str, taker: Taker) -> Result<(), Failure> {
    let text = match taker {
        Taker::Supervisor => format!("loop {id}: {what}"),
        Taker::Ourselves => format!("loop {id}: {what} (no supervisor is running; `everloop up` starts one)"),
    };
    let told = serde_json::json!({ "loop": id, "done": what, "supervisor": taker == Taker::Supervisor });
    session.ui.said(&text, &told)
}

/// Watches nothing.
pub struct Silent;

impl Watcher for Silent {
    fn committed(&mut self, _: &LoopState, _: &[Event], _: Time) {}
    fn beat(&mut self, _: &LoopState, _: Option<std::time::Duration>, _: Time) {}
    fn beats(&self) -> Option<std::time::Duration> {
        None
    }
}
