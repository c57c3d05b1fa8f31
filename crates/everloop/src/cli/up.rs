//! `everloop up`: the supervisor for all loops, in the foreground.

use std::sync::Arc;
use std::time::Duration;

use everloop_agents::otlp::OtlpReceiver;
use everloop_core::event::{EVENT_VERSION, Event};
use everloop_core::journal::JournalRecord;
use everloop_core::raise::RunLimits;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::port::{self, Listen};
use everloop_engine::services::loops::{self, Unfinished};
use everloop_engine::services::preflight::{self, Logins};
use everloop_engine::services::up::{self as service, WhenTaken};
use everloop_engine::supervisor::{Interrupt, LoopSelection, Supervisor, SupervisorOptions, Until, Watcher};
use everloop_engine::unit::Manager;

use serde_json::json;

use super::VerbSession;
use super::choices;
use crate::config::{self, FileProjects};
use crate::http::{Gateway, Http};
use crate::ui::{self, quantities};
pub use everloop_engine::services::runtime::{block_on, own_shim};
pub use everloop_engine::services::up::start_in_background;

/// Supervises every loop that is not over, until it is stopped (Ctrl-C, `everloop down`). Loops of
/// a trusted everloop.toml in this folder are added first.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// Wait until a running supervisor is gone instead of giving up
    #[arg(long, hide = true)]
    queue: bool,
    /// Address for the dashboard, /health and /metrics, on this machine only, or `off` [default: 127.0.0.1:9300]
    #[arg(long, value_name = "ADDR", env = LISTEN, hide_env_values = true)]
    listen: Option<config::ListenAddress>,
    /// Install it as a service of the user that starts with the session and again after a failure
    /// (systemd, on macOS launchd)
    #[arg(long)]
    install: bool,
    /// Print every event, also the steps of a turn and the bookkeeping of quarantine
    #[arg(short, long)]
    verbose: bool,
    /// Only print the unit [default: of this system]
    #[arg(long, value_name = "systemd|launchd", num_args = 0..=1, default_missing_value = Manager::HERE, value_parser = choices::manager())]
    print_unit: Option<Manager>,
}

/// The address to listen on, or `off`.
const LISTEN: &str = "EVERLOOP_LISTEN";

pub fn up(args: &UpArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    if let Some(manager) = args.print_unit {
        let text = service::unit(&home)?.text(manager);
        session.ui.said(text.trim_end(), &json!({ "unit": text }))?;
        return Ok(Code::Ok);
    }
    if args.install {
        return install(session);
    }
    let when_taken = if args.queue { WhenTaken::Wait } else { WhenTaken::Fail };
    let ownership = service::own(session, &home, when_taken)?;
    let mut ledger = session.writer(&home)?;
    // One bad file is no reason to leave all other loops alone.
    if let Err(failure) = super::run::add_configured(session, &mut ledger) {
        session.ui.failure(&failure);
        session.ui.warn("nothing of this folder's everloop.toml is used; all other loops go on");
    }
    let going_on = loops::unfinished(&ledger, None)?.going_on;
    // `run --detach` looked for agents and logins itself, and its person may know better.
    let logins = if args.queue { Logins::Assumed } else { Logins::Needed };
    for line in preflight::hold_unready(session, &mut ledger, &going_on, logins)? {
        session.ui.warn(&ui::text::clean(&line));
    }
    name_unfinished(session, &loops::unfinished(&ledger, None)?);
    let configured = super::config::load_in_force(session).and_then(|config| Ok(config.listen()?)).unwrap_or_default();
    let listen = match args.listen.or(configured) {
        None => Listen::At(port::DEFAULT),
        Some(config::ListenAddress(Some(address))) => Listen::At(address),
        Some(config::ListenAddress(None)) => Listen::Off,
    };
    let gateway = gateway(session);
    let (reach, port) = (LoopSelection::All, Some(Box::new(Http { gateway }) as _));
    let options = SupervisorOptions {
        home,
        reach,
        until: Until::Told,
        shim: own_shim()?,
        listen,
        port,
        projects: Arc::new(FileProjects),
        // A file that cannot be read was reported above, and sends nothing.
        collector: collector(session).unwrap_or_default(),
    };
    session.ui.talk(&format!(
        "supervising (state in {}); stop with Ctrl-C or `everloop down`",
        options.home.root().display()
    ));
    let supervisor = Supervisor::new(options, ledger, ownership);
    if let Some(address) = supervisor.address() {
        session.ui.talk(&format!("health and metrics on http://{address}; the dashboard: everloop ui"));
        if gateway == Gateway::Open {
            session.ui.warn("the gateway is open: programs of this machine send signals to personas without the token");
        }
    }
    let ended = block_on(
        supervisor.run(&mut Lines { ui: &session.ui, lines: ui::EventLines::new(ui::LogDetail::of(args.verbose)) }),
    )??;
    session.ui.talk("stopped; loops go on with `everloop up`");
    Ok(match ended {
        Some(Interrupt::Int) => Code::Interrupted,
        Some(Interrupt::Term) => Code::Terminated,
        None => Code::Ok,
    })
}

/// Whether signals over the port need the token; a file that cannot be read opens nothing.
fn gateway(session: &VerbSession) -> Gateway {
    let open = super::config::load_in_force(session).and_then(|config| Ok(config.gateway_is_open()?));
    if open.unwrap_or_default() { Gateway::Open } else { Gateway::Token }
}

/// The collector of telemetry that the configuration names.
pub fn collector(session: &VerbSession) -> Result<Option<OtlpReceiver>, Failure> {
    Ok(super::config::load_in_force(session)?.collector(&session.dir)?)
}

/// Names the loops that a supervisor of all loops goes on with, before any of them starts a turn,
/// and those that it leaves alone.
pub fn name_unfinished(session: &VerbSession, unfinished: &Unfinished) {
    let ui = &session.ui;
    let line = |state: &LoopState| {
        let most = quantities::ceiling(state, &RunLimits::of(state), session.now());
        ui::text::clean(&format!(
            "  {} ({}) in {}, agent {}, at most {most}",
            state.id, state.name, state.spec.workspace.dir, state.spec.agent.name
        ))
    };
    let Unfinished { going_on, left } = unfinished;
    if !going_on.is_empty() {
        ui.talk(&format!("goes on with {}:", ui::text::count(going_on.len() as u64, "unfinished loop")));
        for state in going_on {
            ui.talk(&line(state));
        }
        ui.talk("  `everloop stop ID` ends one, `everloop pause ID` holds it");
    }
    if !left.is_empty() {
        let many = ui::text::count(left.len() as u64, "loop");
        ui.talk(&format!("leaves {many} of terminals that are gone alone; `everloop resume ID` lets one go on:"));
        for state in left {
            ui.talk(&line(state));
        }
    }
}

/// Installs the unit. Where no manager answers, the commands are printed.
fn install(session: &VerbSession) -> Result<Code, Failure> {
    let unit = service::install(session)?;
    let path = unit.path.display().to_string();
    let mut lines = vec![format!("the unit is `{path}`")];
    if unit.to_do.is_empty() {
        lines.push("it runs; `everloop status` shows the loops, `everloop down --uninstall` removes it".to_owned());
    } else {
        lines.push(format!("no service manager answers here; start it with: {}", unit.to_do.join(" && ")));
    }
    if unit.manager == Manager::Systemd {
        lines.push("to keep it while you are logged out: loginctl enable-linger".to_owned());
    }
    session.ui.answer(&lines, &json!({ "unit": path, "done": unit.done, "to_do": unit.to_do }))?;
    Ok(Code::Ok)
}

/// A `run` opens the port only for agents that send telemetry, and not at all if it is switched
/// off.
pub fn listen_on_demand(session: &VerbSession) -> Result<Listen, Failure> {
    let off = match std::env::var(LISTEN) {
        Ok(text) => text == "off",
        Err(_) => super::config::load_in_force(session)?.listen()? == Some(config::ListenAddress(None)),
    };
    Ok(if off { Listen::Off } else { Listen::OnDemand })
}

/// Prints what happens.
struct Lines<'a> {
    ui: &'a ui::Ui,
    lines: ui::EventLines,
}

impl Watcher for Lines<'_> {
    fn committed(&mut self, state: &LoopState, events: &[Event], at: Time) {
        for event in events {
            let owner = Some(state.id.clone());
            let record = JournalRecord { seq: 0, at, owner, version: EVENT_VERSION, event: event.clone() };
            self.lines.of(&record).iter().for_each(|line| self.ui.talk(line));
        }
    }
    fn beat(&mut self, _: &LoopState, _: Option<Duration>, _: Time) {}
    fn beats(&self) -> Option<Duration> {
        None
    }
}
