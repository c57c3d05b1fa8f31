//! Damage: locks, lost links, lost folders, half a worktree. Everything is repaired, and nothing of
//! the person's is touched.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use everloop_agents::workspace::WorkspaceError;
use libtest_mimic::Failed;

use super::Case;
use super::world::{Done, World, ensure, git_in, land, landed, put, turn, wait};

pub const CASES: &[Case] = &[
    ("a_stale_lock_in_our_worktree_is_removed", || wait(stale_lock())),
    ("a_lock_in_the_operators_worktree_is_reported", || wait(operators_lock())),
    ("a_removed_or_replaced_link_is_repaired", || wait(link())),
    ("a_removed_worktree_is_an_error_then_made_again", || wait(removed_folder())),
    ("a_worktree_that_git_forgot_is_made_again", || wait(forgotten())),
    ("a_half_made_worktree_is_made_again", || wait(half_made())),
    ("a_corrupt_index_is_healed", || wait(corrupt_index())),
    ("hooks_and_configuration_of_the_agent_do_not_run", || wait(hostile_config())),
    ("state_inside_another_repository_never_touches_it", || wait(state_in_a_repository())),
];

/// The git folder of a worktree.
fn admin(dir: &Path) -> Result<std::path::PathBuf, Failed> {
    let text = fs::read_to_string(dir.join(".git"))?;
    Ok(text.trim().strip_prefix("gitdir: ").ok_or("a link")?.into())
}

async fn stale_lock() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "x", "x");
        for name in ["index.lock", "HEAD.lock"] {
            let lock = File::create(admin(dir).expect("a worktree").join(name)).expect("a lock can be made");
            lock.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("it is ours");
        }
    })
    .await?;
    ensure!(made.changed && made.commit.is_some());
    Ok(())
}

async fn operators_lock() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.write(".git/index.lock", "");
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    let (why, _) = super::world::aside(how)?;
    ensure!(why.contains("index.lock") && world.operators_side() == before, "{why}");
    Ok(())
}

async fn link() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        fs::remove_file(dir.join(".git")).expect("it is there");
        put(dir, "x", "x");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| {
        fs::remove_file(dir.join(".git")).expect("it is there");
        git_in(dir, &["init", "-q"]);
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "a repository of its own"]);
        put(dir, "y", "y");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    turn(&world, &mut workspace, (3, None), |dir| {
        assert_eq!(git_in(dir, &["log", "-1", "--format=%s"]), "first");
    })
    .await?;
    Ok(())
}

async fn removed_folder() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let lost = turn(&world, &mut workspace, (1, None), |dir| fs::remove_dir_all(dir).expect("it is there")).await;
    ensure!(lost.is_err_and(|e| e.message().is_some_and(|m| m.contains("is broken"))));
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changed);
    Ok(())
}

async fn forgotten() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    fs::remove_dir_all(world.dir.join(".git/worktrees"))?;
    let task = world.task(1);
    let commit_meta =
        everloop_agents::workspace::CommitMeta { task: &task, fence: everloop_core::ids::Fence(1), subject: "lost" };
    ensure!(matches!(workspace.collect(&commit_meta).await, Err(WorkspaceError::Broken { .. })));
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changed);
    Ok(())
}

async fn half_made() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    // What `git worktree add` leaves when it is killed.
    let admin = admin(&world.root.join("turn"))?;
    fs::write(admin.join("locked"), "initializing")?;
    fs::remove_file(admin.join("HEAD"))?;
    fs::remove_file(admin.join("index"))?;
    fs::remove_file(world.root.join("turn/a.txt"))?;
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (2, None), |dir| assert!(dir.join("a.txt").exists())).await?;
    Ok(())
}

async fn corrupt_index() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    fs::write(admin(&world.root.join("turn"))?.join("index"), "garbage")?;
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    Ok(())
}

async fn hostile_config() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let proof = world.dir.with_file_name("proof");
    let evil = format!("touch {}", proof.display());
    let (commit, how) = land(&world, &mut workspace, 1, |dir| {
        for key in ["core.fsmonitor", "core.editor", "core.pager", "core.sshCommand", "diff.external"] {
            git_in(dir, &["config", key, &evil]);
        }
        git_in(dir, &["config", "diff.x.textconv", &evil]);
        git_in(dir, &["config", "merge.autoStash", "true"]);
        put(dir, ".gitattributes", "* diff=x\n");
        put(dir, "x", "x");
        for hook in ["post-checkout", "pre-commit", "post-merge", "reference-transaction", "post-index-change"] {
            let path = world.dir.join(".git/hooks").join(hook);
            put(&world.dir, &format!(".git/hooks/{hook}"), &format!("#!/bin/sh\n{evil}\n"));
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(path, mode).expect("it was just written");
        }
        // git, run by the agent, did run what the agent configured.
        fs::remove_file(&proof).ok();
    })
    .await?;
    workspace.check_out_verify(Some(&commit)).await?;
    ensure!(landed(&how, &commit) && !proof.exists(), "{how:?}");
    Ok(())
}

async fn state_in_a_repository() -> Done {
    let outer = World::new();
    let mut world = World::new();
    world.root = outer.dir.join("state/k3f9");
    let mut workspace = world.open().await;
    let before = outer.git("rev-parse HEAD");
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        fs::remove_file(dir.join(".git")).expect("it is there");
        put(dir, "x", "x");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    ensure!(outer.git("rev-parse HEAD") == before && outer.git("ls-files").lines().count() == 4);
    Ok(())
}
