//! Damage: locks, lost links, lost folders, half a worktree. Everything is repaired, and nothing of
//! the person's is touched.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use everloop_agents::workspace::{CommitMeta, Started};
use everloop_core::ids::Fence;

use super::Case;
use super::world::{Done, World, ensure, git_in, land, landed, put, turn, wait};

pub const CASES: &[Case] = &[
    ("a_stale_lock_of_ours_or_of_the_agent_is_removed", || wait(stale_lock())),
    ("a_lock_in_the_operators_worktree_is_reported", || wait(operators_lock())),
    ("a_removed_or_replaced_link_is_repaired", || wait(link())),
    ("a_removed_worktree_is_an_error_then_made_again", || wait(removed_folder())),
    ("the_folder_of_everloops_git_is_made_again", || wait(forgotten())),
    ("a_half_made_checkout_is_made_again", || wait(half_made())),
    ("a_corrupt_index_is_healed", || wait(corrupt_index())),
    ("hooks_and_configuration_of_the_agent_do_not_run", || wait(hostile_config())),
    ("state_inside_another_repository_never_touches_it", || wait(state_in_a_repository())),
];

async fn stale_lock() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "x", "x");
        for lock in [dir.join(".git/index.lock"), dir.join(".git/HEAD.lock"), world.root.join("git/turn.index.lock")] {
            let lock = File::create(lock).expect("a lock can be made");
            lock.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("it is ours");
        }
    })
    .await?;
    ensure!(made.changed && made.commit.is_some());
    turn(&world, &mut workspace, (2, None), |dir| {
        put(dir, "y", "y");
        git_in(dir, &["add", "-A"]);
    })
    .await?;
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
        fs::remove_dir_all(dir.join(".git")).expect("it is there");
        put(dir, "x", "x");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| {
        fs::remove_dir_all(dir.join(".git")).expect("it is there");
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
    fs::remove_dir_all(world.root.join("git"))?;
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changed);
    fs::remove_dir_all(world.root.join("git"))?;
    let task = world.task(2);
    let commit_meta = CommitMeta::new(&task, Fence(1), "found again");
    let again = world.open().await.collect(&commit_meta, &Started::default()).await?;
    ensure!(again.commit == made.commit && again.changes.len() == 1, "{again:?}");
    Ok(())
}

async fn half_made() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    // What is left when everloop is killed while it writes files.
    fs::remove_file(world.root.join("git/turn.index"))?;
    fs::write(world.root.join("git/turn.index.lock"), "half")?;
    File::options().write(true).open(world.root.join("git/turn.index.lock"))?.set_modified(SystemTime::UNIX_EPOCH)?;
    fs::remove_file(world.root.join("turn/a.txt"))?;
    fs::remove_dir_all(world.root.join("turn/.git/refs"))?;
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (2, None), |dir| {
        assert!(dir.join("a.txt").exists());
        assert_eq!(git_in(dir, &["status", "--porcelain"]), "");
    })
    .await?;
    Ok(())
}

async fn corrupt_index() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    workspace.check_out_verify(None).await?;
    for index in ["git/turn.index", "git/verify.index", "turn/.git/index"] {
        fs::write(world.root.join(index), "garbage")?;
    }
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    ensure!(workspace.check_out_verify(None).await?.join("a.txt").exists());
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
        fs::remove_dir_all(dir.join(".git")).expect("it is there");
        put(dir, "x", "x");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    ensure!(outer.git("rev-parse HEAD") == before && outer.git("ls-files").lines().count() == 4);
    Ok(())
}
