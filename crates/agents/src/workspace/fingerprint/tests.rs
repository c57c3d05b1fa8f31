//! After any change to a worktree, the cached look equals `git status`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::locks::Shared;
use super::super::tree::{Detail, TreeStatus, Worktree, status};
use super::*;

/// A repository with a private worktree of it.
struct World {
    _temp: tempfile::TempDir,
    /// The person's repository.
    repo: PathBuf,
    dir: PathBuf,
    tree: Worktree,
}

impl World {
    async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (repo, dir) = (root.join("repo"), root.join("tree"));
        fs::create_dir_all(repo.join("sub/deep")).unwrap();
        for name in ["a.txt", "sub/deep/b.txt"] {
            fs::write(repo.join(name), "one\n").unwrap();
        }
        symlink("a.txt", repo.join("link")).unwrap();
        fs::write(repo.join(".gitignore"), "*.log\n").unwrap();
        git(&repo, "init -q -b main");
        git(&repo, "add -A");
        git(&repo, "commit -q -m first");
        let tree = Worktree::new(dir.clone(), &repo.join(".git"), Shared::new(root.join("lock")));
        tree.bring_to("main").await.unwrap();
        Self { _temp: temp, repo, dir, tree }
    }

    fn common(&self) -> PathBuf {
        self.repo.join(".git")
    }

    /// Looks until git would not be run again.
    async fn settle(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let look = self.tree.look(Detail::Folders).await.unwrap();
            if self.tree.has_fingerprint().await {
                assert!(look.clean, "{look:?}");
                return;
            }
            assert!(Instant::now() < end, "no fingerprint can be taken");
        }
    }

    /// The result of a look, which must equal git's.
    async fn look(&self) -> TreeStatus {
        let seen = self.tree.look(Detail::Files).await.unwrap();
        let git = self.tree.git().unwrap().with("GIT_OPTIONAL_LOCKS", "0");
        let git = status(&git, Detail::Files).await.unwrap();
        assert_eq!(seen, git);
        seen
    }

    /// Settles, makes a change, looks at once and again when the change is no longer recent.
    async fn after(&self, action: impl FnOnce(&Path)) -> TreeStatus {
        self.settle().await;
        let known = self.tree.known();
        action(&self.dir);
        let then = SystemTime::now() + TICK;
        let look = self.look().await;
        while SystemTime::now() < then {
            std::thread::yield_now();
        }
        self.tree.pretend(known);
        assert_eq!(self.look().await, look);
        look
    }
}

fn git(dir: &Path, words: &str) -> String {
    let me = ["-c", "user.name=somebody", "-c", "user.email=some@body"];
    let done = Command::new("git").args(me).args(words.split(' ')).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "git {words}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Writes another text of the same length, with the times of the old one.
fn forge(path: &Path, text: &str) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, text).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[tokio::test]
async fn nothing_done_is_seen_without_git_and_stays_seen() {
    let world = World::new().await;
    let look = world.after(|_| {}).await;
    assert!(look.clean && look.head == Some(git(&world.repo, "rev-parse main")), "{look:?}");
    assert!(world.tree.has_fingerprint().await);
}

#[tokio::test]
async fn an_edit_with_its_time_put_back_is_seen() {
    let world = World::new().await;
    assert!(!world.after(|dir| forge(&dir.join("a.txt"), "two\n")).await.clean);
}

#[tokio::test]
async fn an_edit_in_the_tick_of_the_seal_breaks_it() {
    let world = World::new().await;
    world.settle().await;
    let admin = fs::canonicalize(world.common().join("worktrees/tree")).unwrap();
    let scope = FingerprintScope { tree: world.dir.clone(), admin, common: world.common() };
    let sources = Sources { paths: Vec::new(), listed_at: SystemTime::now() };
    let path = world.dir.join("a.txt");
    for _ in 0..200 {
        let begun = Instant::now();
        fs::write(&path, "one\n").unwrap();
        let before = take(&scope, &sources);
        assert!(before == Err(Unsealed::New) || begun.elapsed() >= TICK, "a fingerprint within a tick");
        forge(&path, "two\n");
        assert!(before.is_err() || take(&scope, &sources) != before, "the two look the same");
    }
}

#[tokio::test]
async fn changed_modes_links_and_files_are_seen() {
    let world = World::new().await;
    assert!(
        !world.after(|dir| fs::set_permissions(dir.join("a.txt"), Permissions::from_mode(0o755)).unwrap()).await.clean
    );
    world.tree.bring_to("main").await.unwrap();
    let point_elsewhere = |dir: &Path| {
        fs::remove_file(dir.join("link")).unwrap();
        symlink("b.txt", dir.join("link")).unwrap();
    };
    assert!(!world.after(point_elsewhere).await.clean);
    world.tree.bring_to("main").await.unwrap();
    assert!(!world.after(|dir| fs::remove_file(dir.join("sub/deep/b.txt")).unwrap()).await.clean);
    world.tree.bring_to("main").await.unwrap();
    let replace = |dir: &Path| {
        fs::write(dir.join("new"), "two\n").unwrap();
        fs::rename(dir.join("new"), dir.join("a.txt")).unwrap();
    };
    assert!(!world.after(replace).await.clean);
}

#[tokio::test]
async fn new_files_are_seen_unless_they_are_ignored() {
    let world = World::new().await;
    assert!(world.after(|dir| fs::write(dir.join("sub/deep/x.log"), "x").unwrap()).await.clean);
    assert!(!world.after(|dir| fs::write(dir.join("sub/deep/new"), "x").unwrap()).await.clean);
    world.tree.bring_to("main").await.unwrap();
    let inside = |dir: &Path| {
        fs::create_dir(dir.join("inside")).unwrap();
        git(&dir.join("inside"), "init -q");
    };
    let look = world.after(inside).await;
    assert!(!look.clean && look.nested == [PathBuf::from("inside")], "{look:?}");
}

#[tokio::test]
async fn commits_resets_and_branches_are_seen() {
    let world = World::new().await;
    let first = git(&world.repo, "rev-parse main");
    let look = world.after(|dir| drop(git(dir, "commit -q --allow-empty -m mine"))).await;
    assert!(look.clean && look.head.as_ref() != Some(&first), "{look:?}");
    let look = world.after(|dir| drop(git(dir, "reset -q --hard main"))).await;
    assert!(look.clean && look.head == Some(first), "{look:?}");
    let look = world.after(|dir| drop(git(dir, "checkout -q -b mine"))).await;
    assert_eq!(look.branch.as_deref(), Some("mine"));
    // On a branch, a commit elsewhere moves this worktree too.
    git(&world.repo, "update-ref refs/heads/mine HEAD");
    world.look().await;
}

#[tokio::test]
async fn flags_and_entries_of_the_index_are_seen() {
    let world = World::new().await;
    let hide = |dir: &Path| {
        git(dir, "update-index --assume-unchanged a.txt");
        fs::write(dir.join("a.txt"), "two\n").unwrap();
    };
    assert!(world.after(hide).await.clean, "git trusts it");
    assert!(!world.after(|dir| drop(git(dir, "update-index --no-assume-unchanged a.txt"))).await.clean);
    world.tree.bring_to("main").await.unwrap();
    assert!(!world.after(|dir| drop(git(dir, "rm -q --cached a.txt"))).await.clean);
    world.tree.bring_to("main").await.unwrap();
    assert!(!world.after(|dir| drop(git(dir, "update-index --chmod=+x a.txt"))).await.clean);
}

#[tokio::test]
async fn rules_about_what_is_ignored_are_seen() {
    let world = World::new().await;
    let exclude = world.common().join("info/exclude");
    fs::create_dir_all(world.common().join("info")).unwrap();
    fs::write(&exclude, "junk\n").unwrap();
    fs::write(world.dir.join("junk"), "").unwrap();
    assert!(!world.after(|_| fs::write(&exclude, "jink\n").unwrap()).await.clean);
    fs::remove_file(world.dir.join("junk")).unwrap();
    fs::write(world.dir.join("x.log"), "").unwrap();
    assert!(!world.after(|dir| fs::write(dir.join(".gitignore"), "*.lag\n").unwrap()).await.clean);
}

#[tokio::test]
async fn rules_outside_of_the_repository_are_seen() {
    let world = World::new().await;
    let rules = world.repo.with_file_name("rules");
    git(&world.repo, &format!("config core.excludesFile {}", rules.display()));
    fs::write(&rules, "junk\n").unwrap();
    fs::write(world.dir.join("junk"), "").unwrap();
    assert!(!world.after(|_| fs::write(&rules, "jink\n").unwrap()).await.clean);
}

#[tokio::test]
async fn settings_that_come_to_be_included_are_seen() {
    let world = World::new().await;
    git(&world.repo, "config core.fileMode false");
    git(&world.repo, "config include.path ../../more");
    fs::set_permissions(world.dir.join("a.txt"), Permissions::from_mode(0o755)).unwrap();
    let more = world.repo.with_file_name("more");
    assert!(!world.after(|_| fs::write(&more, "[core]\nfileMode = true\n").unwrap()).await.clean);
}

#[tokio::test]
async fn objects_that_stand_for_others_are_seen() {
    let world = World::new().await;
    let other = git(&world.repo, "commit-tree -m other 4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    assert!(!world.after(|dir| drop(git(dir, &format!("replace HEAD {other}")))).await.clean);
}

#[tokio::test]
async fn a_folder_with_many_entries_is_left_to_git() {
    let world = World::new().await;
    world.settle().await;
    for number in 0..MOST_ENTRIES {
        fs::write(world.dir.join(format!("{number}.log")), "").unwrap();
    }
    assert!(world.look().await.clean && !world.tree.has_fingerprint().await);
}
