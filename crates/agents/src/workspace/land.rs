//! Moves work onto the target: forward only, once per task, and never over changes of a person.
//!
//! The move itself is one compare-and-swap, by git: a fast-forward merge where the branch is
//! checked out, else an update of the ref against its old value. A crash after it and before it is
//! recorded is detected by the trailer. Changed files that the work does not touch stay as they are.
//! Any obstacle (changed files that it touches, an untracked file, a lock, a rebase) leaves the
//! person's side exactly as it is.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use everloop_core::action::Integration;
use everloop_core::event::Integrated;
use everloop_core::ids::TaskId;
use everloop_core::landing::{self, LandingStep, landed};

use super::checkouts::Checkouts;
use super::merge::relation;
use super::tree::{Detail, status};
use super::{WorkspaceError, refs};
use crate::git::{self, Git, LONG_DEADLINE};

/// A worktree of the person.
#[derive(Debug, Default)]
pub(super) struct Checkout {
    pub path: PathBuf,
    pub branch: Option<String>,
    detached: bool,
    prunable: bool,
}

/// Which files of a move are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Added,
    Any,
}

/// A requested move of the target.
struct Move<'a> {
    old: Option<&'a str>,
    new: &'a str,
}

impl Checkouts {
    /// Moves the target onto `commit`, if it is where it was when the work was inspected.
    pub async fn integrate(
        &mut self,
        task: &TaskId,
        commit: &str,
        inspected: Option<&str>,
    ) -> Result<Integration, WorkspaceError> {
        let target = self.refs.commit(&self.target).await?;
        if target.as_deref() == Some(commit) {
            return Ok(landed(commit));
        }
        if let Some(target) = &target {
            // The branch of a loop without one is moved by everloop alone.
            self.target_now().await?;
            match landing::step(relation(self.git(), target, commit).await?, target, commit) {
                LandingStep::Landed => return Ok(landed(commit)),
                LandingStep::Move => {}
                LandingStep::LookUp => {
                    let found = self.landed_before(task, commit, target).await?;
                    return Ok(landing::looked_up(found, || format!("{} is at {target} now", self.target)));
                }
            }
            if inspected.is_some_and(|inspected| inspected != target) {
                return Ok(Integration::Moved(format!("{} is at {target} now", self.target)));
            }
            let violations = self.inspect(target, commit).await?;
            if !violations.is_empty() {
                let why = format!("it changes protected files: {}", violations.join(", "));
                return self.leave_aside(commit, Obstacle { why, command: self.by_hand() }).await;
            }
        }
        let wish = Move { old: target.as_deref(), new: commit };
        let checkouts = self.operators_checkouts().await?;
        let obstacle = match checkouts.iter().find(|c| c.branch.as_ref() == Some(&self.target)) {
            Some(checkout) => self.forward(checkout, &wish).await?,
            None => self.swap(&checkouts, &wish).await?,
        };
        let Some(obstacle) = obstacle else { return Ok(landed(commit)) };
        let now = self.refs.commit(&self.target).await?;
        if now.as_deref() == Some(commit) {
            return Ok(landed(commit));
        }
        if now != target {
            return Ok(Integration::Moved(format!("{} moved while work was about to land", self.target)));
        }
        self.leave_aside(commit, obstacle).await
    }

    async fn leave_aside(&self, commit: &str, obstacle: Obstacle) -> Result<Integration, WorkspaceError> {
        self.set_work(commit).await?;
        let Obstacle { why, command } = obstacle;
        Ok(Integration::Done(Integrated::Aside { commit: commit.to_owned(), why, command }))
    }

    /// The command that lands the work whatever everloop thinks of it.
    fn by_hand(&self) -> String {
        format!("git -C {} merge --ff-only {}", quote(&self.place.root), refs::work(&self.owner))
    }

    /// A commit of `task` on the target that the work does not have: it landed before, in another
    /// shape.
    async fn landed_before(&self, task: &TaskId, commit: &str, target: &str) -> Result<Option<String>, WorkspaceError> {
        let wanted = task.as_str();
        let grep = format!("--grep=Task-Id: {wanted}");
        let format = "--format=%H%n%(trailers:key=Task-Id,valueonly)";
        let range = format!("{commit}..{target}");
        let log = ["log", "-z", "--no-show-signature", "--fixed-strings", &grep, format, &range, "--"];
        let out = self.git().bytes(&log).await?;
        let found = git::records(&out).find_map(|record| {
            let text = String::from_utf8_lossy(record);
            let (id, values) = text.split_once('\n')?;
            values.lines().any(|value| value.trim() == wanted).then(|| id.to_owned())
        });
        Ok(found)
    }

    /// All worktrees but those of this loop.
    async fn operators_checkouts(&self) -> Result<Vec<Checkout>, WorkspaceError> {
        let mut all = checkouts(&self.refs).await?;
        all.retain(|c| !c.path.starts_with(&self.root));
        Ok(all)
    }

    /// Fast-forwards the branch where the person has it checked out, unless something is in the
    /// way.
    async fn forward(&self, checkout: &Checkout, wish: &Move<'_>) -> Result<Option<Obstacle>, WorkspaceError> {
        let path = quote(&checkout.path);
        let command = format!("git -C {path} merge --ff-only {}", refs::work(&self.owner));
        let aside = |why: String| Ok(Some(Obstacle { why, command: command.clone() }));
        let git = Git::operators(&checkout.path);
        let git_dir = git.path(&["rev-parse", "--absolute-git-dir"]).await?;
        if git_dir.join("index.lock").exists() {
            let lock = git_dir.join("index.lock");
            return aside(format!("`{}` exists: another git is at work there, or one crashed", lock.display()));
        }
        let git = git.with("GIT_DIR", &git_dir).with("GIT_WORK_TREE", &checkout.path);
        if let Some(driver) = self.own.rules.new_drivers(&git).await?.first() {
            return aside(format!("`{driver}` of git's configuration is not what it was when the loop was made"));
        }
        if let Some(what) = unfinished(&git_dir) {
            return aside(format!("a {what} is under way in {path}"));
        }
        let look = status(&git.clone().within(LONG_DEADLINE), Detail::Tracked).await?;
        if look.head.as_deref() != wish.old {
            return aside(format!("the checkout in {path} is not at {} any more", self.target));
        }
        if !look.clean {
            let touched = self.touched(wish, Touch::Any).await?;
            if let Some(file) = look.paths.iter().chain(&look.nested).find(|file| touched.contains(*file)) {
                let file = file.display();
                return aside(format!(
                    "there are uncommitted changes in `{file}` in {path}, which the work changes, too"
                ));
            }
        }
        if let Some(file) = self.in_the_way(&checkout.path, wish).await? {
            return aside(format!("the untracked file `{}` in {path} is in the way", file.display()));
        }
        let options = ["--ff-only", "--quiet", "--no-stat", "--no-squash", "--no-autostash", "--no-overwrite-ignore"];
        let args: Vec<&str> = ["merge"].into_iter().chain(options).chain([wish.new]).collect();
        let output = git.within(LONG_DEADLINE).run(&args).await?;
        if output.code == 0 { Ok(None) } else { aside(output.stderr) }
    }

    /// A file that the work adds and that already exists, untracked or ignored. git itself would
    /// overwrite an ignored one on an unborn branch.
    async fn in_the_way(&self, root: &Path, wish: &Move<'_>) -> Result<Option<PathBuf>, WorkspaceError> {
        let added = self.touched(wish, Touch::Added).await?;
        let there = |path: &PathBuf| {
            let meta = fs::symlink_metadata(root.join(path));
            // A folder in the place of a new file may be tracked and about to be removed: git
            // decides. Without commits, it is not.
            meta.is_ok_and(|m| !m.is_dir() || wish.old.is_none())
        };
        Ok(added.into_iter().find(there))
    }

    /// The files that a move changes.
    async fn touched(&self, wish: &Move<'_>, touch: Touch) -> Result<Vec<PathBuf>, WorkspaceError> {
        let out = match wish.old {
            Some(old) => {
                let mut args = vec!["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff"];
                args.extend((touch == Touch::Added).then_some("--diff-filter=A"));
                args.extend([old, wish.new, "--"]);
                self.git().bytes(&args).await?
            }
            None => self.git().bytes(&["ls-tree", "-r", "-z", "--full-tree", "--name-only", wish.new]).await?,
        };
        Ok(git::records(&out).map(git::path_from).collect())
    }

    /// Moves a target that is checked out nowhere.
    async fn swap(&self, checkouts: &[Checkout], wish: &Move<'_>) -> Result<Option<Obstacle>, WorkspaceError> {
        let branch = self.target.strip_prefix("refs/heads/").unwrap_or(&self.target);
        let work = refs::work(&self.owner);
        let Some(old) = wish.old else {
            let command = format!("git -C {} branch {} {work}", quote(&self.place.root), quote(Path::new(branch)));
            return Ok(Some(Obstacle { why: format!("`{branch}` does not exist any more"), command }));
        };
        for checkout in checkouts.iter().filter(|c| c.detached) {
            let git_dir = Git::operators(&checkout.path).path(&["rev-parse", "--absolute-git-dir"]).await?;
            let rebased = ["rebase-merge/head-name", "rebase-apply/head-name"]
                .iter()
                .any(|name| fs::read_to_string(git_dir.join(name)).is_ok_and(|text| text.trim() == self.target));
            if rebased {
                let path = quote(&checkout.path);
                let command = format!("git -C {path} merge --ff-only {work}");
                return Ok(Some(Obstacle { why: format!("a rebase of `{branch}` is under way in {path}"), command }));
            }
        }
        let output = self.refs.run(&["update-ref", "-m", "everloop: work landed", &self.target, wish.new, old]).await?;
        let command = format!("git -C {} fetch . {work}:{}", quote(&self.place.root), self.target);
        Ok((output.code != 0).then_some(Obstacle { why: output.stderr, command }))
    }
}

/// The worktrees of a repository that are there.
pub(super) async fn checkouts(refs: &Git) -> Result<Vec<Checkout>, WorkspaceError> {
    const USAGE: i32 = 129;
    let mut output = refs.run(&["worktree", "list", "--porcelain", "-z"]).await?;
    let mut separator = 0;
    if output.code == USAGE {
        // Before git 2.36.
        output = refs.run(&["worktree", "list", "--porcelain"]).await?;
        separator = b'\n';
    }
    let mut checkouts: Vec<Checkout> = Vec::new();
    for line in output.success()?.split(|b| *b == separator) {
        if let Some(path) = line.strip_prefix(b"worktree ") {
            checkouts.push(Checkout { path: git::path_from(path), ..Checkout::default() });
        } else if let Some(last) = checkouts.last_mut() {
            let line = String::from_utf8_lossy(line);
            last.detached |= line == "detached";
            last.prunable |= line.starts_with("prunable");
            last.branch = line.strip_prefix("branch ").map(str::to_owned).or(last.branch.take());
        }
    }
    checkouts.retain(|c| !c.prunable);
    Ok(checkouts)
}

/// Why work did not land, and the command that a person can run.
struct Obstacle {
    why: String,
    command: String,
}

/// An operation that was begun in the checkout and not finished.
pub(super) fn unfinished(git_dir: &Path) -> Option<&'static str> {
    let marks = [
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
    ];
    marks.into_iter().find(|(file, _)| git_dir.join(file).exists()).map(|(_, what)| what)
}

/// A path in shell quoting.
pub(super) fn quote(path: &Path) -> String {
    let text = path.as_os_str().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) && OsStr::new(&*text) == path.as_os_str() {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
