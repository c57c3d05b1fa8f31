//! An agent that wants its work to be believed, on a real repository: everything that it plants in
//! its clone, beside it or in the person's repository is without effect or refused. Each defence is
//! taken out once, and then the attempt succeeds.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use everloop_agents::workspace::{CommitMeta, Merged, Started, Workspace, WorkspaceError};
use everloop_core::action::Integration;
use everloop_core::event::Integrated;
use everloop_core::ids::Fence;
use everloop_core::planted::{self, Bug};
use everloop_core::spec::WorkspaceSpec;
use libtest_mimic::Failed;

use super::Case;
use super::world::{Done, World, aside, ensure, git_in, land, landed, put, turn, wait};

pub const CASES: &[Case] = &[
    ("drivers_that_an_agent_configures_do_not_run", || wait(own_drivers())),
    ("drivers_planted_in_everloops_git_folder_do_not_run", || wait(planted_rules())),
    ("drivers_added_to_the_persons_configuration_stop_a_landing", || wait(new_drivers())),
    ("replaced_objects_stand_for_themselves", || wait(replaced())),
    ("a_promisor_remote_is_never_called", || wait(promisor())),
    ("a_moved_start_does_not_unprotect_files", || wait(moved_start())),
    ("a_moved_result_is_refused", || wait(moved_result())),
    ("a_forged_pin_is_not_the_work", || wait(forged_pin())),
    ("a_forged_base_is_refused", || wait(forged_base())),
    ("flags_in_the_agents_index_hide_nothing", || wait(index_flags())),
    ("a_git_folder_that_is_a_link_or_a_file_is_not_followed", || wait(git_link())),
    ("a_turn_folder_that_is_a_link_is_not_followed", || wait(folder_link())),
    ("what_is_planted_where_checks_run_is_gone", || wait(planted_in_verify())),
    ("settings_of_a_submodule_do_not_run", || wait(submodule_settings())),
    ("a_huge_file_is_left_out", || wait(huge_file())),
    ("pipes_and_unreadable_files_are_left_out", || wait(special_files())),
    ("names_in_the_agents_index_stay_inside", || wait(index_names())),
    ("landing_looks_at_the_whole_difference", || wait(whole_difference())),
    ("every_defence_is_needed", || wait(every_defence())),
];

/// A file that an attempt creates when its command runs.
struct Proof(std::path::PathBuf);

impl Proof {
    fn new(world: &World) -> Self {
        Self(world.dir.with_file_name("proof"))
    }

    fn command(&self) -> String {
        format!("sh -c 'touch {}; cat'", self.0.display())
    }

    /// Whether the command ran since the last question.
    fn ran(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}

/// The loop as the ledger knows it.
async fn recorded(world: &World) -> (Workspace, WorkspaceSpec) {
    let spec = world.spec("").await;
    let origin = world.open_as(spec.clone()).await.origin().await.expect("the repository can be read");
    let spec = WorkspaceSpec { origin, ..spec };
    (world.open_as(spec.clone()).await, spec)
}

fn configure_drivers(git: impl Fn(&[&str]), command: &str) {
    for key in ["filter.evil.clean", "filter.evil.smudge", "merge.evil.driver", "diff.evil.textconv"] {
        git(&["config", key, command]);
    }
}

async fn own_drivers() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let proof = Proof::new(&world);
    let (commit, how) = land(&world, &mut workspace, 1, |dir| {
        configure_drivers(|args| drop(git_in(dir, args)), &proof.command());
        git_in(dir, &["config", "core.fsmonitor", &proof.command()]);
        git_in(dir, &["config", "core.hooksPath", "hooks"]);
        for hook in ["post-checkout", "pre-commit", "post-index-change", "reference-transaction"] {
            put(dir, &format!("hooks/{hook}"), &format!("#!/bin/sh\n{}\n", proof.command()));
            fs::set_permissions(dir.join("hooks").join(hook), fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        put(dir, ".gitattributes", "* filter=evil merge=evil diff=evil\n");
        put(dir, ".git/info/attributes", "* filter=evil\n");
        put(dir, "x", "x\n");
        proof.ran();
    })
    .await?;
    workspace.check_out_verify(Some(&commit)).await?;
    world.write("y", "y\n").commit("the person goes on");
    turn(&world, &mut workspace, (2, Some(&commit)), |_| {}).await?;
    ensure!(landed(&how, &commit) && !proof.ran(), "{how:?}");
    Ok(())
}

/// Writes drivers into the files with which everloop's own git runs; returns whether one ran.
async fn plant_rules(world: &World) -> Result<bool, Failed> {
    let (mut workspace, spec) = recorded(world).await;
    let proof = Proof::new(world);
    let plant = || {
        let git = world.root.join("git");
        let config = fs::read_to_string(git.join("config")).unwrap_or_default();
        let command = proof.command().replace('"', "\\\"");
        let evil = format!("{config}[filter \"evil\"]\n\tclean = \"{command}\"\n\tsmudge = \"{command}\"\n");
        fs::write(git.join("config"), evil).expect("the agent is the same user");
        fs::write(git.join("info/attributes"), "* filter=evil\n").expect("the agent is the same user");
    };
    turn(world, &mut workspace, (1, None), |dir| {
        plant();
        put(dir, "x", "x\n");
    })
    .await?;
    workspace.check_out_verify(None).await?;
    plant();
    let mut workspace = world.open_as(spec).await;
    turn(world, &mut workspace, (2, None), |dir| put(dir, "y", "y\n")).await?;
    Ok(proof.ran())
}

async fn planted_rules() -> Done {
    let world = World::new();
    ensure!(!plant_rules(&world).await?);
    let (_, spec) = recorded(&world).await;
    world.git("config filter.new.clean cat");
    fs::remove_dir_all(world.root.join("git"))?;
    let options =
        everloop_agents::workspace::WorkspaceOptions { owner: world.owner.clone(), root: world.root.clone(), spec };
    let opened = Workspace::open(options).await;
    ensure!(matches!(opened, Err(WorkspaceError::RulesChanged { .. })), "{opened:?}");
    Ok(())
}

/// Adds a filter to the person's configuration during a turn; returns whether landing ran it.
async fn add_drivers(world: &World) -> Result<(bool, Integration), Failed> {
    let (mut workspace, _) = recorded(world).await;
    let proof = Proof::new(world);
    let (_, how) = land(world, &mut workspace, 1, |dir| {
        put(dir, ".gitattributes", "* filter=evil\n");
        put(dir, "x", "x\n");
        configure_drivers(|args| drop(git_in(&world.dir, args)), &proof.command());
        proof.ran();
    })
    .await?;
    Ok((proof.ran(), how))
}

async fn new_drivers() -> Done {
    let world = World::new();
    let (ran, how) = add_drivers(&world).await?;
    let (why, _) = aside(how)?;
    ensure!(!ran && why.contains("filter.evil."), "{why}");
    Ok(())
}

async fn replaced() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "a.txt", "evil\n");
        for repo in [dir, &world.dir] {
            let old = git_in(repo, &["rev-parse", "HEAD:tests/t.sh"]);
            let new = git_in(repo, &["hash-object", "-w", "a.txt"]);
            git_in(repo, &["replace", &old, &new]);
        }
    })
    .await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(fs::read_to_string(verify.join("tests/t.sh"))? == "exit 1\n");
    Ok(())
}

async fn promisor() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let proof = Proof::new(&world);
    let missing = "1234567890123456789012345678901234567890";
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        for repo in [dir, world.dir.as_path()] {
            for (key, value) in [
                ("core.repositoryformatversion", "1"),
                ("extensions.partialclone", "evil"),
                ("remote.evil.promisor", "true"),
                ("remote.evil.url", &*format!("ext::{}", proof.command())),
                ("remote.evil.uploadpack", &*proof.command()),
                ("protocol.ext.allow", "always"),
            ] {
                git_in(repo, &["config", key, value]);
            }
        }
        put(dir, "x", "x\n");
        proof.ran();
    })
    .await?;
    ensure!(workspace.check_out_verify(Some(missing)).await.is_err());
    let how = workspace.integrate(&world.task(1), &made.commit.ok_or("a commit")?, None).await?;
    ensure!(!proof.ran(), "{how:?}");
    Ok(())
}

/// Moves the ref of the loop's start to a commit without tests, then changes one.
async fn move_start(world: &World) -> Result<Vec<String>, Failed> {
    let (mut workspace, spec) = recorded(world).await;
    turn(world, &mut workspace, (1, None), |_| {
        let tree = git_in(&world.dir, &["mktree", "--missing"]);
        let empty = git_in(&world.dir, &["commit-tree", "-m", "empty", &tree]);
        world.git(&format!("update-ref refs/everloop/k3f9/start {empty}"));
    })
    .await?;
    let mut workspace = world.open_as(spec).await;
    let (_, made) = turn(world, &mut workspace, (2, None), |dir| put(dir, "tests/t.sh", "exit 0\n")).await?;
    Ok(made.violations)
}

async fn moved_start() -> Done {
    let world = World::new();
    ensure!(move_start(&world).await? == ["tests/t.sh"]);
    Ok(())
}

/// Moves the loop's own target onto a commit of the agent; returns whether the next turn builds on
/// it.
async fn move_result(world: &World) -> Result<bool, Failed> {
    world.git("checkout -q --detach");
    let (mut workspace, _) = recorded(world).await;
    let (_, made) = turn(world, &mut workspace, (1, None), |dir| put(dir, "tests/t.sh", "exit 0\n")).await?;
    ensure!(!made.violations.is_empty());
    world.git(&format!("update-ref refs/everloop/k3f9/result {}", made.commit.ok_or("a commit")?));
    Ok(turn(world, &mut workspace, (2, None), |_| {}).await.is_ok())
}

async fn moved_result() -> Done {
    ensure!(!move_result(&World::new()).await?);
    Ok(())
}

/// Sets the pin of the turn to a commit with another tree; returns whether that became the work.
async fn forge_pin(world: &World) -> Result<bool, Failed> {
    let (mut workspace, _) = recorded(world).await;
    let mut forged = String::new();
    let (_, made) = turn(world, &mut workspace, (1, None), |dir| {
        put(dir, "x", "x\n");
        let tree = git_in(&world.dir, &["mktree", "--missing"]);
        forged = git_in(&world.dir, &["commit-tree", "-m", "forged", &tree]);
        world.git(&format!("update-ref refs/everloop/k3f9/k3f9-1/1 {forged}"));
    })
    .await?;
    Ok(made.commit == Some(forged))
}

async fn forged_pin() -> Done {
    let world = World::new();
    ensure!(!forge_pin(&world).await?);
    ensure!(world.git("log -1 --format=%s refs/everloop/k3f9/k3f9-1/1") == "work of a turn");
    Ok(())
}

async fn forged_base() -> Done {
    let world = World::new();
    let (mut workspace, spec) = recorded(&world).await;
    let task = world.task(1);
    let commit_meta = CommitMeta::new(&task, Fence(1), "s");
    let base = workspace.prepare_turn(&commit_meta.turn(), None).await?.commit.ok_or("a base")?;
    let dir = workspace.turn_dir();
    put(&dir, "tests/t.sh", "exit 0\n");
    world.git("checkout -q --detach");
    let evil = world.write("tests/t.sh", "exit 0\n").commit("as if it had always been so");
    world.git("checkout -q main");
    let note = world.root.join("turn.json");
    fs::write(&note, fs::read_to_string(&note)?.replace(&base, &evil))?;
    let started = Started { base: Some(&base), ..Started::default() };
    let made = workspace.collect(&commit_meta, &started).await?;
    ensure!(made.violations == ["tests/t.sh"], "the ledger knows the base: {made:?}");
    let refused = world.open_as(spec).await.collect(&commit_meta, &Started::default()).await;
    ensure!(matches!(refused, Err(WorkspaceError::Broken { .. })), "{refused:?}");
    Ok(())
}

async fn index_flags() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        git_in(dir, &["update-index", "--assume-unchanged", "a.txt"]);
        git_in(dir, &["update-index", "--skip-worktree", "sub/b.txt", "tests/t.sh"]);
        git_in(dir, &["sparse-checkout", "set", "--no-cone", "/a.txt"]);
        for name in ["a.txt", "sub/b.txt", "tests/t.sh"] {
            put(dir, name, "changed\n");
        }
    })
    .await?;
    // Besides these the agent's sparse checkout has really removed a file.
    ensure!(made.changes.len() == 4 && made.violations == ["tests/t.sh"], "{made:?}");
    let verify = workspace.check_out_verify(None).await?;
    ensure!(verify.join("tests/t.sh").exists() && verify.join("sub/b.txt").exists());
    Ok(())
}

async fn git_link() -> Done {
    let world = World::new();
    let other = World::new();
    let before = other.operators_side();
    let (mut workspace, _) = recorded(&world).await;
    let inner = other.dir.join(".git");
    let plants: [&dyn Fn(&Path); 4] = [
        &|git| symlink(&inner, git).expect("a link is possible"),
        &|git| fs::write(git, format!("gitdir: {}\n", inner.display())).expect("a file is possible"),
        &|git| {
            fs::create_dir(git).expect("a folder is possible");
            for name in ["HEAD", "index", "logs", "objects", "refs", "info", "config"] {
                symlink(inner.join(name), git.join(name)).expect("a link is possible");
            }
        },
        &|git| {
            for folder in ["objects/info", "refs", "info"] {
                fs::create_dir_all(git.join(folder)).expect("a folder is possible");
            }
            for name in ["HEAD", "index", "logs", "config", "rebase-merge", "index.lock"] {
                symlink(inner.join(name), git.join(name)).expect("a link is possible");
            }
        },
    ];
    for (number, plant) in (1..).zip(plants) {
        let (_, made) = turn(&world, &mut workspace, (number, None), |dir| {
            put(dir, "x", "x\n");
            fs::remove_dir_all(dir.join(".git")).expect("it is there");
            plant(&dir.join(".git"));
        })
        .await?;
        ensure!(made.changes.len() == 1, "{made:?}");
        turn(&world, &mut workspace, (number + 10, None), |dir| {
            assert_eq!(git_in(dir, &["log", "-1", "--format=%s"]), "first");
            fs::remove_file(dir.join(".git/config")).ok();
            fs::write(dir.join(".git/config"), "[core]\nbare = false\n").expect("it is the agent's");
        })
        .await?;
    }
    let now = other.operators_side();
    let touched: Vec<_> = now.iter().filter(|file| !before.contains(file)).map(|(path, ..)| path).collect();
    ensure!(touched.is_empty() && now.len() == before.len(), "{touched:?}");
    Ok(())
}

/// Turns the folder of the turn into a link to another repository; returns whether that was
/// touched.
async fn link_folder(world: &World, other: &World) -> Result<bool, Failed> {
    other.write("untracked", "precious\n");
    let before = other.operators_side();
    let (mut workspace, _) = recorded(world).await;
    let folder = world.root.join("turn");
    let result = turn(world, &mut workspace, (1, None), |_| {
        fs::remove_dir_all(&folder).expect("it is there");
        symlink(&other.dir, &folder).expect("a link is possible");
    })
    .await;
    let taken = result.is_ok_and(|(_, made)| made.changed);
    turn(world, &mut workspace, (2, None), |_| {}).await.ok();
    workspace.cleanup().await.ok();
    Ok(taken || other.operators_side() != before)
}

async fn folder_link() -> Done {
    ensure!(!link_folder(&World::new(), &World::new()).await?);
    Ok(())
}

/// Plants files where checks run; returns those that are still there at the next check.
async fn plant_in_verify(world: &World) -> Result<Vec<&'static str>, Failed> {
    let (mut workspace, _) = recorded(world).await;
    let verify = workspace.check_out_verify(None).await?;
    ensure!(!verify.starts_with(workspace.turn_dir().parent().ok_or("a folder")?.join("verify")));
    put(&verify, "cache/evil", "x");
    put(&verify, "tests/conftest.py", "x");
    put(&verify, ".git/hooks/post-checkout", "x");
    symlink("/etc/passwd", verify.join("evil.log"))?;
    // The same size and the same modification time, within the tick of the checkout.
    let file = verify.join("tests/t.sh");
    let modified = fs::metadata(&file)?.modified()?;
    fs::write(&file, "exit 0\n")?;
    fs::File::options().write(true).open(&file)?.set_modified(modified)?;
    fs::remove_file(verify.join("a.txt"))?;
    symlink("/etc/passwd", verify.join("a.txt"))?;
    let verify = workspace.check_out_verify(None).await?;
    ensure!(fs::read_to_string(verify.join("tests/t.sh"))? == "exit 1\n");
    ensure!(fs::symlink_metadata(verify.join("a.txt"))?.is_file());
    let planted = ["cache/evil", "tests/conftest.py", ".git/hooks/post-checkout", "evil.log"];
    Ok(planted.into_iter().filter(|name| fs::symlink_metadata(verify.join(name)).is_ok()).collect())
}

async fn planted_in_verify() -> Done {
    let left = plant_in_verify(&World::new()).await?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

async fn submodule_settings() -> Done {
    let world = World::new();
    let other = World::new();
    git_in(&world.dir, &["submodule", "--quiet", "add", &other.dir.display().to_string(), "lib"]);
    world.commit("with a submodule");
    let (mut workspace, _) = recorded(&world).await;
    let proof = Proof::new(&world);
    let (commit, how) = land(&world, &mut workspace, 1, |dir| {
        git_in(dir, &["submodule", "--quiet", "update", "--init"]);
        let lib = dir.join("lib");
        git_in(&lib, &["config", "core.fsmonitor", &proof.command()]);
        configure_drivers(|args| drop(git_in(&lib, args)), &proof.command());
        put(&lib, ".gitattributes", "* filter=evil\n");
        put(&lib, "a.txt", "changed\n");
        put(dir, "x", "x\n");
        proof.ran();
    })
    .await?;
    workspace.check_out_verify(Some(&commit)).await?;
    turn(&world, &mut workspace, (2, Some(&commit)), |_| {}).await?;
    ensure!(landed(&how, &commit) && !proof.ran(), "{how:?}");
    ensure!(world.git(&format!("ls-tree {commit} lib")) == world.git("ls-tree HEAD~1 lib"));
    Ok(())
}

async fn make_huge_file(world: &World) -> Result<usize, Failed> {
    let (mut workspace, _) = recorded(world).await;
    let (_, made) = turn(world, &mut workspace, (1, None), |dir| {
        put(dir, "x", "x\n");
        let huge = fs::File::create(dir.join("huge")).expect("a file is possible");
        huge.set_len((256 << 20) + 1).expect("it needs no room");
    })
    .await?;
    Ok(made.changes.len())
}

async fn huge_file() -> Done {
    ensure!(make_huge_file(&World::new()).await? == 1);
    Ok(())
}

async fn special_files() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "x", "x\n");
        put(dir, "locked", "secret\n");
        fs::set_permissions(dir.join("locked"), fs::Permissions::from_mode(0o000)).expect("it is ours");
        fs::remove_file(dir.join("a.txt")).expect("it is there");
        for name in ["a.txt", "pipe"] {
            assert!(Command::new("mkfifo").arg(dir.join(name)).status().is_ok_and(|s| s.success()));
        }
    })
    .await?;
    let paths: Vec<_> = made.changes.iter().map(|c| c.path.display().to_string()).collect();
    ensure!(paths.contains(&"a.txt".to_owned()) && paths.contains(&"x".to_owned()), "{paths:?}");
    ensure!(!paths.contains(&"pipe".to_owned()), "{paths:?}");
    Ok(())
}

async fn index_names() -> Done {
    let world = World::new();
    let (mut workspace, _) = recorded(&world).await;
    let secret = world.dir.with_file_name("secret");
    fs::write(&secret, "secret\n")?;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "kept.log", "forced\n");
        git_in(dir, &["add", "-f", "kept.log"]);
        symlink(secret.parent().expect("a folder"), dir.join("out")).expect("a link is possible");
        // Names that git itself would refuse, of the same length.
        for (name, evil) in
            [("aaaaaaaaaaaaaaaa", "../../../secret_"), ("bbbbbbbbbb", "out/secret"), ("ccccccccccc", ".git/config")]
        {
            put(dir, name, "x\n");
            git_in(dir, &["add", name]);
            let index = fs::read(dir.join(".git/index")).expect("it is there");
            let at = index.windows(name.len()).position(|w| w == name.as_bytes()).expect("it was added");
            let mut forged = index.clone();
            forged[at..at + name.len()].copy_from_slice(evil.as_bytes());
            fs::remove_file(dir.join(name)).expect("it is there");
            fs::write(dir.join(".git/index"), &forged).expect("it is the agent's");
            if name != "ccccccccccc" {
                fs::write(dir.join(".git/index"), &index).expect("it is the agent's");
                git_in(dir, &["rm", "-q", "--cached", name]);
            }
        }
    })
    .await?;
    let paths: Vec<_> = made.changes.iter().map(|c| c.path.display().to_string()).collect();
    ensure!(paths == ["kept.log"], "{paths:?}");
    ensure!(made.notes.iter().any(|note| note.contains("`out` was left out: it links out")), "{:?}", made.notes);
    Ok(())
}

/// Lands work whose own turn touched no protected file, on a target that lost one since.
async fn evade_inspection(world: &World) -> Result<bool, Failed> {
    let (mut workspace, _) = recorded(world).await;
    let (_, made) = turn(world, &mut workspace, (1, None), |dir| put(dir, "tests/t.sh", "exit 0\n")).await?;
    let refused = made.commit.ok_or("a commit")?;
    // As if the refused work were the line that the next turn continues.
    let (_, made) = turn(world, &mut workspace, (2, Some(&refused)), |dir| put(dir, "x", "x\n")).await?;
    ensure!(made.violations.is_empty(), "{made:?}");
    let commit = made.commit.ok_or("a commit")?;
    let task = world.task(2);
    let commit_meta = CommitMeta::new(&task, Fence(1), "s");
    let prospect = workspace.prospect(&commit, &commit_meta).await?;
    ensure!(matches!(prospect.merged, Merged::Ready { .. }));
    let how = workspace.integrate(&task, &commit, prospect.target.as_deref()).await?;
    let on = matches!(how, Integration::Done(Integrated::Landed { .. }));
    ensure!(on == prospect.violations.is_empty(), "both look: {prospect:?}");
    Ok(on)
}

async fn whole_difference() -> Done {
    let world = World::new();
    ensure!(!evade_inspection(&world).await?);
    ensure!(world.read("tests/t.sh").as_deref() == Some("exit 1\n"));
    let moved = World::new();
    let mut workspace = moved.open().await;
    let (_, made) = turn(&moved, &mut workspace, (1, None), |dir| put(dir, "x", "x\n")).await?;
    let commit = made.commit.ok_or("a commit")?;
    let how = workspace.integrate(&moved.task(1), &commit, Some("another commit")).await?;
    ensure!(matches!(how, Integration::Moved(_)), "the ledger knows what was inspected: {how:?}");
    Ok(())
}

/// With a defence taken out, an attempt of above succeeds.
async fn every_defence() -> Done {
    for &bug in planted::REPOSITORY {
        planted::plant(Some(bug));
        let world = World::new();
        let found = match bug {
            Bug::BelievesItsFiles => {
                plant_rules(&world).await?
                    && move_start(&World::new()).await?.is_empty()
                    && move_result(&World::new()).await?
                    && forge_pin(&World::new()).await?
            }
            Bug::RunsNewDrivers => add_drivers(&world).await?.0,
            Bug::FollowsLinks => link_folder(&world, &World::new()).await?,
            Bug::LeavesIgnoredFiles => !plant_in_verify(&world).await?.is_empty(),
            Bug::TakesAnySize => make_huge_file(&world).await? == 2,
            Bug::LandsUninspected => evade_inspection(&world).await?,
            other => return Err(format!("{other:?} is not about the repository").into()),
        };
        planted::plant(None);
        ensure!(found, "{bug:?} changes nothing that a test sees");
    }
    Ok(())
}
