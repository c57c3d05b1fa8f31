//! The places of a loop, and what opening and a turn without changes cost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use everloop_agents::protect;
use everloop_agents::workspace::{
    CommitMeta, HeadState, ProjectFolder, Side, Started, Workspace, WorkspaceError, WorkspaceOptions, discover,
};
use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::spec::{WorkspaceMode, WorkspaceSpec};
use libtest_mimic::Failed;

use super::Case;
use super::world::{Done, World, ensure, git_in, land, landed, put, turn, wait};

pub const CASES: &[Case] = &[
    ("a_folder_without_git_is_used_in_place", || wait(no_git())),
    ("a_bare_repository_and_a_git_folder_are_refused", || wait(bare())),
    ("a_repository_with_one_commit_takes_work", || wait(one_commit())),
    ("a_repository_without_commits_takes_work", || wait(no_commit())),
    ("an_unborn_branch_keeps_ignored_files", || wait(unborn_ignored())),
    ("a_detached_head_gets_a_line_of_its_own", || wait(detached())),
    ("a_subfolder_stays_the_folder_in_which_commands_run", || wait(subfolder())),
    ("include_dirty_starts_from_the_uncommitted_state", || wait(include_dirty())),
    ("pins_and_globs_see_only_what_is_committed", || wait(checks_own_files())),
    ("setup_is_asked_for_once_per_worktree_and_command", || wait(setup())),
    ("cleanup_removes_worktrees_and_keeps_refs", || wait(cleanup())),
    ("opening_and_working_leave_the_operators_side_alone", || wait(untouched())),
    ("work_lands_beside_changes_that_it_does_not_touch", || wait(changes_beside())),
    ("the_work_line_is_set_whatever_became_of_its_ref", || wait(work_line())),
    ("a_turn_starts_few_git_processes_and_none_if_it_changes_nothing", calls_of_git),
];

async fn no_git() -> Done {
    let world = World::plain();
    ensure!(discover(&world.dir).await? == ProjectFolder::Folder(world.dir.clone()));
    ensure!(world.spec("").await.mode == WorkspaceMode::InPlace);
    Ok(())
}

async fn bare() -> Done {
    let world = World::plain();
    world.git("init -q --bare x.git");
    ensure!(matches!(discover(&world.dir.join("x.git")).await, Err(WorkspaceError::Bare { .. })));
    let world = World::new();
    ensure!(matches!(discover(&world.dir.join(".git")).await, Err(WorkspaceError::InsideGitFolder { .. })));
    fs::write(world.dir.join("sub/.git"), "gitdir: /nowhere\n")?;
    ensure!(matches!(discover(&world.dir.join("sub")).await, Err(WorkspaceError::Git(_))));
    Ok(())
}

async fn one_commit() -> Done {
    let world = World::new();
    let first = world.git("rev-parse HEAD");
    let mut workspace = world.open().await;
    let (base, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "new.txt", "new\n")).await?;
    ensure!(base.commit.as_ref() == Some(&first) && made.changed);
    ensure!(made.diffstat == "1 file, 1 insertion, 0 deletions", "{}", made.diffstat);
    let commit = made.commit.ok_or("a commit")?;
    ensure!(made.pin.as_deref() == Some("refs/everloop/k3f9/k3f9-1/1"));
    ensure!(world.git("rev-parse refs/everloop/k3f9/k3f9-1/1") == commit);
    let verify = workspace.check_out_verify(Some(&commit)).await?;
    ensure!(fs::read_to_string(verify.join("new.txt"))? == "new\n");
    let how = workspace.integrate(&world.task(1), &commit, None).await?;
    ensure!(landed(&how, &commit), "{how:?}");
    ensure!(world.read("new.txt").as_deref() == Some("new\n") && world.git("status --porcelain").is_empty());
    ensure!(world.git("log -1 --format=%an,%ae,%cn") == "everloop,everloop@localhost,everloop");
    ensure!(world.git("for-each-ref --format=%(refname) refs/heads") == "refs/heads/main");
    Ok(())
}

async fn no_commit() -> Done {
    let world = World::unborn();
    let ProjectFolder::Git(place) = discover(&world.dir).await? else { return Err("a repository".into()) };
    ensure!(place.head == HeadState::Branch { name: "refs/heads/main".to_owned(), commit: None });
    let mut workspace = world.open().await;
    let empty = workspace.check_out_verify(None).await?;
    ensure!(fs::read_dir(empty)?.count() == 1, "only .git");
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "a/first.txt", "1\n")).await?;
    let first = made.commit.ok_or("a commit")?;
    ensure!(world.git(&format!("rev-list --count {first}")) == "1", "the first commit has no parent");
    let (_, made) = turn(&world, &mut workspace, (2, Some(&first)), |dir| put(dir, "second.txt", "2\n")).await?;
    let commit = made.commit.ok_or("a commit")?;
    let how = workspace.integrate(&world.task(2), &commit, None).await?;
    ensure!(landed(&how, &commit), "{how:?}");
    ensure!(world.git("rev-parse refs/heads/main") == commit && world.git("status --porcelain").is_empty());
    ensure!(world.read("a/first.txt").as_deref() == Some("1\n"));
    Ok(())
}

async fn unborn_ignored() -> Done {
    let world = World::unborn();
    world.write(".git/info/exclude", "secret.txt\n").write("secret.txt", "mine\n");
    let mut workspace = world.open().await;
    let before = world.operators_side();
    let (_, how) = land(&world, &mut workspace, 1, |dir| {
        put(dir, "x.txt", "x\n");
        put(dir, "secret.txt", "theirs\n");
        git_in(dir, &["add", "-f", "secret.txt"]);
    })
    .await?;
    let (why, _) = super::world::aside(how)?;
    ensure!(why.contains("secret.txt"), "{why}");
    ensure!(world.operators_side() == before);
    Ok(())
}

async fn detached() -> Done {
    let world = World::new();
    let head = world.git("rev-parse HEAD");
    world.git("checkout -q --detach");
    let spec = world.spec("").await;
    ensure!(spec.mode == WorkspaceMode::Git { target: "refs/everloop/k3f9/result".to_owned() });
    let mut workspace = world.open_as(spec).await;
    let before = world.operators_side();
    let (commit, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    ensure!(landed(&how, &commit), "{how:?}");
    ensure!(world.git("rev-parse refs/everloop/k3f9/result") == commit && world.git("rev-parse HEAD") == head);
    ensure!(world.operators_side() == before);
    Ok(())
}

async fn subfolder() -> Done {
    let world = World::new();
    fs::create_dir(world.dir.join("unknown"))?;
    let mut workspace = world.open_as(world.spec("sub").await).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "c.txt", "c\n")).await?;
    ensure!(made.changes[0].path == Path::new("sub/c.txt"), "{made:?}");
    ensure!(workspace.check_out_verify(made.commit.as_deref()).await?.ends_with("verify/sub"));
    let world = World::new();
    fs::create_dir(world.dir.join("unknown"))?;
    let mut workspace = world.open_as(world.spec("unknown").await).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "c.txt", "c\n")).await?;
    ensure!(made.changes[0].path == Path::new("unknown/c.txt"), "{made:?}");
    Ok(())
}

async fn include_dirty() -> Done {
    let world = World::new();
    world.write("a.txt", "changed\n").write("untracked.txt", "u\n").write("big.log", "ignored\n");
    world.write("staged.txt", "s\n").git("add staged.txt");
    world.git("init -q inner");
    let before = world.operators_side();
    let spec = WorkspaceSpec { include_dirty: true, ..world.spec("").await };
    let mut workspace = world.open_as(spec.clone()).await;
    let (base, made) = turn(&world, &mut workspace, (1, None), |dir| {
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!(read("a.txt").as_deref(), Some("changed\n"));
        assert_eq!(read("untracked.txt").as_deref(), Some("u\n"));
        assert_eq!(read("staged.txt").as_deref(), Some("s\n"));
        assert_eq!(read("big.log"), None);
        put(dir, "made.txt", "m\n");
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    let how = workspace.integrate(&world.task(1), &made.commit.ok_or("a commit")?, None).await?;
    super::world::aside(how)?;
    ensure!(world.operators_side() == before);
    let mut again = world.open_as(spec).await;
    let (second, _) = turn(&world, &mut again, (2, None), |_| {}).await?;
    ensure!(second == base, "the state is taken once");
    Ok(())
}

async fn checks_own_files() -> Done {
    let world = World::new();
    world.write("sub/check.sh", "exit 1\n").commit("with a check");
    world.write("sub/check.sh", "exit 2\n").write("sub/build.sh", "not committed");
    let spec = world.spec("sub").await;
    let runs = ["sh check.sh", "./build.sh"];
    let cwd = world.open_as(spec.clone()).await.check_out_verify(None).await?;
    let root = cwd.parent().ok_or("the root of the checkout")?;
    let globs = protect::files_of_checks(runs, root, Path::new("sub"));
    ensure!(globs == ["sub/check.sh"], "{globs:?}");
    let pins = [protect::pin(runs[0], &cwd)?, protect::pin(runs[1], &cwd)?];
    let mut workspace = world.open_as(WorkspaceSpec { protect: globs, ..spec }).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "check.sh", "exit 0\n");
        put(dir, "build.sh", "made by the agent");
    })
    .await?;
    ensure!(made.violations == ["sub/check.sh"], "{made:?}");
    let cwd = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(protect::pin_holds(&pins[0], runs[0], &cwd).is_ok(), "the person's version is laid over the work");
    put(&cwd, "check.sh", "exit 0\n");
    ensure!(protect::pin_holds(&pins[0], runs[0], &cwd).is_err());
    ensure!(protect::pin_holds(&pins[1], runs[1], &cwd).is_ok());
    Ok(())
}

async fn setup() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    turn(&world, &mut workspace, (1, None), |_| {}).await?;
    ensure!(workspace.needs_setup(Side::Turn, "npm ci"));
    workspace.set_up(Side::Turn, "npm ci")?;
    ensure!(!workspace.needs_setup(Side::Turn, "npm ci") && workspace.needs_setup(Side::Turn, "npm i"));
    ensure!(workspace.needs_setup(Side::Verify, "npm ci"));
    fs::remove_dir_all(world.root.join("turn"))?;
    turn(&world, &mut workspace, (2, None), |_| {}).await?;
    ensure!(workspace.needs_setup(Side::Turn, "npm ci"), "a worktree made again needs it again");
    Ok(())
}

async fn cleanup() -> Done {
    let world = World::new();
    git_in(&world.dir, &["worktree", "add", "-q", "../other", "-b", "other"]);
    let before = world.git("worktree list");
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "x", "x")).await?;
    workspace.check_out_verify(None).await?;
    workspace.set_work(&made.commit.clone().ok_or("a commit")?).await?;
    workspace.cleanup().await?;
    workspace.cleanup().await?;
    ensure!(world.git("worktree list") == before);
    let left: Vec<_> = fs::read_dir(&world.root)?.flatten().filter(|entry| entry.path().is_dir()).collect();
    ensure!(left.is_empty(), "{left:?}");
    ensure!(Some(world.git("rev-parse refs/everloop/k3f9/work")) == made.commit);
    Ok(())
}

async fn untouched() -> Done {
    let world = World::new();
    world.write("a.txt", "stashed\n").git("stash -q");
    world.write("a.txt", "dirty\n").write("staged", "s").git("add staged");
    let before = world.operators_side();
    let mut workspace = world.open().await;
    workspace.check_out_verify(None).await?;
    let change = |dir: &Path| {
        put(dir, "x", "x");
        put(dir, "a.txt", "other\n");
    };
    let (_, how) = land(&world, &mut workspace, 1, change).await?;
    let (why, command) = super::world::aside(how)?;
    ensure!(why.contains("uncommitted changes in `a.txt`"), "{why}");
    ensure!(command.ends_with("merge --ff-only refs/everloop/k3f9/work"), "{command}");
    workspace.cleanup().await?;
    ensure!(world.operators_side() == before);
    world.git("stash -q");
    let done = Command::new("sh").arg("-c").arg(&command).output()?;
    ensure!(done.status.success() && world.read("x").as_deref() == Some("x"), "the printed command works");
    Ok(())
}

async fn changes_beside() -> Done {
    let world = World::new();
    world.write("a.txt", "dirty\n").write("staged", "s").git("add staged");
    let mut workspace = world.open().await;
    let (_, how) = land(&world, &mut workspace, 1, |dir| put(dir, "x", "x")).await?;
    ensure!(super::world::aside(how).is_err(), "the work touches none of the changed files");
    ensure!(world.read("x").as_deref() == Some("x") && world.read("a.txt").as_deref() == Some("dirty\n"));
    ensure!(world.git("status --porcelain") == "M a.txt\nA  staged", "{}", world.git("status --porcelain"));
    Ok(())
}

async fn work_line() -> Done {
    let world = World::new();
    let first = world.git("rev-parse HEAD");
    let second = world.write("a.txt", "two\n").commit("second");
    let workspace = world.open().await;
    for action in [
        "status",
        "update-ref -d refs/everloop/k3f9/work",
        "pack-refs --all",
        "update-ref refs/everloop/k3f9/work HEAD",
    ] {
        for commit in [&first, &second, &first] {
            workspace.set_work(commit).await?;
            world.git(action);
            workspace.set_work(commit).await?;
            ensure!(world.git("rev-parse refs/everloop/k3f9/work") == **commit, "{action}");
        }
    }
    Ok(())
}

/// Consecutive turns for which git was not started.
const QUIET_TURNS: u32 = 5;

/// git processes of a turn that changes files, from its preparation to the next one's.
const CHANGING_CALLS: usize = 8;

/// Run by this binary for [`calls_of_git`]: turns without changes, until several in a row start no
/// git; then turns that change a file, each of which starts few.
pub async fn take_counted_turns(repo: &Path, root: &Path) -> Result<(), Failed> {
    let owner = LoopId::new("k3f9");
    let spec = WorkspaceSpec {
        dir: repo.display().to_string(),
        mode: discover(repo).await?.mode(&owner),
        integrate: everloop_core::spec::Integrate::Progress,
        setup: None,
        include_dirty: false,
        protect: Vec::new(),
        judge: everloop_core::judge_files::JudgeFiles::default(),
        cache: Vec::new(),
        author: everloop_core::spec::CommitAuthor::Everloop,
        origin: None,
    };
    let mut workspace = Workspace::open(WorkspaceOptions { owner: owner.clone(), root: root.to_owned(), spec }).await?;
    let start = workspace.first_base().await?.ok_or("a repository has a commit")?;
    let count = root.join("count");
    let calls = || fs::read_to_string(&count).map_or(0, |text| text.lines().count());
    let (mut quiet, end) = (0, Instant::now() + Duration::from_secs(60));
    for number in 1.. {
        let before = calls();
        let task = TaskId::of_loop(&owner, number);
        let commit_meta = CommitMeta::new(&task, Fence(1), "nothing");
        workspace.set_work(&start).await?;
        workspace.prepare_turn(&commit_meta.turn(), Some(&start)).await?;
        ensure!(!workspace.collect(&commit_meta, &Started::default()).await?.changed);
        workspace.check_out_verify(Some(&start)).await?;
        // Recent files may still change undetected, so git runs for a while.
        quiet = if calls() == before { quiet + 1 } else { 0 };
        if quiet == QUIET_TURNS {
            break;
        }
        ensure!(Instant::now() < end, "git runs every time");
    }
    let mut work = start;
    for number in 1001..=1004 {
        let before = calls();
        let task = TaskId::of_loop(&owner, number);
        let commit_meta = CommitMeta::new(&task, Fence(1), "something");
        let base = workspace.prepare_turn(&commit_meta.turn(), Some(&work)).await?.commit;
        put(&workspace.turn_dir(), "new.txt", &format!("{number}\n"));
        let started = Started { base: base.as_deref(), work: Some(&work), examined_from: None };
        let made = workspace.collect(&commit_meta, &started).await?;
        ensure!(made.changes.len() == 1 && made.diffstat.starts_with("1 file, 1 insertion"), "{made:?}");
        work = made.commit.ok_or("a commit")?;
        let prospect = workspace.prospect(&work, &commit_meta).await?;
        ensure!(prospect.violations.is_empty());
        let verify = workspace.check_out_verify(Some(&work)).await?;
        ensure!(fs::read_to_string(verify.join("new.txt"))? == format!("{number}\n"));
        workspace.set_work(&work).await?;
        let made = calls() - before;
        // The first one has to learn what later ones know.
        ensure!(number == 1001 || made <= CHANGING_CALLS, "{made} git processes");
    }
    Ok(())
}

fn calls_of_git() -> Done {
    let world = World::new();
    let bin = world.dir.with_file_name("bin");
    let count = world.root.join("count");
    put(&bin, "git", &format!("#!/bin/sh\necho x >>'{}'\nPATH=${{PATH#*:}} exec git \"$@\"\n", count.display()));
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755))?;
    fs::create_dir_all(&world.root)?;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
    let mut inner = Command::new(std::env::current_exe()?);
    let status = inner.arg("__turns").arg(&world.dir).arg(&world.root).env("PATH", path).status()?;
    ensure!(status.success() && count.exists(), "{status}");
    Ok(())
}
