//! `everloop run --mesh`: hands the loop to the mesh, and watches it.

use std::time::Duration;

use everloop_agents::git::Git;
use everloop_agents::workspace::{self, ProjectFolder, address_of, remote_branch};
use everloop_core::ids::LoopId;
use everloop_core::mesh::keys::{read_loop, sealed};
use everloop_core::mesh::{End, KIND, MeshLoop, MeshSpec};
use everloop_core::spec::{GuardSpec, LoopSpec, WorkspaceMode};
use everloop_engine::error::{Code, Failure};
use everloop_engine::node_keys::{FormerKey, NodeKeys};
use everloop_engine::services::create;
use everloop_store::{Ledger, Postgres};
use jiff::tz::TimeZone;
use serde_json::json;

use super::RunArgs;
use crate::cli::{VerbSession, up};
use crate::config::ResolvedLoop;
use crate::ui;

/// Between two reads of a watched loop.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Journal lines read at once.
const PAGE: usize = 200;
/// Tasks for one check before a ticket is opened for a person.
const MAX_TASK_ATTEMPTS: u32 = 5;
/// Turns that a node takes for one task, without `--max-turns`.
const TASK_TURNS: u32 = 5;

pub fn run(args: &RunArgs, wanted: &ResolvedLoop, session: &VerbSession) -> Result<Code, Failure> {
    let (membership, mut hub) = session.hub()?;
    let id = draw(&hub)?;
    let spec = up::block_on(plan(args, wanted, &id, session))??;
    let keys = NodeKeys::open(&session.home()?, &membership.node)?;
    keys.announce(&mut hub, FormerKey::Keep)?;
    let mut state = MeshLoop::new(id.clone(), wanted.name.clone(), spec, membership.hub_now()?);
    state.sign(&keys);
    let made = format!("made: {}", state.spec.wanted.goal);
    hub.transact(session.now(), &sealed(state.save(0, &[made]), &keys))?;
    session.home()?.wake();
    session.ui.talk(&format!(
        "starting loop {id} ({}) in the mesh: {}",
        state.name,
        ui::text::clean(&state.spec.wanted.goal)
    ));
    session
        .ui
        .talk(&format!("  work travels through {}; finished work moves {}", state.spec.remote, state.spec.branch));
    let key = keys.public().fingerprint();
    session.ui.talk(&format!("  signed by key {key} of `{}`, which the nodes have to trust", membership.node));
    for warning in &wanted.warnings {
        session.ui.warn(warning);
    }
    if args.detach {
        let told = json!({ "loop": id, "name": state.name, "detached": true, "mesh": membership.hub });
        session.ui.said(&format!("{id} runs in the mesh; `everloop mesh show {id}` shows it"), &told)?;
        return Ok(Code::Ok);
    }
    watch(&hub, &id, &keys, session)
}

/// Collects what nodes need from the folder and the remote.
async fn plan(args: &RunArgs, wanted: &ResolvedLoop, id: &LoopId, session: &VerbSession) -> Result<MeshSpec, Failure> {
    let dir = &wanted.workspace.dir;
    let cannot =
        |e: workspace::WorkspaceError| Failure::failed(format!("cannot share `{}`", dir.display())).because(&e);
    let ProjectFolder::Git(repository) = workspace::discover(dir).await.map_err(cannot)? else {
        return Err(Failure::usage(format!("`{}` is not in a git repository", dir.display()))
            .hint("work of a mesh travels through a git remote"));
    };
    let spec = look(wanted, id, session).await?;
    let WorkspaceMode::Git { target } = &spec.workspace.mode else {
        return Err(Failure::usage("a loop of the mesh cannot work in place").hint("leave --in-place out"));
    };
    if !target.starts_with("refs/heads/") {
        return Err(Failure::usage("no branch is checked out here").hint("check out the branch that receives the work"));
    }
    if !wanted.watch.is_empty() {
        return Err(Failure::usage("a loop of the mesh has no monitors: every node would see the same")
            .hint("give them to a loop outside the mesh"));
    }
    let name = args.remote.as_deref().unwrap_or("origin");
    let remote = address_of(dir, name).await.map_err(cannot)?;
    let branch = target.clone();
    let short = branch.trim_start_matches("refs/heads/").to_owned();
    let there = remote_branch(dir, &remote, &branch).await.map_err(cannot)?;
    let here = repository.head.commit();
    match there {
        None => {
            return Err(Failure::usage(format!("the remote `{name}` has no branch `{short}`"))
                .hint(format!("git push {name} {short}")));
        }
        Some(there) if Some(there.as_str()) != here => {
            session.ui.warn(&format!("`{short}` here and on `{name}` differ; nodes start from what is on `{name}`"));
        }
        Some(_) => {}
    }
    let below = repository.below.to_string_lossy().into_owned();
    let task_turns = spec.bounds.max_turns.unwrap_or(TASK_TURNS);
    let spec = with_caps(spec, args.width);
    Ok(MeshSpec { wanted: spec, remote, branch, below, width: args.width, attempts: MAX_TASK_ATTEMPTS, task_turns })
}

/// The default caps are those of one worker, and a loop of the mesh has many; configured caps count
/// for all of them.
fn with_caps(mut spec: LoopSpec, width: u32) -> LoopSpec {
    let caps = &mut spec.guard.caps;
    if *caps == GuardSpec::default().caps {
        for cap in [&mut caps.per_minute, &mut caps.per_hour, &mut caps.per_day] {
            *cap = cap.map(|cap| cap.saturating_mul(width));
        }
    }
    spec
}

/// The loop as it would be here; what was needed to find out is removed.
async fn look(wanted: &ResolvedLoop, id: &LoopId, session: &VerbSession) -> Result<LoopSpec, Failure> {
    let home = session.home()?;
    let plan = LoopId::new(format!("{id}-plan"));
    let create::CompletedSpec { spec, warnings } = create::complete(&home, &wanted.new_loop(), &plan).await?;
    for line in &warnings {
        session.ui.warn(line);
    }
    let options =
        workspace::WorkspaceOptions { owner: plan.clone(), root: home.work(&plan), spec: spec.workspace.clone() };
    let cannot = |e: workspace::WorkspaceError| Failure::failed("cannot clean up").because(&e);
    workspace::Workspace::open(options).await.map_err(cannot)?.cleanup().await.map_err(cannot)?;
    let git = Git::operators(&wanted.workspace.dir);
    // Only a name is left, and a second loop draws another one.
    git.run(&["update-ref", "-d", &format!("refs/everloop/{plan}/start")]).await.ok();
    std::fs::remove_dir_all(home.work(&plan)).ok();
    Ok(spec)
}

/// Draws a short id that no loop of the mesh has yet.
fn draw(hub: &Postgres) -> Result<LoopId, Failure> {
    loop {
        let id = create::draw();
        if hub.doc(KIND, id.as_str())?.is_none() {
            return Ok(id);
        }
    }
}

/// Prints the loop's events until it is over, by the word of a trusted key. The end of the watch
/// does not stop the loop.
fn watch(hub: &Postgres, id: &LoopId, keys: &NodeKeys, session: &VerbSession) -> Result<Code, Failure> {
    let zone = TimeZone::system();
    let mut seen = 0;
    loop {
        let Some(doc) = hub.doc(KIND, id.as_str())? else {
            return Err(Failure::failed(format!("loop `{id}` is gone from the hub")));
        };
        for record in hub.journal(seen, Some(id), PAGE)? {
            seen = record.seq;
            session.ui.talk(&ui::event_line(&record, &zone));
        }
        let state =
            MeshLoop::read(&doc.body).map_err(|why| Failure::failed(format!("cannot read loop `{id}`: {why}")))?;
        if let Some(end) = &state.ended {
            // What the hub says without a trusted key proves nothing.
            read_loop(id, &doc.body, keys).map_err(|fault| {
                Failure::failed(format!("the hub says of loop {id} that {end}, but {fault}"))
                    .hint(format!("look at the branch and at `everloop mesh show {id}`"))
            })?;
            session.ui.said(&format!("{id}: {end}"), &json!({ "loop": state }))?;
            return Ok(match end {
                End::Reached => Code::Ok,
                End::Stopped | End::GivenUp { .. } | End::Exhausted { .. } => Code::NotReached,
            });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_testkit::sample;

    #[test]
    fn usual_caps_count_for_each_worker() {
        let mut spec = sample::state().spec;
        spec.guard = GuardSpec::default();
        let usual = spec.guard.caps.per_day.expect("there is a usual cap");
        assert_eq!(with_caps(spec.clone(), 3).guard.caps.per_day, Some(3 * usual));
        spec.guard.caps.per_day = Some(7);
        assert_eq!(with_caps(spec, 3).guard.caps.per_day, Some(7), "a configured one counts for all");
    }
}
