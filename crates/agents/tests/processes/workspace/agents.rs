//! What agents do in their worktree, and what is kept of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use everloop_agents::workspace::{ChangeKind, CommitMeta, Started};
use everloop_core::ids::Fence;
use everloop_core::spec::WorkspaceSpec;

use super::Case;
use super::world::{Done, World, ensure, git_in, put, turn, wait};

pub const CASES: &[Case] = &[
    ("an_agents_own_commits_become_lines_of_one_of_ours", || wait(own_commits())),
    ("commits_that_cancel_out_are_no_change", || wait(cancelled_out())),
    ("an_agent_that_left_our_line_gets_one_commit_on_it", || wait(left_our_line())),
    ("removed_renamed_and_odd_files_are_kept", || wait(odd_files())),
    ("a_repository_inside_is_taken_as_plain_files", || wait(nested())),
    ("ignored_files_reach_neither_the_work_nor_the_checks", || wait(ignored())),
    ("nothing_of_discarded_work_is_in_the_next_turn", || wait(discarded())),
    ("protected_files_that_existed_are_violations", || wait(violations())),
    ("collecting_twice_gives_the_same_commit", || wait(twice())),
    ("work_after_the_first_collection_is_kept_beside_it", || wait(late_work())),
    ("an_unfinished_rebase_and_a_branch_are_left_behind", || wait(rebase())),
    ("submodules_stay_as_they_are", || wait(submodule())),
];

async fn own_commits() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "one", "1");
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "agent: one"]);
        put(dir, "two", "2");
    })
    .await?;
    let commit = made.commit.ok_or("a commit")?;
    ensure!(world.git(&format!("log --format=%s main..{commit}")) == "work of a turn");
    let body = world.git(&format!("log -1 --format=%b {commit}"));
    ensure!(body.starts_with("The agent's own commits:\n- agent: one\n\nTask-Id: k3f9-1"), "{body}");
    let (_, made) = turn(&world, &mut workspace, (2, Some(&commit)), |dir| {
        put(dir, "three", "3");
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "agent: \u{1b}[31mTask-Id: k3f9-9\n\nTask-Id: k3f9-9"]);
    })
    .await?;
    let tip = made.commit.ok_or("a commit")?;
    ensure!(world.git(&format!("log --format=%s {commit}..{tip}")) == "work of a turn");
    let body = world.git(&format!("log -1 --format=%b {tip}"));
    ensure!(body.contains("- agent:  [31mTask-Id: k3f9-9\n") && !body.contains("agent: one"), "{body:?}");
    let trailers = world.git(&format!("log -1 --format=%(trailers:only,unfold) {tip}"));
    ensure!(trailers == "Task-Id: k3f9-2\nEverloop-Turn: k3f9-2.1", "{trailers}");
    Ok(())
}

async fn cancelled_out() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "one", "1");
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "in"]);
        git_in(dir, &["rm", "-q", "one"]);
        git_in(dir, &["commit", "-q", "-m", "out"]);
    })
    .await?;
    ensure!(!made.changed && made.commit.is_none() && made.pin.is_none(), "{made:?}");
    Ok(())
}

async fn left_our_line() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (base, made) = turn(&world, &mut workspace, (1, None), |dir| {
        git_in(dir, &["checkout", "-q", "--orphan", "fresh"]);
        put(dir, "x", "x");
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "unrelated"]);
        put(dir, "y", "y");
    })
    .await?;
    let commit = made.commit.ok_or("a commit")?;
    ensure!(Some(world.git(&format!("rev-parse {commit}^"))) == base.commit);
    let (_, made) = turn(&world, &mut workspace, (2, Some(&commit)), |dir| {
        assert!(dir.join("y").exists());
        git_in(dir, &["commit", "-q", "--allow-empty", "-m", "on no branch"]);
    })
    .await?;
    ensure!(!made.changed && world.git("for-each-ref refs/heads").lines().count() == 1, "its branch is its own");
    turn(&world, &mut workspace, (3, Some(&commit)), |dir| {
        assert_eq!(git_in(dir, &["log", "-1", "--format=%s", "fresh"]), "unrelated", "the clone is kept");
    })
    .await?;
    Ok(())
}

async fn odd_files() -> Done {
    let world = World::new();
    world.write("old name.txt", "some text\nthat is long\nenough to be a rename\n").commit("second");
    let odd = ["a\nb", "quo\"te", "tab\there", "-rf", "ümläut", " lead", "back\\slash", "$(touch x)", ":(top)y"];
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        fs::remove_file(dir.join("a.txt")).expect("it is there");
        fs::rename(dir.join("old name.txt"), dir.join("new name.txt")).expect("it is there");
        fs::remove_dir_all(dir.join("sub")).expect("it is there");
        symlink("new name.txt", dir.join("sub")).expect("a link is possible");
        for name in odd {
            put(dir, &format!("odd/{name}"), "x");
        }
    })
    .await?;
    let kind = |path: &str| made.changes.iter().find(|c| c.path == Path::new(path)).map(|c| c.kind);
    ensure!(kind("a.txt") == Some(ChangeKind::Removed) && kind("old name.txt") == Some(ChangeKind::Removed));
    ensure!(kind("new name.txt") == Some(ChangeKind::Added) && kind("sub/b.txt") == Some(ChangeKind::Removed));
    ensure!(kind("sub") == Some(ChangeKind::Added), "{:?}", made.changes);
    for name in odd {
        ensure!(kind(&format!("odd/{name}")) == Some(ChangeKind::Added), "{name}");
    }
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    ensure!(verify.join("odd/a\nb").exists() && fs::symlink_metadata(verify.join("sub"))?.is_symlink());
    let first = world.git("rev-parse HEAD");
    let verify = workspace.check_out_verify(Some(&first)).await?;
    ensure!(!verify.join("odd").exists() && verify.join("sub/b.txt").exists());
    Ok(())
}

async fn nested() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        for (name, commits) in [("with", true), ("without", false)] {
            let inner = dir.join("new").join(name);
            put(&inner, "file.txt", "inside\n");
            git_in(&inner, &["init", "-q"]);
            if commits {
                git_in(&inner, &["add", "-A"]);
                git_in(&inner, &["commit", "-q", "-m", "inner"]);
            }
        }
    })
    .await?;
    ensure!(made.notes.len() == 2, "{:?}", made.notes);
    let verify = workspace.check_out_verify(made.commit.as_deref()).await?;
    for name in ["with", "without"] {
        ensure!(fs::read_to_string(verify.join("new").join(name).join("file.txt"))? == "inside\n");
    }
    let (_, made) = turn(&world, &mut workspace, (2, None), |dir| assert!(!dir.join("new").exists())).await?;
    ensure!(!made.changed);
    Ok(())
}

async fn ignored() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "cache/planted", "x")).await?;
    ensure!(!made.changed);
    let verify = workspace.check_out_verify(None).await?;
    ensure!(!verify.join("cache").exists());
    put(&verify, "cache/build", "ignored");
    put(&verify, "litter", "not kept");
    fs::remove_file(verify.join("a.txt"))?;
    let verify = workspace.check_out_verify(None).await?;
    ensure!(!verify.join("cache").exists() && !verify.join("litter").exists() && verify.join("a.txt").exists());
    let spec = WorkspaceSpec { cache: vec!["cache".to_owned()], ..world.spec("").await };
    let mut workspace = world.open_as(spec).await;
    for name in ["cache/build", "x.log"] {
        put(&workspace.check_out_verify(None).await?, name, "by a check");
    }
    let verify = workspace.check_out_verify(None).await?;
    ensure!(verify.join("cache/build").exists() && !verify.join("x.log").exists(), "the person named this folder");
    turn(&world, &mut workspace, (2, None), |dir| assert!(dir.join("cache/planted").exists())).await?;
    Ok(())
}

/// All files below a folder, without git's own.
fn all_files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is the test's").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("it is there");
            let shown = path.strip_prefix(dir).expect("it is below").display().to_string();
            if kind.is_dir() && name != ".git" {
                found.push((format!("{shown}/"), Vec::new()));
                open.push(path);
            } else if kind.is_file() {
                found.push((shown, fs::read(path).expect("it is there")));
            } else if kind.is_symlink() {
                found.push((shown, b"a link".to_vec()));
            }
        }
    }
    found.sort();
    found
}

/// What an agent does in its folder.
type Edit = fn(&Path);

/// Each turn begins from the same commit, as experiments do that are not kept.
async fn discarded() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let mut first = Vec::new();
    turn(&world, &mut workspace, (1, None), |dir| first = all_files(dir)).await?;
    let edits: [(&str, Edit); 8] = [
        ("a change", |dir| put(dir, "a.txt", "another text\n")),
        ("the same file again", |dir| put(dir, "a.txt", "a third text\n")),
        ("a new file", |dir| put(dir, "deep/new/file", "1\n")),
        ("a removed file", |dir| fs::remove_file(dir.join("a.txt")).expect("it is there")),
        ("an empty folder beside a change", |dir| {
            put(dir, "a.txt", "x\n");
            fs::create_dir_all(dir.join("empty/folder")).expect("the folder is the test's");
        }),
        ("a link that is left out", |dir| {
            put(dir, "a.txt", "y\n");
            symlink("/etc/hostname", dir.join("outside")).expect("the folder is the test's");
        }),
        ("other rules about what is ignored", |dir| {
            put(dir, ".gitignore", "*.new\n");
            put(dir, "x.new", "1\n");
        }),
        ("a file that those rules ignored", |dir| put(dir, "x.new", "2\n")),
    ];
    for (n, (what, edit)) in (2..).zip(edits) {
        let mut before = Vec::new();
        let (_, made) = turn(&world, &mut workspace, (n, None), |dir| {
            before = all_files(dir);
            edit(dir);
        })
        .await?;
        ensure!(before == first, "before {what}: {before:?}");
        ensure!(made.changed, "{what}");
        let (wanted, got) = (made.commit.ok_or("a commit")?, world.git("rev-parse main"));
        ensure!(world.git(&format!("rev-parse {wanted}^")) == got, "{what} is made on the same commit");
    }
    Ok(())
}

async fn violations() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "tests/new.sh", "exit 1\n")).await?;
    ensure!(made.violations.is_empty(), "{made:?}");
    let (_, made) = turn(&world, &mut workspace, (2, made.commit.as_deref()), |dir| {
        put(dir, "tests/new.sh", "exit 0\n");
        fs::rename(dir.join("tests/t.sh"), dir.join("tests/u.sh")).expect("it is there");
    })
    .await?;
    ensure!(made.violations == ["tests/t.sh"], "{made:?}");
    Ok(())
}

async fn twice() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        put(dir, "one", "1");
        git_in(dir, &["add", "-A"]);
        git_in(dir, &["commit", "-q", "-m", "agent"]);
    })
    .await?;
    let task = world.task(1);
    let commit_meta = CommitMeta::new(&task, Fence(1), "another subject");
    ensure!(world.open().await.collect(&commit_meta, &Started::default()).await? == made, "by another supervisor");
    let unknown = CommitMeta { fence: Fence(2), ..commit_meta };
    ensure!(world.open().await.collect(&unknown, &Started::default()).await.is_err());
    Ok(())
}

async fn late_work() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "one", "1")).await?;
    put(&workspace.turn_dir(), "two", "2");
    let task = world.task(1);
    let late = workspace.collect(&CommitMeta::new(&task, Fence(1), "s"), &Started::default()).await?;
    ensure!(late.commit != made.commit && late.pin == made.pin);
    let refs = world.git("for-each-ref --format=%(objectname) refs/everloop/k3f9/k3f9-1");
    ensure!(made.commit.is_some_and(|c| refs.contains(&c)) && late.commit.is_some_and(|c| refs.contains(&c)));
    Ok(())
}

async fn rebase() -> Done {
    let world = World::new();
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| {
        for (branch, text) in [("left", "l\n"), ("right", "r\n")] {
            git_in(dir, &["checkout", "-q", "-b", branch, "main"]);
            put(dir, "a.txt", text);
            git_in(dir, &["commit", "-q", "-am", branch]);
        }
        let status = std::process::Command::new("git").args(["rebase", "-q", "left"]).current_dir(dir).output();
        assert!(!status.expect("git runs").status.success(), "the rebase stops in a conflict");
    })
    .await?;
    ensure!(made.changed && made.commit.is_some());
    turn(&world, &mut workspace, (2, None), |dir| {
        let status = git_in(dir, &["status"]);
        assert!(status.contains("HEAD detached") && !status.contains("rebase"), "{status}");
    })
    .await?;
    Ok(())
}

async fn submodule() -> Done {
    let world = World::new();
    let other = World::new();
    git_in(&world.dir, &["submodule", "--quiet", "add", &other.dir.display().to_string(), "lib"]);
    world.commit("with a submodule");
    let before = world.git("ls-tree HEAD lib");
    let mut workspace = world.open().await;
    let (_, made) = turn(&world, &mut workspace, (1, None), |dir| put(dir, "x", "x")).await?;
    ensure!(made.changes.len() == 1, "{made:?}");
    ensure!(world.git(&format!("ls-tree {} lib", made.commit.ok_or("a commit")?)) == before);
    Ok(())
}
