//! `run --mesh`: hands a loop to the mesh, and reads it until it is over.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::git::Git;
use everloop_agents::workspace::{self, ProjectFolder, address_of, remote_branch};
use everloop_core::ids::LoopId;
use everloop_core::journal::JournalRecord;
use everloop_core::mesh::keys::{read_loop, sealed};
use everloop_core::mesh::{End, KIND, MeshLoop, MeshSpec};
use everloop_core::spec::{GuardSpec, LoopSpec, WorkspaceMode};
use everloop_store::{Ledger, Postgres};

use crate::error::Failure;
use crate::membership::Membership;
use crate::node_keys::{FormerKey, NodeKeys};
use crate::services::ServiceContext;
use crate::services::create::{self, CompletedSpec, NewLoop};
use crate::services::runtime::block_on;

/// Between two reads of a watched loop.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Journal lines read at once.
const PAGE: usize = 200;
/// Tasks for one check before a ticket is opened for a person.
const MAX_TASK_ATTEMPTS: u32 = 5;
/// Turns that a node takes for one task, without a limit of turns.
const TASK_TURNS: u32 = 5;

/// A loop for the nodes of the mesh.
#[derive(Clone, Debug)]
pub struct MeshRunRequest {
    pub new: NewLoop,
    /// The git remote through which work travels; `None`: origin.
    pub remote: Option<String>,
    /// Failing checks that are worked on at once.
    pub width: u32,
}

/// A loop that the mesh has.
#[derive(Debug)]
pub struct MeshRun {
    pub state: MeshLoop,
    pub membership: Membership,
    hub: Postgres,
    keys: NodeKeys,
}

/// Hands a loop to the mesh. `warn` gets each sentence about what nodes will not see as soon as it
/// is known: also those before a refusal.
pub fn start(
    context: &ServiceContext,
    request: &MeshRunRequest,
    warn: &mut dyn FnMut(&str),
) -> Result<MeshRun, Failure> {
    if request.new.spec.research.as_ref().is_some_and(|research| !research.metric.pareto.is_empty()) {
        return Err(Failure::usage("a research run of the mesh has no frontier: values of different machines differ")
            .hint("leave `pareto` out, or leave --mesh out"));
    }
    let (membership, mut hub) = context.hub()?;
    let id = draw(&hub)?;
    let spec = block_on(plan(context, request, &id, warn))??;
    let keys = NodeKeys::open(&context.home()?, &membership.node)?;
    keys.announce(&mut hub, FormerKey::Keep)?;
    let mut state = MeshLoop::new(id, request.new.name.clone(), spec, membership.hub_now()?);
    state.sign(&keys);
    let made = format!("made: {}", state.spec.wanted.goal);
    hub.transact(context.now(), &sealed(state.save(0, &[made]), &keys))?;
    context.home()?.wake();
    Ok(MeshRun { state, membership, hub, keys })
}

/// Collects what nodes need from the folder and the remote.
async fn plan(
    context: &ServiceContext,
    request: &MeshRunRequest,
    id: &LoopId,
    warn: &mut dyn FnMut(&str),
) -> Result<MeshSpec, Failure> {
    let dir = &PathBuf::from(&request.new.spec.workspace.dir);
    let cannot =
        |e: workspace::WorkspaceError| Failure::failed(format!("cannot share `{}`", dir.display())).because(&e);
    let ProjectFolder::Git(repository) = workspace::discover(dir).await.map_err(cannot)? else {
        return Err(Failure::usage(format!("`{}` is not in a git repository", dir.display()))
            .hint("work of a mesh travels through a git remote"));
    };
    let spec = look(context, &request.new, id, warn).await?;
    let WorkspaceMode::Git { target } = &spec.workspace.mode else {
        return Err(Failure::usage("a loop of the mesh cannot work in place").hint("leave --in-place out"));
    };
    if !target.starts_with("refs/heads/") {
        return Err(Failure::usage("no branch is checked out here").hint("check out the branch that receives the work"));
    }
    if !request.new.spec.watch.is_empty() {
        return Err(Failure::usage("a loop of the mesh has no monitors: every node would see the same")
            .hint("give them to a loop outside the mesh"));
    }
    let name = request.remote.as_deref().unwrap_or("origin");
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
            warn(&format!("`{short}` here and on `{name}` differ; nodes start from what is on `{name}`"));
        }
        Some(_) => {}
    }
    let below = repository.below.to_string_lossy().into_owned();
    // The bound of a research run counts experiments.
    let turns = spec.bounds.max_turns.filter(|_| spec.research.is_none());
    let task_turns = turns.unwrap_or(TASK_TURNS);
    let width = request.width;
    let spec = with_caps(spec, width);
    Ok(MeshSpec { wanted: spec, remote, branch, below, width, attempts: MAX_TASK_ATTEMPTS, task_turns })
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
async fn look(
    context: &ServiceContext,
    wanted: &NewLoop,
    id: &LoopId,
    warn: &mut dyn FnMut(&str),
) -> Result<LoopSpec, Failure> {
    let home = context.home()?;
    let plan = LoopId::new(format!("{id}-plan"));
    let CompletedSpec { spec, warnings } = create::complete(&home, wanted, &plan).await?;
    for line in &warnings {
        warn(line);
    }
    let options =
        workspace::WorkspaceOptions { owner: plan.clone(), root: home.work(&plan), spec: spec.workspace.clone() };
    let cannot = |e: workspace::WorkspaceError| Failure::failed("cannot clean up").because(&e);
    workspace::Workspace::open(options).await.map_err(cannot)?.cleanup().await.map_err(cannot)?;
    let git = Git::operators(wanted.spec.workspace.dir.as_ref());
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

impl MeshRun {
    /// The fingerprint of the key that signed the loop.
    pub fn key(&self) -> String {
        self.keys.public().fingerprint()
    }

    /// Hands out the loop's records until it is over, by the word of a trusted key. The end of the
    /// watch does not stop the loop.
    pub fn watch(&self, mut seen: impl FnMut(&JournalRecord)) -> Result<(MeshLoop, End), Failure> {
        let (hub, id) = (&self.hub, &self.state.id);
        let mut last = 0;
        loop {
            let Some(doc) = hub.doc(KIND, id.as_str())? else {
                return Err(Failure::failed(format!("loop `{id}` is gone from the hub")));
            };
            for record in hub.journal(last, Some(id), PAGE)? {
                last = record.seq;
                seen(&record);
            }
            let state =
                MeshLoop::read(&doc.body).map_err(|why| Failure::failed(format!("cannot read loop `{id}`: {why}")))?;
            if let Some(end) = state.ended.clone() {
                // What the hub says without a trusted key proves nothing.
                read_loop(id, &doc.body, &self.keys).map_err(|fault| {
                    Failure::failed(format!("the hub says of loop {id} that {end}, but {fault}"))
                        .hint(format!("look at the branch and at `everloop mesh show {id}`"))
                })?;
                return Ok((state, end));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
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
