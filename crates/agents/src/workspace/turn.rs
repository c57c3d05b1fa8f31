//! A turn in its clone: where it starts, and what it made. The agent is not running while this code
//! is.
//!
//! Only files come back from a turn: they are compared and taken with everloop's own git folder and
//! index. What the agent did in its own `.git` is text for the commit's message.
//!
//! Crash windows: the note about the base is written before the agent can start, and the pin is set
//! before anything in the folder is touched again. So a restarted supervisor can always collect,
//! and collecting twice gives the same commit.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everloop_core::commit_message::{self, WorkDone};
use everloop_core::ids::TurnId;
use everloop_core::landing::Relation;
use serde::{Deserialize, Serialize};

use super::changed::{self, Compared, Comparison};
use super::checkouts::{BaseChoice, Checkouts};
use super::experiment::{self, KnownPatch};
use super::gather::gather;
use super::merge::{Joined, relation, trailers};
use super::switch::Switch;
use super::tree::{Detail, TreeStatus, status};
use super::verify::{is_damage, reset};
use super::{
    Base, Collected, CommitMeta, Dropped, PathChange, Side, Started, WorkspaceError, clone, diff, files, fingerprint,
    index, old_worktree, sweep,
};
use crate::git::Git;

/// Where a turn started, kept so that another supervisor can collect its work.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    turn: TurnId,
    base: String,
    /// The base is empty and must not become a parent.
    rootless: bool,
}

const NOTE_VERSION: u32 = 1;

/// Repositories in repositories that an agent may have created.
const NESTED_DEPTH: usize = 16;

impl Checkouts {
    /// Brings the turn's clone to the start of the turn.
    pub async fn prepare(&mut self, turn: &TurnId, work: Option<&str>) -> Result<Base, WorkspaceError> {
        self.arrive(None);
        self.patch = None;
        let target = self.target_now().await?;
        let line = match work {
            Some(work) => Some(work.to_owned()),
            None => self.include_dirty.then(|| self.start.clone()),
        };
        let known = self.chosen.as_ref().filter(|c| c.target == target && c.line == line);
        let base = match known {
            Some(choice) => choice.base.clone(),
            None => self.choose(target.as_deref(), line.as_deref()).await?,
        };
        let commit = base.commit.clone().unwrap_or_else(|| self.start.clone());
        let rootless = self.empty.as_ref() == Some(&commit);
        self.chosen = Some(BaseChoice { target, line, base: base.clone() });
        self.bring_turn(&commit).await?;
        let note = Note { version: NOTE_VERSION, turn: turn.clone(), base: commit, rootless };
        files::write_note(&self.note_path(), &note).map_err(WorkspaceError::files("write", &self.note_path()))?;
        Ok(Base { commit: Some(note.base), ..base })
    }

    /// Makes the files of the turn those of `commit`; ignored files stay.
    async fn bring_turn(&mut self, commit: &str) -> Result<(), WorkspaceError> {
        let path = self.turn.path.clone();
        if self.turn.check().is_err() || self.turn.at.as_deref() != Some(commit) {
            old_worktree::remove(&self.root, &self.place.common).await?;
            self.turn.sealed = None;
            if !self.move_turn(commit).await? {
                self.turn.ignored = None;
                self.refill_turn(commit).await?;
            }
            self.turn.at = Some(commit.to_owned());
        }
        if !clone::is_folder(&path.join(".git")) {
            let shown = ["refs/heads", "refs/tags", "refs/remotes"];
            let list = ["for-each-ref", "--format=%(objectname) %(refname)"].into_iter().chain(shown);
            self.parts.packed_refs = self.refs.bytes(&list.collect::<Vec<_>>()).await?;
        }
        self.parts.make_ready(&path, commit, &self.own.index(Side::Turn), &self.turn.strays())?;
        self.turn.mark = clone::index_mark(&path);
        // The folder may contain no tracked file.
        let dir = self.dir(Side::Turn);
        fs::create_dir_all(&dir).map_err(WorkspaceError::files("make", &dir))?;
        if self.turn.sealed.is_none() {
            self.turn.sealed = files::apart(move || Ok(fingerprint::take(&path).ok())).await?;
        }
        Ok(())
    }

    /// Goes from the commit that files and index are known to hold to another one, which touches only
    /// what differs. False when that is not known, or nothing else than all files will do.
    async fn move_turn(&mut self, commit: &str) -> Result<bool, WorkspaceError> {
        let Some(at) = self.turn.at.take().filter(|_| self.turn.check().is_ok()) else { return Ok(false) };
        let Some(ignored) = self.turn.ignored.clone() else { return Ok(false) };
        // What one commit ignores may be litter in the other.
        let same = self.turn.same_rules.as_ref();
        if !same.is_some_and(|(one, other)| [one, other].contains(&&at) && [one.as_str(), other].contains(&commit)) {
            return Ok(false);
        }
        let path = self.turn.path.clone();
        // git does not know empty folders, and the next turn must not find those of this one.
        if files::apart(move || Ok(changed::has_empty_folder(&path, &ignored))).await? {
            return Ok(false);
        }
        let git = self.own.over(&self.turn.path, Side::Turn).await?;
        if let Some(tree) = self.trees.get(commit) {
            let (index, to) = (self.own.index(Side::Turn), self.own.index_before());
            let (tree, wanted, id_bytes) = (self.turn.path.clone(), tree.clone(), sweep::id_bytes(commit));
            if self.switches(Switch { tree, index, to, wanted, id_bytes }).await {
                return Ok(true);
            }
        }
        Ok(git.run(&["read-tree", "-m", "-u", &at, commit]).await?.code == 0)
    }

    /// Makes all files of the turn those of `commit`, whatever is there.
    async fn refill_turn(&mut self, commit: &str) -> Result<(), WorkspaceError> {
        self.sessions.ignored.end().await;
        if self.turn.check().is_ok() {
            match self.fill_turn(commit).await {
                Err(error) if is_damage(&error) => {}
                other => return other,
            }
        }
        self.begin_turn().await?;
        reset(&self.own.over(&self.turn.path, Side::Turn).await?, commit).await
    }

    /// An empty folder. A link in its place is removed, not followed.
    async fn begin_turn(&self) -> Result<(), WorkspaceError> {
        let (path, index) = (&self.turn.path, self.own.index(Side::Turn));
        files::remove_apart(path).await?;
        files::make_private(path).map_err(WorkspaceError::files("make", path))?;
        files::remove(&index).map_err(WorkspaceError::files("remove", &index))?;
        self.forget_setup(Side::Turn)
    }

    async fn fill_turn(&self, commit: &str) -> Result<(), WorkspaceError> {
        let git = self.own.over(&self.turn.path, Side::Turn).await?;
        reset(&git, commit).await?;
        // Twice the force: removes repositories that an agent created in here, too.
        git.bytes(&["clean", "--quiet", "-ffd"]).await?;
        Ok(())
    }

    /// Which commit a turn starts from: the work line, with the target in it.
    async fn choose(&mut self, target: Option<&str>, line: Option<&str>) -> Result<Base, WorkspaceError> {
        let plain = |commit: &str| Base { commit: Some(commit.to_owned()), ..Base::default() };
        let (target, line) = match (target, line) {
            (None, None) => return Ok(plain(&self.start)),
            (Some(only), None) | (None, Some(only)) => return Ok(plain(only)),
            (Some(target), Some(line)) => (target, line),
        };
        if self.continues(target, line) {
            return Ok(plain(line));
        }
        match relation(self.git(), target, line).await? {
            Relation::Behind => Ok(plain(line)),
            Relation::Ahead => Ok(plain(target)),
            Relation::Diverged => {
                match self.join(target, line, "everloop: go on from where the target is now").await? {
                    Joined::Done(merge) => Ok(Base { merged: true, ..plain(&merge) }),
                    Joined::Conflict(paths) => {
                        Ok(Base { dropped: Some(Dropped { commit: line.to_owned(), paths }), ..plain(target) })
                    }
                }
            }
        }
    }

    /// Whether `commit` was just made on a base that contains `target`; saves a git call.
    pub(super) fn continues(&self, target: &str, commit: &str) -> bool {
        let Some(chosen) = &self.chosen else { return false };
        let on = |base: &str| self.made.as_ref().is_some_and(|(made, parent)| made == commit && parent == base);
        chosen.target.as_deref() == Some(target)
            && chosen.base.dropped.is_none()
            && chosen.base.commit.as_deref().is_some_and(on)
    }

    /// Keeps the result of the turn.
    pub async fn collect(
        &mut self,
        commit_meta: &CommitMeta<'_>,
        started: &Started<'_>,
    ) -> Result<Collected, WorkspaceError> {
        self.arrive(None);
        let turn = commit_meta.turn();
        let note: Option<Note> =
            files::read_note(&self.note_path()).map_err(WorkspaceError::files("read", &self.note_path()))?;
        let mut note = note.filter(|n| n.turn == turn).ok_or(WorkspaceError::Unprepared { turn })?;
        match started.base {
            Some(base) => base.clone_into(&mut note.base),
            None => self.confirm(&note.base, started.work).await?,
        }
        self.turn.check()?;
        let path = self.turn.path.clone();
        let sealed = files::apart(move || Ok(fingerprint::take(&path))).await?.ok();
        if sealed.is_some() && sealed == self.turn.sealed && self.turn.at.as_ref() == Some(&note.base) {
            return Ok(Collected::default());
        }
        let git = self.turn_git(&note.base).await?;
        let id_bytes = sweep::id_bytes(&note.base);
        // Meanwhile the folder of the checks, which no turn can reach, is made ready for the work.
        let ahead = self.set_out(id_bytes);
        let (paths, mut notes) = self.differing(&git, id_bytes).await?;
        let forced = if clone::index_mark(&self.turn.path) == self.turn.mark && self.turn.mark.is_some() {
            Vec::new()
        } else {
            clone::indexed(&self.turn.path, id_bytes)
        };
        let gathered = gather(&self.turn.path, &self.own.index(Side::Turn), paths, (forced, id_bytes))?;
        notes.extend(gathered.notes.iter().cloned());
        let nothing = Collected { notes: notes.clone(), ..Collected::default() };
        if gathered.is_empty() {
            self.stay(ahead).await;
            (self.turn.at, self.turn.sealed) = (Some(note.base), sealed);
            return Ok(nothing);
        }
        let from = self.trees_of([&note.base, &self.start]).await?;
        // The index is that of the base no more, whatever comes of this.
        self.turn.at = None;
        let (tree, gathered) = self.stage(&git, gathered, id_bytes).await?;
        if tree == from[0] {
            self.stay(ahead).await;
            (self.turn.at, self.turn.sealed) = (Some(note.base), sealed);
            return Ok(nothing);
        }
        let parents = if note.rootless { vec![] } else { vec![note.base.as_str()] };
        let message = message(commit_meta, &self.turn.path, &gathered.names());
        let shape = [&[tree.as_str()], &parents[..]].concat().join(" ");
        let kept = async {
            let made = self.commit(commit_meta.author, &tree, &parents, &message).await?;
            self.keep(commit_meta, &made, &shape).await
        };
        // What the work changes in all is needed before the checks run, and one process finds both.
        let compared = diff::to_tree(self.git(), &self.sessions.lists, &from, &tree);
        let known = [(&note.base, &from[0]), (&self.start, &from[1])];
        let tree_of = |commit: &str| known.iter().find(|known| known.0 == commit).map(|known| known.1.as_str());
        let examined = started.examined_from.map(|commit| (commit, tree_of(commit)));
        let patch = experiment::known((self.git(), &self.sessions.patches), examined, &tree);
        let (kept, compared, patch, ready) = tokio::join!(kept, compared, patch, self.go_ahead(ahead, &tree));
        let ((commit, pin), mut compared) = (kept?, compared?.into_iter());
        self.patch = patch?.map(|patch| KnownPatch { to: commit.clone(), ..patch });
        let files = compared.next().unwrap_or_default();
        let (diffstat, changes) = (diff::sum(&files), diff::paths(files));
        self.keep_rules(&notes, &changes, (&note.base, &commit));
        self.arrive(ready);
        let [base, start] = from;
        self.trees = [(self.start.clone(), start), (note.base.clone(), base), (commit.clone(), tree)].into();
        self.since_start = compared.next().map(|files| (commit.clone(), diff::paths(files)));
        let violations = self.violations(&changes, (&note.base, &commit)).await?;
        (self.turn.at, self.turn.sealed) = (Some(commit.clone()), None);
        self.made = (!note.rootless && violations.is_empty()).then(|| (commit.clone(), note.base.clone()));
        let (base, commit, pin) = (Some(note.base), Some(commit), Some(pin));
        Ok(Collected { changed: true, commit, pin, diffstat, changes, violations, notes, base })
    }

    /// Remembers what a move between the base of the turn and its work can rely on.
    fn keep_rules(&mut self, notes: &[String], changes: &[PathChange], (base, commit): (&str, &str)) {
        if !notes.is_empty() {
            // Something was left out, and only git finds it again.
            self.turn.ignored = None;
        }
        let rules = changes.iter().any(|change| change.path.file_name() == Some(OsStr::new(changed::RULES)));
        self.turn.same_rules = (!rules).then(|| (base.to_owned(), commit.to_owned()));
    }

    /// Files that differ from the index, which holds the base of the turn, or may differ.
    async fn differing(&mut self, git: &Git, id_bytes: usize) -> Result<(Vec<PathBuf>, Vec<String>), WorkspaceError> {
        if let Some(ignored) = self.turn.ignored.take() {
            let (tree, index) = (self.turn.path.clone(), self.own.index(Side::Turn));
            let comparison = Comparison { tree, index, id_bytes, ignored: Arc::clone(&ignored) };
            if let Some(compared) = files::apart(move || Ok(comparison.run())).await?
                && let Some(paths) = self.with_new(compared, ignored).await
            {
                return Ok((paths, Vec::new()));
            }
        }
        self.sessions.ignored.end().await;
        let (look, notes) = self.look(git).await?;
        self.turn.ignored = Some(Arc::new(look.ignored));
        Ok((look.paths, notes))
    }

    /// What differs, with the new files that are not ignored; `None` when git does not answer.
    async fn with_new(&mut self, compared: Compared, mut ignored: Arc<HashSet<Vec<u8>>>) -> Option<Vec<PathBuf>> {
        let Compared { mut differ, new } = compared;
        if !new.is_empty() {
            let names: Vec<&[u8]> = new.iter().map(|path| path.as_os_str().as_bytes()).collect();
            let answers = self.sessions.ignored.ignored(&names).await?;
            for (path, is_ignored) in new.into_iter().zip(answers) {
                if is_ignored {
                    Arc::make_mut(&mut ignored).insert(path.as_os_str().as_bytes().to_vec());
                } else {
                    differ.push(path);
                }
            }
        }
        self.turn.ignored = Some(ignored);
        Some(differ)
    }

    /// What differs. Repositories that the agent created inside the tree are taken as plain files:
    /// git would keep only a link to a commit that exists nowhere else.
    async fn look(&self, git: &Git) -> Result<(TreeStatus, Vec<String>), WorkspaceError> {
        let mut notes = Vec::new();
        for _ in 0..NESTED_DEPTH {
            let look = status(git, Detail::FilesAndIgnored).await?;
            if look.nested.is_empty() {
                return Ok((look, notes));
            }
            for folder in &look.nested {
                let inner = self.turn.path.join(folder).join(".git");
                files::set_aside(&inner, &self.turn.strays()).map_err(WorkspaceError::files("move", &inner))?;
                notes.push(format!("the repository `{}` was taken as plain files", folder.display()));
            }
        }
        let why = format!("repositories are nested more than {NESTED_DEPTH} deep");
        Err(WorkspaceError::Broken { path: self.turn.path.clone(), why })
    }

    /// git over the files of the turn, compared with `base`.
    async fn turn_git(&self, base: &str) -> Result<Git, WorkspaceError> {
        self.own.set_head(base)?;
        let git = self.own.over(&self.turn.path, Side::Turn).await?;
        if self.turn.at.as_deref() != Some(base) {
            // Another supervisor prepared the turn, or an earlier collection took its files: the
            // index is made that of the base again, and keeps what it knows about the files.
            if git.run(&["read-tree", "--reset", base]).await?.code != 0 {
                let index = self.own.index(Side::Turn);
                files::remove(&index).map_err(WorkspaceError::files("remove", &index))?;
                git.bytes(&["read-tree", base]).await?;
            }
        }
        Ok(git)
    }

    /// The trees of two commits; those of the last turn are known, and the index knows that of its own.
    async fn trees_of(&self, commits: [&str; 2]) -> Result<[String; 2], WorkspaceError> {
        let mut known = commits.map(|commit| self.trees.get(commit).cloned());
        if known.contains(&None)
            && let Some(at) = self.turn.at.as_deref()
            && let Some(tree) = index::tree_of(&self.own.index(Side::Turn), sweep::id_bytes(at))
        {
            for (known, _) in known.iter_mut().zip(commits).filter(|(_, commit)| *commit == at) {
                known.get_or_insert_with(|| tree.clone());
            }
        }
        if let [Some(first), Some(second)] = known {
            return Ok([first, second]);
        }
        let names = commits.map(|commit| format!("{commit}^{{tree}}"));
        let found = self.git().line(&["rev-parse", &names[0], &names[1]]).await?;
        let (first, second) = found.split_once('\n').unwrap_or((&found, &found));
        Ok([first.to_owned(), second.to_owned()])
    }

    /// Refuses a base that neither the ledger nor the target knows.
    async fn confirm(&self, base: &str, work: Option<&str>) -> Result<(), WorkspaceError> {
        let known = |commit: Option<&str>| commit == Some(base);
        if known(work) || known(Some(&self.start)) || known(self.empty.as_deref()) {
            return Ok(());
        }
        let git = self.git();
        let parents = git.line(&["rev-list", "-n1", "--parents", base, "--"]).await.unwrap_or_default();
        if work.is_some_and(|work| parents.split(' ').skip(1).any(|parent| parent == work)) {
            return Ok(());
        }
        if let Some(target) = self.refs.commit(&self.target).await?
            && git.run(&["merge-base", "--is-ancestor", base, &target]).await?.code == 0
        {
            return Ok(());
        }
        let why = format!("its note names the base `{base}`, which is not the loop's");
        Err(WorkspaceError::Broken { path: self.turn.path.clone(), why })
    }

    fn note_path(&self) -> PathBuf {
        self.root.join("turn.json")
    }
}

/// The message of a turn's commit: what was done, the goal, and the first lines of the agent's own
/// commits.
fn message(commit_meta: &CommitMeta<'_>, tree: &Path, files: &[String]) -> String {
    let own = clone::own_commits(tree);
    let subject = commit_message::subject(&WorkDone { commits: &own, files, ..commit_meta.done });
    let said = match own.as_slice() {
        [] => String::new(),
        own => format!("The agent's own commits:\n- {}\n\n", own.join("\n- ")),
    };
    format!("{subject}\n\n{}{said}{}", commit_message::goal(commit_meta.goal), trailers(commit_meta))
}
