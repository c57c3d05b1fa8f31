//! `everloop run --mesh`: hands the loop to the mesh, and watches it.

use everloop_core::mesh::End;
use everloop_core::research::summary::summary;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::run::mesh::{self as service, MeshRun, MeshRunRequest};
use jiff::tz::TimeZone;
use serde_json::json;

use super::RunArgs;
use crate::cli::VerbSession;
use crate::config::ResolvedLoop;
use crate::ui;

pub fn run(args: &RunArgs, wanted: &ResolvedLoop, session: &VerbSession) -> Result<Code, Failure> {
    let request = MeshRunRequest { new: wanted.new_loop(), remote: args.mesh.remote.clone(), width: args.mesh.width };
    let started = service::start(session, &request, &mut |line| session.ui.warn(line))?;
    let (state, membership) = (&started.state, &started.membership);
    let id = &state.id;
    session.ui.talk(&format!(
        "starting loop {id} ({}) in the mesh: {}",
        state.name,
        ui::text::clean(&state.spec.wanted.goal)
    ));
    let end = match &state.spec.wanted.research {
        Some(_) => format!("the champion moves onto your branch by `everloop research apply {id}`"),
        None => format!("finished work moves {}", state.spec.branch),
    };
    session.ui.talk(&format!("  work travels through {}; {end}", state.spec.remote));
    let key = started.key();
    session.ui.talk(&format!("  signed by key {key} of `{}`, which the nodes have to trust", membership.node));
    for warning in &wanted.warnings {
        session.ui.warn(warning);
    }
    if args.switches.detach {
        let told = json!({ "loop": id, "name": state.name, "detached": true, "mesh": membership.hub });
        session.ui.said(&format!("{id} runs in the mesh; `everloop mesh show {id}` shows it"), &told)?;
        return Ok(Code::Ok);
    }
    watch(&started, session)
}

/// Prints the loop's events until it is over.
fn watch(started: &MeshRun, session: &VerbSession) -> Result<Code, Failure> {
    let zone = TimeZone::system();
    let (state, end) = started.watch(|record| session.ui.talk(&ui::event_line(record, &zone)))?;
    let summary = state.experiments().map_or_else(String::new, |(spec, found)| {
        let text = summary(spec, found, state.spec.wanted.bounds.max_turns);
        text.lines().flat_map(|line| ["\n".to_owned(), ui::text::clean(line)]).collect()
    });
    session.ui.said(&format!("{}: {end}{summary}", state.id), &json!({ "loop": state }))?;
    Ok(match end {
        End::Reached | End::Met { .. } => Code::Ok,
        End::Failed { .. } => Code::Failed,
        End::Stopped | End::GivenUp { .. } | End::Exhausted { .. } => Code::NotReached,
    })
}
