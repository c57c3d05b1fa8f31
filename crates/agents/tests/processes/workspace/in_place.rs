//! Turns in the person's folder itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use everloop_agents::workspace::{CommitMeta, Side, Started, fingerprint};
use everloop_core::action::Integration;
use everloop_core::event::Integrated;
use everloop_core::ids::Fence;

use super::Case;
use super::world::{Done, World, ensure, put, turn, wait};

pub const CASES: &[Case] = &[
    ("in_place_changes_and_no_changes_are_told_apart", || wait(changes())),
    ("in_place_protected_files_are_put_back", || wait(put_back())),
    ("in_place_a_folder_replaced_by_a_link_is_put_back", || wait(link())),
    ("in_place_a_second_collection_tells_the_same", || wait(twice())),
    ("in_place_the_operators_edits_between_turns_stay", || wait(edits_between())),
    ("in_place_work_is_where_it_is", || wait(integrated())),
];

fn folder() -> World {
    let world = World::plain();
    world.write("src.txt", "s\n").write("tests/t.sh", "exit 1\n").write("tests/deep/u.sh", "exit 2\n");
    world
}

async fn changes() -> Done {
    let world = folder();
    let mut workspace = world.open_in_place().await;
    let (base, made) = turn(&world, &mut workspace, (1, None), |_| {}).await?;
    ensure!(base.commit.is_none() && !made.changed);
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| put(dir, "src.txt", "t\n")).await?;
    ensure!(made.changed && made.violations.is_empty() && made.commit.is_none());
    let before = fingerprint(&world.dir)?;
    fs::set_permissions(world.dir.join("src.txt"), fs::Permissions::from_mode(0o755))?;
    ensure!(fingerprint(&world.dir)? != before);
    ensure!(workspace.needs_setup(Side::Turn, "make"));
    workspace.set_up(Side::Turn, "make")?;
    ensure!(!workspace.needs_setup(Side::Verify, "make"), "one folder, one setup");
    Ok(())
}

async fn put_back() -> Done {
    let world = folder();
    fs::set_permissions(world.dir.join("tests/t.sh"), fs::Permissions::from_mode(0o755))?;
    let mut workspace = world.open_in_place().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "tests/t.sh", "exit 0\n");
        fs::remove_dir_all(dir.join("tests/deep")).expect("it is there");
        put(dir, "tests/deep", "a file now");
        put(dir, "tests/new.sh", "exit 0\n");
        put(dir, "src.txt", "work\n");
    })
    .await?;
    ensure!(made.violations == ["tests/deep/u.sh", "tests/t.sh"], "{made:?}");
    ensure!(world.read("tests/t.sh").as_deref() == Some("exit 1\n"));
    ensure!(world.read("tests/deep/u.sh").as_deref() == Some("exit 2\n"));
    ensure!(world.read("tests/new.sh").is_some() && world.read("src.txt").as_deref() == Some("work\n"));
    ensure!(fs::metadata(world.dir.join("tests/t.sh"))?.permissions().mode() & 0o777 == 0o755);
    let late_results = world.root.join("shelf/k3f9-1.1");
    ensure!(fs::read_to_string(late_results.join("tests/t.sh"))? == "exit 0\n");
    ensure!(fs::read_to_string(late_results.join("tests/deep"))? == "a file now");
    Ok(())
}

async fn link() -> Done {
    let world = folder();
    let outside = world.dir.with_file_name("outside");
    put(&outside, "t.sh", "exit 1\n");
    let mut workspace = world.open_in_place().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        fs::remove_dir_all(dir.join("tests")).expect("it is there");
        symlink(&outside, dir.join("tests")).expect("a link is possible");
    })
    .await?;
    ensure!(made.violations.len() == 2, "{made:?}");
    ensure!(fs::symlink_metadata(world.dir.join("tests"))?.is_dir() && !outside.join("deep").exists());
    Ok(())
}

async fn twice() -> Done {
    let world = folder();
    let mut workspace = world.open_in_place().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "tests/t.sh", "exit 0\n")).await?;
    let task = world.task(1);
    let commit_meta = CommitMeta::new(&task, Fence(1), "again");
    ensure!(world.open_in_place().await.collect(&commit_meta, &Started::default()).await? == made);
    Ok(())
}

async fn edits_between() -> Done {
    let world = folder();
    let mut workspace = world.open_in_place().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    world.write("tests/t.sh", "exit 3\n");
    let (_, made) = turn(&world, &mut workspace, (2, None), |_| {}).await?;
    ensure!(!made.changed && world.read("tests/t.sh").as_deref() == Some("exit 3\n"));
    Ok(())
}

async fn integrated() -> Done {
    let world = World::new();
    let mut workspace = world.open_in_place().await;
    turn(&world, &mut workspace, (1, None), |dir| put(dir, "x", "x")).await?;
    ensure!(workspace.integrate(&world.task(1), "", None).await? == Integration::Done(Integrated::InPlace));
    ensure!(workspace.check_out_verify(None).await? == world.dir);
    workspace.cleanup().await?;
    ensure!(world.read("x").is_some());
    Ok(())
}
