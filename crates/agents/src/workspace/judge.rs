//! What a turn may not change: protected files that were there when the loop began, and the files
//! that decide its checks. Finds them in a difference, and lays the person's version over the work
//! before checks run, so that a change that went unnoticed does not decide either.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everloop_core::judge_files::{Concern, Versions};
use everloop_core::planted::{self, Bug};

use super::checkouts::Checkouts;
use super::{ChangeKind, PathChange, Side, WorkspaceError, diff, files};
use crate::git::Git;
use crate::protect::Globs;

/// The commits around a change.
pub(super) struct Between<'a> {
    /// Where the loop began; determines which files existed.
    pub start: &'a str,
    pub from: &'a str,
    pub to: &'a str,
}

/// Paths among `changes` that are protected or that decide.
pub(super) async fn violations(
    git: &Git,
    globs: &Globs,
    changes: &[PathChange],
    between: &Between<'_>,
) -> Result<Vec<String>, WorkspaceError> {
    let may = |path: &Path| [true, false].iter().any(|existed| globs.concern(path, *existed) != Concern::Free);
    let changes: Vec<&PathChange> = changes.iter().filter(|change| may(&change.path)).collect();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let texts = Texts::read(git, &changes, between).await?;
    let broken = |change: &&&PathChange| {
        let path = &change.path;
        let existed = texts.get(between.start, path).is_some();
        let replaced = matches!(change.kind, ChangeKind::Removed | ChangeKind::Retyped);
        match globs.concern(path, existed) {
            Concern::Free => false,
            // Its text was not read, and no person gives a source such a name.
            Concern::InPart if path.as_os_str().as_bytes().contains(&b'\n') => true,
            Concern::Whole => true,
            Concern::InPart if existed && replaced && change.kind == ChangeKind::Retyped => true,
            Concern::InPart => {
                let versions =
                    Versions { existed, before: texts.get(between.from, path), after: texts.get(between.to, path) };
                globs.decides(path, versions)
            }
        }
    };
    Ok(changes.iter().filter(broken).map(|c| c.path.to_string_lossy().into_owned()).collect())
}

/// Texts of files in commits.
struct Texts(BTreeMap<Vec<u8>, String>);

impl Texts {
    /// One process for all of them.
    async fn read(git: &Git, changes: &[&PathChange], between: &Between<'_>) -> Result<Self, WorkspaceError> {
        let mut commits = vec![between.start, between.from, between.to];
        commits.dedup();
        let mut wanted = Vec::new();
        for path in changes.iter().map(|change| change.path.as_os_str().as_bytes()) {
            // A line break would make two names of one.
            if !path.contains(&b'\n') {
                wanted.extend(commits.iter().map(|commit| [commit.as_bytes(), b":", path].concat()));
            }
        }
        let mut input = wanted.join(&b'\n');
        input.push(b'\n');
        let format = "--batch=%(objecttype) %(objectsize)";
        let out = git.fed(&["cat-file", format], &input).await?.success()?;
        let (mut texts, mut rest) = (BTreeMap::new(), out.as_slice());
        for name in wanted {
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = rest.get(end + 1..).unwrap_or_default();
            let Some(size) = size_of(&head) else { continue };
            let body = rest.get(..size).unwrap_or(rest);
            rest = rest.get(size + 1..).unwrap_or_default();
            texts.insert(name, String::from_utf8_lossy(body).into_owned());
        }
        Ok(Self(texts))
    }

    fn get(&self, commit: &str, path: &Path) -> Option<&str> {
        let name = [commit.as_bytes(), b":", path.as_os_str().as_bytes()].concat();
        self.0.get(&name).map(String::as_str)
    }
}

/// The size in `blob 12`; `None` for an object that is missing.
fn size_of(head: &str) -> Option<usize> {
    let (kind, size) = head.split_once(' ')?;
    ["blob", "tree", "commit", "tag"].contains(&kind).then(|| size.parse().ok()).flatten()
}

impl Checkouts {
    /// Paths among the `changes` between two commits that are protected or that decide.
    pub(super) async fn violations(
        &mut self,
        changes: &[PathChange],
        (from, to): (&str, &str),
    ) -> Result<Vec<String>, WorkspaceError> {
        let between = Between { start: &self.start, from, to };
        let found = violations(self.git(), &self.globs, changes, &between).await?;
        if found.is_empty() {
            self.harmless = Some((from.to_owned(), to.to_owned()));
        }
        Ok(found)
    }

    /// Puts the person's version of everything that decides into the checks' checkout of `commit`.
    pub(super) async fn lay_over(&mut self, commit: &str) -> Result<(), WorkspaceError> {
        let start = self.start.clone();
        let known = self.harmless.as_ref().is_some_and(|(from, to)| *from == start && to == commit);
        if commit == start || known || planted::is(Bug::JudgeFilesNotLaidOver) {
            return Ok(());
        }
        let known = self.since_start.take_if(|(made, _)| made == commit).map(|(_, changes)| changes);
        let changes = match known {
            Some(changes) => changes,
            None => diff::paths(diff::files(self.git(), &start, commit).await?),
        };
        let differing = self.violations(&changes, (&start, commit)).await?;
        if differing.is_empty() {
            return Ok(());
        }
        let target = self.target_now().await?.filter(|target| *target != start);
        let mut sources: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for path in &differing {
            let source = match &target {
                Some(target) if self.is_persons(&start, target, path).await? => target,
                _ => &start,
            };
            sources.entry(source).or_default().push(path);
        }
        let git = self.own.over(self.verify.path(), Side::Verify).await?.with("GIT_LITERAL_PATHSPECS", "1");
        for (source, paths) in sources {
            self.restore(&git, source, &paths).await?;
        }
        self.spoil_verify();
        Ok(())
    }

    /// Whether the last change of `path` since the loop began is a person's: work that landed has a
    /// trailer.
    async fn is_persons(&self, start: &str, target: &str, path: &str) -> Result<bool, WorkspaceError> {
        let range = format!("{start}..{target}");
        let format = "--format=x%(trailers:key=Everloop-Turn,valueonly)";
        let git = self.git().clone().with("GIT_LITERAL_PATHSPECS", "1");
        let last = git.line(&["log", "-1", "--no-merges", "--no-show-signature", format, &range, "--", path]).await?;
        Ok(last.trim() == "x")
    }

    /// Makes `paths` in the checks' checkout what they are in `source`.
    async fn restore(&self, git: &Git, source: &str, paths: &[&String]) -> Result<(), WorkspaceError> {
        let list = ["ls-tree", "-r", "-z", "--full-tree", "--name-only", source, "--"];
        let there = git.bytes(&[&list[..], &words(paths)].concat()).await?;
        let there: Vec<&[u8]> = crate::git::records(&there).collect();
        let (old, new): (Vec<&String>, Vec<&String>) = paths.iter().partition(|path| there.contains(&path.as_bytes()));
        for path in new {
            let full = self.verify.path().join(OsStr::new(path.as_str()));
            files::remove(&full).map_err(WorkspaceError::files("remove", &full))?;
        }
        if !old.is_empty() {
            let take = ["checkout", "--quiet", source, "--"];
            git.bytes(&[&take[..], &words(&old)].concat()).await?;
        }
        Ok(())
    }
}

fn words<'a>(paths: &[&'a String]) -> Vec<&'a str> {
    paths.iter().map(|path| path.as_str()).collect()
}
