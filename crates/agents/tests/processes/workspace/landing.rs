//! Work on its way onto the target: moved targets, obstacles, crashes in between.

use std::fs;
use std::path::Path;
use std::process::Command;

use everloop_agents::workspace::{CommitMeta, Merged, Started};
use everloop_core::action::Integration;
use everloop_core::ids::Fence;

use super::Case;
use super::world::{Done, World, aside, ensure, git_in, land, landed, put, turn, wait};

pub const CASES: &[Case] = &[
    ("an_untracked_file_in_the_way_leaves_work_aside", || wait(untracked())),
    ("an_ignored_file_in_the_way_leaves_work_aside", || wait(ignored())),
    ("a_staged_change_leaves_work_aside", || wait(staged())),
    ("a_merge_under_way_leaves_work_aside", || wait(merge_under_way())),
    ("a_rebase_of_the_target_leaves_work_aside", || wait(rebase_under_way())),
    ("a_target_that_is_checked_out_nowhere_is_swapped", || wait(elsewhere())),
    ("a_target_in_another_worktree_is_forwarded_there", || wait(other_worktree())),
    ("a_target_that_was_removed_is_not_made_again", || wait(removed_target())),
    ("a_target_that_moved_is_merged", || wait(moved())),
    ("a_target_that_moved_into_a_conflict_is_told", || wait(conflict())),
    ("landing_twice_leaves_one_trailer", || wait(twice())),
    ("work_that_landed_in_another_shape_is_found_by_its_trailer", || wait(another_shape())),
    ("work_that_others_built_on_counts_as_landed", || wait(built_on())),
    ("work_lands_on_a_first_commit_that_came_meanwhile", || wait(unborn_meanwhile())),
];

async fn untracked() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.write("x.txt", "mine\n").write("harmless", "also untracked");
    let before = world.operators_side();
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x.txt", "theirs\n")).await?;
    let (why, _) = aside(how)?;
    ensure!(why.contains("`x.txt`") && world.operators_side() == before, "{why}");
    fs::remove_file(world.dir.join("x.txt"))?;
    let how = workspace.integrate(&world.task(1), &commit, None).await?;
    ensure!(landed(&how, &commit) && world.read("harmless").is_some(), "{how:?}");
    Ok(())
}

async fn ignored() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.write("precious.log", "mine\n");
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| {
        put(dir, "precious.log", "theirs\n");
        git_in(dir, &["add", "-f", "precious.log"]);
    })
    .await?;
    let (why, _) = aside(how)?;
    ensure!(why.contains("precious.log") && world.operators_side() == before, "{why}");
    Ok(())
}

async fn staged() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.write("other", "o").git("add other");
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| put(dir, "other", "x")).await?;
    aside(how)?;
    ensure!(world.operators_side() == before);
    let (commit, how) = land(&world, &mut workspace, 2, |dir| put(dir, "x", "x")).await?;
    ensure!(landed(&how, &commit) && world.git("status --porcelain") == "A  other", "{how:?}");
    Ok(())
}

async fn merge_under_way() -> Done {
    let world = World::new();
    world.git("checkout -q -b side");
    world.write("s", "s").commit("side");
    world.git("checkout -q main");
    let mut workspace = world.open().await;
    world.git("merge -q --no-ff --no-commit -s ours side");
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    let (why, _) = aside(how)?;
    ensure!(why.contains("a merge is under way") && world.operators_side() == before, "{why}");
    Ok(())
}

async fn rebase_under_way() -> Done {
    let world = World::new();
    world.git("checkout -q -b side");
    world.write("a.txt", "side\n").commit("side");
    world.git("checkout -q main");
    world.write("a.txt", "main\n").commit("main");
    let mut workspace = world.open().await;
    let stopped = Command::new("git").args(["rebase", "-q", "side"]).current_dir(&world.dir).output()?;
    ensure!(!stopped.status.success());
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    let (why, _) = aside(how)?;
    ensure!(why.contains("a rebase of `main`") && world.operators_side() == before, "{why}");
    Ok(())
}

async fn elsewhere() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.git("checkout -q -b other");
    world.write("a.txt", "dirty\n");
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    ensure!(landed(&how, &commit) && world.git("rev-parse main") == commit, "{how:?}");
    ensure!(world.read("x").is_none() && world.read("a.txt").as_deref() == Some("dirty\n"));
    Ok(())
}

async fn other_worktree() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.git("checkout -q -b other");
    let second = world.dir.with_file_name("second tree");
    git_in(&world.dir, &["worktree", "add", "-q", &second.display().to_string(), "main"]);
    put(&second, "a.txt", "dirty\n");
    let change = |dir: &Path| {
        put(dir, "x", "x");
        put(dir, "a.txt", "theirs\n");
    };
    let (commit, how) = land(&world, &mut workspace, 1, change).await?;
    let (_, command) = aside(how)?;
    ensure!(command.contains("second tree'"), "{command}");
    put(&second, "a.txt", "one\ntwo\nthree\n");
    let how = workspace.integrate(&world.task(1), &commit, None).await?;
    ensure!(landed(&how, &commit) && second.join("x").exists(), "{how:?}");
    ensure!(git_in(&second, &["status", "--porcelain"]).is_empty());
    Ok(())
}

async fn removed_target() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.git("checkout -q -b other");
    world.git("branch -q -D main");
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    let (why, command) = aside(how)?;
    ensure!(why.contains("does not exist any more"), "{why}");
    ensure!(Command::new("sh").arg("-c").arg(command).status()?.success() && world.git("rev-parse main") == commit);
    Ok(())
}

async fn moved() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "x", "x")).await?;
    let work = made.commit.ok_or("a commit")?;
    let theirs = world.write("y", "y").commit("the person goes on");
    let task = world.task(1);
    ensure!(matches!(workspace.integrate(&task, &work, None).await?, Integration::Moved(_)));
    let commit_meta = CommitMeta::new(&task, Fence(1), "merged");
    let Merged::Joined { commit } = workspace.merge_for_target(&work, &commit_meta).await? else {
        return Err("a merge".into());
    };
    ensure!(workspace.merge_for_target(&work, &commit_meta).await? == Merged::Joined { commit: commit.clone() });
    let verify = workspace.check_out_verify(Some(&commit)).await?;
    ensure!(verify.join("x").exists() && verify.join("y").exists());
    let (base, _) = turn(&world, &mut workspace, (2, Some(&work)), |dir| {
        assert!(dir.join("x").exists() && dir.join("y").exists());
    })
    .await?;
    ensure!(base.merged && base.dropped.is_none());
    let how = workspace.integrate(&task, &commit, None).await?;
    ensure!(landed(&how, &commit) && world.git("rev-parse main^1") == theirs, "{how:?}");
    ensure!(workspace.merge_for_target(&work, &commit_meta).await? == Merged::Contained);
    Ok(())
}

async fn conflict() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "a.txt", "theirs\n")).await?;
    let work = made.commit.ok_or("a commit")?;
    let target = world.write("a.txt", "mine\n").commit("the person goes on");
    let task = world.task(1);
    let commit_meta = CommitMeta::new(&task, Fence(1), "merged");
    let merged = workspace.merge_for_target(&work, &commit_meta).await?;
    ensure!(merged == Merged::Conflict { paths: vec!["a.txt".to_owned()] }, "{merged:?}");
    let (base, _) = turn(&world, &mut workspace, (2, Some(&work)), |_| {}).await?;
    ensure!(base.commit == Some(target) && base.dropped.is_some_and(|d| d.commit == work && d.paths == ["a.txt"]));
    ensure!(world.git("rev-parse refs/everloop/k3f9/k3f9-1/1") == work, "dropped work is kept");
    Ok(())
}

async fn twice() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    ensure!(landed(&how, &commit));
    let mut back = world.open().await;
    let task = world.task(1);
    let again = back.collect(&CommitMeta::new(&task, Fence(1), "again"), &Started::default()).await?;
    ensure!(again.commit.as_ref() == Some(&commit), "a crash before the record: {again:?}");
    let how = back.integrate(&task, &commit, None).await?;
    ensure!(landed(&how, &commit) && world.trailers("main", &task) == 1);
    Ok(())
}

async fn another_shape() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    world.write("x", "mine\n");
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    aside(how)?;
    fs::remove_file(world.dir.join("x"))?;
    world.write("y", "y").commit("the person goes on");
    world.git(&format!("cherry-pick {commit}"));
    let picked = world.git("rev-parse HEAD");
    world.write("z", "z").commit("and on");
    let how = workspace.integrate(&world.task(1), &commit, None).await?;
    ensure!(landed(&how, &picked) && world.trailers("main", &world.task(1)) == 1, "{how:?}");
    ensure!(matches!(workspace.integrate(&world.task(11), &commit, None).await?, Integration::Moved(_)));
    Ok(())
}

async fn built_on() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    ensure!(landed(&how, &commit));
    let tip = world.write("y", "y").commit("the person goes on");
    let how = workspace.integrate(&world.task(1), &commit, None).await?;
    ensure!(landed(&how, &commit) && world.git("rev-parse main") == tip, "{how:?}");
    let (base, _) = turn(&world, &mut workspace, (2, Some(&commit)), |_| {}).await?;
    ensure!(base.commit == Some(tip) && !base.merged);
    Ok(())
}

async fn unborn_meanwhile() -> Done {
    let world = World::unborn();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "x", "x")).await?;
    let work = made.commit.ok_or("a commit")?;
    world.write("readme", "r").commit("the person's first");
    let task = world.task(1);
    let commit_meta = CommitMeta::new(&task, Fence(1), "merged");
    let Merged::Joined { commit } = workspace.merge_for_target(&work, &commit_meta).await? else {
        return Err("a merge".into());
    };
    let how = workspace.integrate(&task, &commit, None).await?;
    ensure!(landed(&how, &commit) && world.read("x").is_some() && world.read("readme").is_some(), "{how:?}");
    Ok(())
}
