//! Brings a loop's work to the person at a person's word: onto the branch of the loop, or into what
//! is checked out where the loop found no branch.
//!
//! Nothing of the person is reset, cleaned, stashed or overwritten. Files that the work does not
//! touch may differ from the commit; a file in the way is either the work's own already, or named
//! with the command that makes room. What cannot be merged is found before anything moves. Work on
//! top of uncommitted changes (`include_dirty`) is applied to the files and stays uncommitted, as
//! those changes are.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everloop_core::ids::LoopId;
use everloop_core::landing::Relation;
use serde::Serialize;

use super::diff::{self, FileDiff};
use super::land::{Checkout, checkouts, quote, unfinished};
use super::merge::{Joined, commit_tree, merge_tree, relation};
use super::tree::{Detail, status};
use super::{ChangeKind, PathChange, ProjectFolder, Repository, WorkspaceError, discover, refs};
use crate::git::{Git, LONG_DEADLINE};

/// Files that are named in a message; the others are counted.
const NAMED_FILES: usize = 5;

/// What is to be taken.
#[derive(Clone, Debug)]
pub struct TakeRequest<'a> {
    /// The folder of the loop.
    pub dir: &'a Path,
    pub owner: &'a LoopId,
    /// The ref that the loop lands on.
    pub target: &'a str,
    /// The commit that holds the work.
    pub commit: &'a str,
    /// The commit with the person's uncommitted changes that the work builds on.
    pub dirty_start: Option<&'a str>,
    /// First line of a merge commit.
    pub subject: &'a str,
}

/// Where the work is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "taken", rename_all = "snake_case")]
pub enum TakenWork {
    /// It was there before.
    Contained { place: String },
    /// The branch, or the commit without a branch, was moved forward onto it.
    Forwarded { place: String, commit: String },
    /// A merge of both is there.
    Merged { place: String, commit: String },
    /// Its changes are in the files of this folder, uncommitted.
    Applied { folder: PathBuf, files: usize },
    /// A new branch holds it.
    Branched { name: String },
}

/// Why it was not taken: nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeRefusal {
    /// What is in the way.
    pub why: String,
    /// A command that removes the obstacle, for a person to run; then the work can be taken.
    pub first: Option<String>,
}

type Attempt = Result<Result<TakenWork, TakeRefusal>, WorkspaceError>;

fn refused(why: String, first: Option<String>) -> Result<TakenWork, TakeRefusal> {
    Err(TakeRefusal { why, first })
}

/// Brings the work to the person.
pub async fn take(request: &TakeRequest<'_>) -> Attempt {
    let place = repository(request.dir).await?;
    let shared = Git::shared(&place.common);
    if shared.commit(request.commit).await?.is_none() {
        return Ok(refused(format!("the commit {} is not in the repository any more", request.commit), None));
    }
    let all = checkouts(&shared).await?;
    // A loop that found no branch lands on a ref of its own: what is checked out takes its place.
    let by_branch = |c: &&Checkout| c.branch.as_deref() == Some(request.target);
    let checkout = if request.target.starts_with(refs::OURS) {
        all.iter().find(|c| c.path == place.root)
    } else {
        all.iter().find(by_branch)
    };
    match (checkout, request.dirty_start) {
        (Some(checkout), Some(start)) => Taking { request, shared, checkout }.apply(start).await,
        (Some(checkout), None) => Taking { request, shared, checkout }.bring().await,
        (None, _) => move_ref(request, &shared).await,
    }
}

/// Makes a branch that holds the work; what is checked out stays as it is.
pub async fn take_as_branch(request: &TakeRequest<'_>, name: &str) -> Attempt {
    let place = repository(request.dir).await?;
    let shared = Git::shared(&place.common);
    if !shared.asks(&["check-ref-format", "--branch", name]).await.unwrap_or(false) {
        return Ok(refused(format!("`{name}` is no name for a branch"), None));
    }
    let full = format!("refs/heads/{name}");
    match shared.commit(&full).await? {
        Some(commit) if commit == request.commit => return Ok(Ok(TakenWork::Contained { place: name.to_owned() })),
        Some(_) => return Ok(refused(format!("there is a branch `{name}` already"), None)),
        None => {}
    }
    let output = shared.run(&["update-ref", "-m", "everloop: work taken", &full, request.commit, ""]).await?;
    match output.code {
        0 => Ok(Ok(TakenWork::Branched { name: name.to_owned() })),
        _ => Ok(refused(output.stderr, None)),
    }
}

/// Where the loop `owner` began, for a loop whose ledger does not have it.
pub async fn start_of(dir: &Path, owner: &LoopId) -> Result<Option<String>, WorkspaceError> {
    let place = repository(dir).await?;
    Ok(Git::shared(&place.common).commit(&refs::start(owner)).await?)
}

async fn repository(dir: &Path) -> Result<Repository, WorkspaceError> {
    match discover(dir).await? {
        ProjectFolder::Git(place) => Ok(place),
        ProjectFolder::Folder(dir) => Err(WorkspaceError::NotGit { dir }),
    }
}

/// Moves a branch that is checked out nowhere.
async fn move_ref(request: &TakeRequest<'_>, shared: &Git) -> Attempt {
    let place = branch(request.target).to_owned();
    let old = shared.commit(request.target).await?;
    let (new, merged) = match &old {
        None => (request.commit.to_owned(), false),
        Some(old) => match join(request, shared, old).await? {
            Ahead::Contained => return Ok(Ok(TakenWork::Contained { place })),
            Ahead::Forward(commit) => (commit, false),
            Ahead::Merged(commit) => (commit, true),
            Ahead::Conflict(paths) => return Ok(conflict(request, &paths, None)),
        },
    };
    let old = old.unwrap_or_default();
    let output = shared.run(&["update-ref", "-m", "everloop: work taken", request.target, &new, &old]).await?;
    match output.code {
        0 => Ok(Ok(taken(place, new, merged))),
        _ => Ok(refused(output.stderr, None)),
    }
}

fn taken(place: String, commit: String, merged: bool) -> TakenWork {
    if merged { TakenWork::Merged { place, commit } } else { TakenWork::Forwarded { place, commit } }
}

/// What a line becomes with the work.
enum Ahead {
    Contained,
    Forward(String),
    Merged(String),
    /// The conflicting files.
    Conflict(Vec<String>),
}

/// The work on top of `at`, made without touching a checkout.
async fn join(request: &TakeRequest<'_>, shared: &Git, at: &str) -> Result<Ahead, WorkspaceError> {
    let work = request.commit;
    match relation(shared, at, work).await? {
        Relation::Behind if at != work => return Ok(Ahead::Forward(work.to_owned())),
        Relation::Behind | Relation::Ahead => return Ok(Ahead::Contained),
        Relation::Diverged => {}
    }
    match merge_tree(shared, at, work).await? {
        // Before git 2.38 there is no merge without a checkout.
        None => Ok(Ahead::Conflict(Vec::new())),
        Some(Joined::Conflict(paths)) => Ok(Ahead::Conflict(paths)),
        Some(Joined::Done(tree)) => Ok(Ahead::Merged(commit_tree(shared, &tree, &[at, work], request.subject).await?)),
    }
}

fn conflict(request: &TakeRequest<'_>, paths: &[String], checkout: Option<&Path>) -> Result<TakenWork, TakeRefusal> {
    let branch = branch(request.target);
    let what = match paths {
        [] => "it has to be merged by hand".to_owned(),
        paths => format!("it conflicts with {branch} in {}", named(paths)),
    };
    let work = refs::work(request.owner);
    let command = match checkout {
        Some(path) => format!("git -C {} merge {work}", quote(path)),
        None => format!("git -C {} switch {branch} && git -C {0} merge {work}", quote(request.dir)),
    };
    refused(what, Some(command))
}

/// Taking into a checkout of the person.
struct Taking<'a> {
    request: &'a TakeRequest<'a>,
    shared: Git,
    checkout: &'a Checkout,
}

impl Taking<'_> {
    /// Moves what is checked out forward, onto the work or a merge with it.
    async fn bring(&self) -> Attempt {
        let (path, git) = (&self.checkout.path, Git::operators(&self.checkout.path));
        if let Some(refusal) = self.busy(&git).await? {
            return Ok(Err(refusal));
        }
        let place = self.place();
        let look = status(&git.clone().within(LONG_DEADLINE), Detail::Tracked).await?;
        let (new, merged) = match &look.head {
            None => (self.request.commit.to_owned(), false),
            Some(at) => match join(self.request, &self.shared, at).await? {
                Ahead::Contained => return Ok(Ok(TakenWork::Contained { place })),
                Ahead::Forward(commit) => (commit, false),
                Ahead::Merged(commit) => (commit, true),
                Ahead::Conflict(paths) => return Ok(conflict(self.request, &paths, Some(path))),
            },
        };
        let changes = self.changes(look.head.as_deref(), &new).await?;
        let touched: BTreeSet<&PathBuf> = changes.iter().map(|file| &file.change.path).collect();
        let dirty: Vec<String> =
            look.paths.iter().filter(|path| touched.contains(path)).map(|p| p.display().to_string()).collect();
        if !dirty.is_empty() {
            return Ok(self.dirty(&dirty));
        }
        let same = match self.in_the_way(&git, &changes, &new).await? {
            Ok(same) => same,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.adopt(&git, &same).await?;
        let options = ["--ff-only", "--quiet", "--no-stat", "--no-squash", "--no-autostash", "--no-overwrite-ignore"];
        let args: Vec<&str> = ["merge"].into_iter().chain(options).chain([new.as_str()]).collect();
        let output = git.clone().within(LONG_DEADLINE).run(&args).await?;
        if output.code == 0 {
            return Ok(Ok(taken(place, new, merged)));
        }
        self.release(&git, &same).await?;
        Ok(refused(output.stderr, Some(format!("git -C {} merge {}", quote(path), refs::work(self.request.owner)))))
    }

    /// Applies what the work adds to the person's uncommitted changes to the files themselves.
    async fn apply(&self, start: &str) -> Attempt {
        let git = Git::operators(&self.checkout.path);
        if let Some(refusal) = self.busy(&git).await? {
            return Ok(Err(refusal));
        }
        let work = self.request.commit;
        if let Some(head) = git.commit("HEAD").await?
            && self.shared.asks(&["merge-base", "--is-ancestor", start, &head]).await?
        {
            // The person committed exactly these changes in the meantime.
            return self.bring().await;
        }
        let changes = self.changes(Some(start), work).await?;
        let (mut there, mut rest) = (Vec::new(), Vec::new());
        for file in changes {
            let is_there = self.holds(&git, &file.change, work).await?;
            if is_there { there.push(file.change.path) } else { rest.push(file) }
        }
        let folder = self.checkout.path.clone();
        if rest.is_empty() {
            return Ok(Ok(TakenWork::Contained { place: folder.display().to_string() }));
        }
        if let Err(refusal) = self.in_the_way(&git, &rest, work).await? {
            return Ok(Err(refusal));
        }
        let files = rest.len();
        let form = ["diff-tree", "-r", "--patch", "--binary", "--full-index", "--no-renames", "--no-ext-diff"];
        let mut args: Vec<OsString> = form.map(OsString::from).to_vec();
        args.extend(["--no-textconv", start, work, "--", "."].map(OsString::from));
        for path in &there {
            let mut exclude = OsString::from(":(exclude,top,literal)");
            exclude.push(path);
            args.push(exclude);
        }
        let patch = self.shared.bytes(&args).await?;
        let apply = git.within(LONG_DEADLINE);
        let checked = apply.fed(&["apply", "--check", "--whitespace=nowarn"], &patch).await?;
        if checked.code != 0 {
            let why = format!("your files are not as the loop found them: {}", checked.stderr);
            return Ok(refused(why, None));
        }
        apply.fed(&["apply", "--whitespace=nowarn"], &patch).await?.success()?;
        Ok(Ok(TakenWork::Applied { folder, files }))
    }

    /// The branch, or the commit without one.
    fn place(&self) -> String {
        match &self.checkout.branch {
            Some(name) => branch(name).to_owned(),
            None => format!("the commit that is checked out in {}", self.checkout.path.display()),
        }
    }

    /// An operation that is under way in the checkout.
    async fn busy(&self, git: &Git) -> Result<Option<TakeRefusal>, WorkspaceError> {
        let path = quote(&self.checkout.path);
        let git_dir = git.path(&["rev-parse", "--absolute-git-dir"]).await?;
        let lock = git_dir.join("index.lock");
        if lock.exists() {
            let why = format!("`{}` exists: another git is at work there, or one crashed", lock.display());
            return Ok(Some(TakeRefusal { why, first: None }));
        }
        Ok(unfinished(&git_dir).map(|what| {
            let why = format!("a {what} is under way in {path}");
            TakeRefusal { why, first: Some(format!("git -C {path} {what} --continue (or --abort)")) }
        }))
    }

    fn dirty(&self, files: &[String]) -> Result<TakenWork, TakeRefusal> {
        let path = quote(&self.checkout.path);
        let which: Vec<String> = files.iter().take(NAMED_FILES).map(|file| quote(Path::new(file))).collect();
        let which = if files.len() > NAMED_FILES { "-a".to_owned() } else { format!("-- {}", which.join(" ")) };
        let why = format!("the work changes files with uncommitted changes of yours in {path}: {}", named(files));
        refused(why, Some(format!("git -C {path} commit -m 'my changes' {which}")))
    }

    async fn changes(&self, from: Option<&str>, to: &str) -> Result<Vec<FileDiff>, WorkspaceError> {
        let empty = match from {
            Some(_) => String::new(),
            None => self.shared.line(&["hash-object", "-t", "tree", "/dev/null"]).await?,
        };
        diff::files(&self.shared, from.unwrap_or(&empty), to).await
    }

    /// Whether the person's file is what `new` has at this path.
    async fn holds(&self, git: &Git, change: &PathChange, new: &str) -> Result<bool, WorkspaceError> {
        let meta = fs::symlink_metadata(self.checkout.path.join(&change.path));
        let is_file = match meta {
            Err(_) => return Ok(change.kind == ChangeKind::Removed),
            Ok(meta) => meta.is_file() && change.kind != ChangeKind::Removed,
        };
        if !is_file {
            return Ok(false);
        }
        let theirs = git.line(&[OsStr::new("hash-object"), OsStr::new("--"), change.path.as_os_str()]).await?;
        let mut name = OsString::from(format!("{new}:"));
        name.push(&change.path);
        Ok(theirs == self.shared.line(&[OsStr::new("rev-parse"), &name]).await?)
    }

    /// Untracked files where the work adds one: those with the same content, or a refusal that
    /// names the others.
    async fn in_the_way(
        &self,
        git: &Git,
        changes: &[FileDiff],
        new: &str,
    ) -> Result<Result<Vec<PathBuf>, TakeRefusal>, WorkspaceError> {
        let root = &self.checkout.path;
        let added = changes.iter().filter(|file| file.change.kind == ChangeKind::Added);
        let (mut same, mut other) = (Vec::new(), Vec::new());
        for file in added {
            if fs::symlink_metadata(root.join(&file.change.path)).is_err() {
                continue;
            }
            let path = &file.change.path;
            let is_same = self.holds(git, &file.change, new).await?;
            if is_same { same.push(path.clone()) } else { other.push(path.display().to_string()) }
        }
        if other.is_empty() {
            return Ok(Ok(same));
        }
        let at = |file: &String| quote(&root.join(file));
        let moves: Vec<String> = other.iter().map(|file| format!("mv {0} {0}.mine", at(file))).collect();
        let why = format!("the work adds files that are here already, untracked and different: {}", named(&other));
        Ok(Err(TakeRefusal { why, first: Some(moves.join(" && ")) }))
    }

    /// Lets git know untracked files that are what the work adds, or it would refuse to move.
    async fn adopt(&self, git: &Git, same: &[PathBuf]) -> Result<(), WorkspaceError> {
        self.index(git, &["update-index", "-z", "--add", "--stdin"], same).await
    }

    /// The opposite of `adopt`; the files stay.
    async fn release(&self, git: &Git, same: &[PathBuf]) -> Result<(), WorkspaceError> {
        self.index(git, &["update-index", "-z", "--force-remove", "--stdin"], same).await
    }

    async fn index(&self, git: &Git, args: &[&str], paths: &[PathBuf]) -> Result<(), WorkspaceError> {
        if paths.is_empty() {
            return Ok(());
        }
        let input = paths.iter().flat_map(|p| [p.as_os_str().as_bytes(), b"\0"].concat()).collect::<Vec<u8>>();
        git.fed(args, &input).await?.success()?;
        Ok(())
    }
}

fn branch(name: &str) -> &str {
    name.strip_prefix("refs/heads/").unwrap_or(name)
}

fn named(paths: &[String]) -> String {
    let more = paths.len().saturating_sub(NAMED_FILES);
    let names: Vec<String> = paths.iter().take(NAMED_FILES).map(|path| format!("`{path}`")).collect();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", names.join(", "))
}
