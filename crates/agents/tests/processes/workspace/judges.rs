//! What decides a check, on a real repository: changes and additions are found, and the person's
//! version is what checks see. Each defence is taken out once, and then the attempt succeeds.

use std::fs;
use std::path::Path;

use everloop_agents::protect;
use everloop_agents::workspace::{Collected, Workspace};
use everloop_core::planted::{self, Bug};
use everloop_core::spec::{WorkspaceMode, WorkspaceSpec};
use libtest_mimic::Failed;

use super::Case;
use super::world::{Done, World, ensure, put, turn, wait};

pub const CASES: &[Case] = &[
    ("the_persons_version_is_laid_over_the_work", || wait(laid_over())),
    ("an_honest_change_of_a_makefile_stays", || wait(honest())),
    ("a_test_that_the_person_changed_meanwhile_counts", || wait(changed_by_the_person())),
    ("new_judges_in_the_folder_itself_are_moved_aside", || wait(in_place())),
    ("every_judge_is_needed", || wait(every_judge())),
];

const MAKEFILE: &str = "test:\n\tsh tests/t.sh\nclean:\n\trm -f x\n";

fn world() -> World {
    let world = World::new();
    world.write("Makefile", MAKEFILE).commit("a makefile");
    world
}

async fn spec(world: &World) -> WorkspaceSpec {
    let judge = protect::judge_files(["make test"], &world.dir, Path::new(""));
    WorkspaceSpec { judge, ..world.spec("").await }
}

/// A turn that changes a test and a recipe, and adds another makefile.
async fn cheat(world: &World) -> Result<(Workspace, Collected), Failed> {
    let mut workspace = world.open_as(spec(world).await).await;
    let (_, made) = turn(world, &mut workspace, (1, None), |dir| {
        put(dir, "tests/t.sh", "exit 0\n");
        put(dir, "Makefile", "test:\n\ttrue\n");
        put(dir, "GNUmakefile", "test:\n\ttrue\n");
        put(dir, "a.txt", "work\n");
    })
    .await?;
    Ok((workspace, made))
}

async fn laid_over() -> Done {
    let world = world();
    let (mut workspace, made) = cheat(&world).await?;
    ensure!(made.violations == ["GNUmakefile", "Makefile", "tests/t.sh"], "{made:?}");
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("tests/t.sh"))? == "exit 1\n");
    ensure!(fs::read_to_string(verify.join("Makefile"))? == MAKEFILE && !verify.join("GNUmakefile").exists());
    ensure!(fs::read_to_string(verify.join("a.txt"))? == "work\n", "the rest is the work");
    // A test that is gone and one behind a link are there again.
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| {
        fs::remove_dir_all(dir.join("tests")).expect("it is the turn's");
        std::os::unix::fs::symlink("sub", dir.join("tests")).expect("it is the turn's");
    })
    .await?;
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("tests/t.sh"))? == "exit 1\n");
    let (_, made) = turn(&world, &mut workspace, (3, None), |dir| put(dir, "x", "x\n")).await?;
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("a.txt"))? == "one\ntwo\nthree\n", "nothing of before is left");
    Ok(())
}

async fn honest() -> Done {
    let world = world();
    let mut workspace = world.open_as(spec(&world).await).await;
    let more = MAKEFILE.replace("rm -f x", "rm -rf x y");
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "Makefile", &more);
        put(dir, "tests/new.sh", "exit 0\n");
    })
    .await?;
    ensure!(made.violations.is_empty(), "{made:?}");
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("Makefile"))? == more && verify.join("tests/new.sh").exists());
    Ok(())
}

async fn changed_by_the_person() -> Done {
    let world = world();
    let mut workspace = world.open_as(spec(&world).await).await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    world.write("tests/t.sh", "exit 2\n").commit("the person changes a test");
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "x", "x\n")).await?;
    ensure!(made.violations.is_empty(), "{made:?}");
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("tests/t.sh"))? == "exit 2\n");
    Ok(())
}

async fn in_place() -> Done {
    let world = world();
    let spec = WorkspaceSpec { mode: WorkspaceMode::InPlace, ..spec(&world).await };
    let mut workspace = world.open_as(spec).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "GNUmakefile", "test:\n\ttrue\n");
        put(dir, "Makefile", "test:\n\ttrue\n");
        put(dir, "x", "x\n");
    })
    .await?;
    ensure!(made.violations == ["Makefile", "GNUmakefile"], "{made:?}");
    ensure!(world.read("GNUmakefile").is_none() && world.read("Makefile").as_deref() == Some(MAKEFILE));
    let more = MAKEFILE.replace("rm -f x", "rm -rf x y");
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "Makefile", &more)).await?;
    ensure!(made.violations.is_empty() && world.read("Makefile").as_deref() == Some(more.as_str()), "{made:?}");
    Ok(())
}

/// With a defence taken out, the attempt of above succeeds.
async fn every_judge() -> Done {
    for bug in [Bug::JudgeFilesNotLaidOver, Bug::AdditionsNotCounted] {
        planted::plant(Some(bug));
        let world = world();
        let (mut workspace, made) = cheat(&world).await?;
        let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
        let decided = match bug {
            Bug::JudgeFilesNotLaidOver => fs::read_to_string(verify.join("tests/t.sh"))? == "exit 0\n",
            _ => verify.join("GNUmakefile").exists() && !made.violations.contains(&"GNUmakefile".to_owned()),
        };
        planted::plant(None);
        ensure!(decided, "{bug:?} changes nothing that a test sees");
    }
    Ok(())
}
