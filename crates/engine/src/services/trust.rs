//! Trust in the everloop.toml of folders: what a person accepted, and taking it back.

use std::path::{Path, PathBuf};

use everloop_core::time::Time;
use everloop_store::Sqlite;

use super::ServiceContext;
use crate::error::{Code, Failure};
use crate::projects::ProjectFile;
use crate::trust::{self, Accepted, Consent, FileHashes, Standing, TrustStore};

/// What was trusted.
#[derive(Debug)]
pub struct TrustAnswer {
    /// The folder of the file.
    pub root: PathBuf,
    pub hash: String,
    /// What it runs, calls and reads as secrets; untrusted text.
    pub commands: Vec<String>,
}

/// A folder with an accepted file.
#[derive(Debug)]
pub struct TrustedFolder {
    pub root: PathBuf,
    /// SHA-256 of what is in force.
    pub hash: String,
    pub by: String,
    pub via: String,
    pub at: Time,
    /// How the file in the folder compares with it now.
    pub standing: Standing,
}

/// Puts the file that is nearest to `dir` in force. Loops that exist keep their settings.
pub fn trust(context: &ServiceContext, dir: Option<&Path>) -> Result<TrustAnswer, Failure> {
    context.for_a_person("trust the configuration of a folder")?;
    let dir = match dir {
        None => context.dir.clone(),
        Some(dir) => {
            let found = context.dir.join(dir).canonicalize();
            found.map_err(|e| Failure::usage(format!("there is no folder `{}`", dir.display())).because(&e))?
        }
    };
    let Some(file) = trust::on_disk(&*context.projects, &dir) else {
        return Err(Failure::usage(format!("there is no readable everloop.toml in `{}` or above", dir.display()))
            .hint("`everloop init` writes one"));
    };
    // A file with a mistake could not be in force.
    context.projects.check(&file, context.now())?;
    let hash = accept(context, &file, "trust")?;
    Ok(TrustAnswer { commands: context.projects.commands(&file.text), root: file.root, hash })
}

/// Puts a file in force that a person's verb has read or written. The agent of a turn accepts
/// nothing: without an effect, so that its verb still does what it does in its own folder.
pub fn accept(context: &ServiceContext, file: &ProjectFile, via: &str) -> Result<String, Failure> {
    if !context.is_for_a_person() {
        return Ok(trust::hash_of(file.text.as_bytes()));
    }
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let by = context.caller.name();
    let hash = trust::accept(&mut ledger, file, Consent { by: &by, via, now: context.now() })?;
    home.wake();
    Ok(hash)
}

/// The file that `run` has read, if it may be accepted by `run` itself: `Err` with what is to be
/// decided when agents worked in the folder since another text was accepted, because the change
/// may be theirs.
pub fn by_run(context: &ServiceContext, ledger: &Sqlite, file: &ProjectFile) -> Result<Result<(), Undecided>, Failure> {
    let store = TrustStore::read(ledger)?;
    let accepted = store.accepted(&file.root);
    let is_same = |accepted: &Accepted| accepted.hash == trust::hash_of(file.text.as_bytes());
    if !context.is_for_a_person() || accepted.is_some_and(is_same) {
        return Ok(Ok(()));
    }
    if !trust::worked_since(ledger, &file.root, accepted)? {
        return Ok(Ok(()));
    }
    let before = accepted.map_or_else(Vec::new, |accepted| context.projects.commands(&accepted.text));
    let mut commands = context.projects.commands(&file.text);
    commands.retain(|line| !before.contains(line));
    Ok(Err(Undecided { root: file.root.clone(), commands }))
}

/// A file that changed while agents worked in its folder.
#[derive(Debug)]
pub struct Undecided {
    pub root: PathBuf,
    /// What it would run, call and read that the accepted one does not; untrusted text.
    pub commands: Vec<String>,
}

impl Undecided {
    /// The refusal where no person can be asked.
    pub fn refusal(&self) -> Failure {
        let root = self.root.display();
        let said =
            format!("everloop.toml in `{root}` changed since a person accepted it, and agents worked there since");
        Failure::new(Code::NeedsPerson, said)
            .hint("look at it; then `everloop config apply` takes it over, or `everloop run --yes`")
    }
}

/// Folders with an accepted file, and how their files compare with it.
pub fn list(context: &ServiceContext) -> Result<Vec<TrustedFolder>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(Vec::new()) };
    let store = TrustStore::read(&ledger)?;
    let mut hashes = FileHashes::default();
    let folder = |(root, accepted): (&Path, &Accepted)| {
        let found = store.compare(&*context.projects, root, &mut hashes);
        TrustedFolder {
            root: root.to_owned(),
            hash: accepted.hash.clone(),
            by: accepted.by.clone(),
            via: accepted.via.clone(),
            at: accepted.at,
            standing: found.map_or(Standing::Gone, |found| found.standing),
        }
    };
    Ok(store.folders().map(folder).collect())
}

/// Takes back what was accepted for a folder; returns the folder.
pub fn revoke(context: &ServiceContext, dir: &Path) -> Result<PathBuf, Failure> {
    context.for_a_person("revoke trust in a folder")?;
    let root = trust::canonical(&context.dir.join(dir));
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let by = context.caller.name();
    let consent = Consent { by: &by, via: "trust", now: context.now() };
    if !trust::revoke(&mut ledger, &*context.projects, &root, consent)? {
        return Err(Failure::usage(format!("nothing is trusted in `{}`", root.display()))
            .hint("`everloop trust --list` shows the folders"));
    }
    home.wake();
    Ok(root)
}

/// The file that is in force where the caller is.
pub fn in_force(context: &ServiceContext) -> Result<Option<ProjectFile>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(None) };
    Ok(TrustStore::read(&ledger)?.in_force(&*context.projects, &context.dir))
}

/// One line about a file at the caller that is not in force; `None` where there is none.
pub fn not_in_force(context: &ServiceContext) -> Result<Option<String>, Failure> {
    let home = context.home()?;
    let store = context.reader(&home)?.map(|ledger| TrustStore::read(&ledger)).transpose()?.unwrap_or_default();
    let found = store.compare(&*context.projects, &context.dir, &mut FileHashes::default());
    Ok(found.and_then(|found| trust::notice(&*context.projects, &found)))
}
