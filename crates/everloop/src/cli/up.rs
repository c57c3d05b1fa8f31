//! `everloop up`: the supervisor for all loops, in the foreground.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use everloop_agents::job::Shim;
use everloop_core::event::{EVENT_VERSION, Event};
use everloop_core::journal::Record;
use everloop_core::state::LoopState;
use everloop_core::time::Time;

use jiff::tz::TimeZone;

use super::Session;
use crate::api::{self, Listen};
use crate::config;
use crate::error::{Code, Failure};
use crate::home::{Home, Owner, Ownership};
use crate::supervisor::{Interrupt, Options, Reach, Supervisor, Until, Watcher};
use crate::ui::{self, figures};

/// Looks after every loop that is not over, until it is told to stop (Ctrl-C, `everloop down`). Loops of an everloop.toml in
/// this folder are added first.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Wait until a running supervisor is gone instead of giving up
    #[arg(long, hide = true)]
    queue: bool,
    /// Where to answer /health and /metrics, on this machine only, or `off` [default: 127.0.0.1:9300]
    #[arg(long, value_name = "ADDR", env = LISTEN, hide_env_values = true)]
    listen: Option<config::Listen>,
}

/// Says where to listen, or that nobody shall.
const LISTEN: &str = "EVERLOOP_LISTEN";

pub fn up(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    let home = session.home()?;
    let ownership = own(&home, session, args.queue)?;
    let mut ledger = session.writer(&home)?;
    super::run::add_configured(session, &mut ledger)?;
    let listen = match args.listen.or(super::config::load(session)?.listen()?) {
        None => Listen::At(api::DEFAULT),
        Some(config::Listen(Some(address))) => Listen::At(address),
        Some(config::Listen(None)) => Listen::Off,
    };
    let options = Options { home, reach: Reach::All, until: Until::Told, shim: own_shim()?, listen };
    session.ui.talk(&format!(
        "supervising (state in {}); stop with Ctrl-C or `everloop down`",
        options.home.root().display()
    ));
    let supervisor = Supervisor::new(options, ledger, ownership);
    if let Some(address) = supervisor.address() {
        session.ui.talk(&format!("health and metrics on http://{address}"));
    }
    let ended = block_on(supervisor.run(&mut Lines { ui: &session.ui }))??;
    session.ui.talk("stopped; loops go on with `everloop up`");
    Ok(match ended {
        Some(Interrupt::Int) => Code::Interrupted,
        Some(Interrupt::Term) => Code::Terminated,
        None => Code::Ok,
    })
}

/// A `run` answers only agents that have something to send, and those not if nobody shall listen.
pub fn listen_on_demand(session: &Session) -> Result<Listen, Failure> {
    let off = match std::env::var(LISTEN) {
        Ok(text) => text == "off",
        Err(_) => super::config::load(session)?.listen()? == Some(config::Listen(None)),
    };
    Ok(if off { Listen::Off } else { Listen::OnDemand })
}

fn own(home: &Home, session: &Session, queue: bool) -> Result<Ownership, Failure> {
    loop {
        match home.own("up", session.now())? {
            Ok(ownership) => return Ok(ownership),
            Err(_) if queue => std::thread::sleep(Duration::from_millis(200)),
            Err(owner) => return Err(taken(home, owner.as_ref())),
        }
    }
}

/// Somebody else supervises this folder.
pub fn taken(home: &Home, owner: Option<&Owner>) -> Failure {
    let who = owner.map_or_else(
        || "another process".to_owned(),
        |o| format!("`everloop {}` (process {}, since {})", o.role, o.process.pid, figures::here(o.since)),
    );
    Failure::failed(format!("{who} already supervises `{}`", home.root().display()))
        .hint("`everloop status` shows what it does; `everloop down` stops it; --state-dir names another folder")
}

/// This binary, with which jobs are run.
pub fn own_shim() -> Result<Shim, Failure> {
    Shim::current().map_err(|e| Failure::failed("cannot find this program's own file").because(&e))
}

/// Starts a supervisor that outlives this process and this terminal.
pub fn start_in_background(home: &Home) -> Result<(), Failure> {
    let cannot = |e: &std::io::Error| Failure::failed("cannot start the supervisor in the background").because(e);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(home.log()).map_err(|e| cannot(&e))?;
    let exe = std::env::current_exe().map_err(|e| cannot(&e))?;
    let mut command = std::process::Command::new(exe);
    command.arg("--state-dir").arg(home.root()).args(["up", "--queue"]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    command.spawn().map_err(|e| cannot(&e))?;
    Ok(())
}

/// Runs the supervisor on this thread.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| Failure::failed("cannot start the runtime").because(&e))?.block_on(future))
}

/// One line per event.
struct Lines<'a> {
    ui: &'a ui::Ui,
}

impl Watcher for Lines<'_> {
    fn committed(&mut self, state: &LoopState, events: &[Event], at: Time) {
        let zone = TimeZone::system();
        for event in events {
            let owner = Some(state.id.clone());
            let record = Record { seq: 0, at, owner, version: EVENT_VERSION, event: event.clone() };
            self.ui.talk(&ui::event_line(&record, &zone));
        }
    }
    fn beat(&mut self, _: &LoopState, _: Option<Duration>, _: Time) {}
    fn beats(&self) -> Option<Duration> {
        None
    }
}
