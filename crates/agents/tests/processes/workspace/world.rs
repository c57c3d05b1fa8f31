//! One builder for all tests: a person's folder, a state folder next to it, and turns taken by
//! closures.

use std::fs;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use everloop_agents::workspace::{Base, Collected, CommitMeta, Started, Workspace, WorkspaceOptions, discover};
use everloop_core::action::Integration;
use everloop_core::event::Integrated;
use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::spec::{Integrate, WorkspaceMode, WorkspaceSpec};
use libtest_mimic::Failed;
use tempfile::TempDir;

/// The result of a test.
pub type Done = Result<(), Failed>;

/// A person's folder and everloop's state next to it.
pub struct World {
    _temp: TempDir,
    pub dir: PathBuf,
    pub root: PathBuf,
    pub owner: LoopId,
}

/// Runs a future to its end.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime needs nothing special").block_on(future)
}

impl World {
    /// A folder without git.
    pub fn plain() -> Self {
        let temp = tempfile::tempdir().expect("there is room for a folder");
        let base = temp.path().canonicalize().expect("it was just made");
        let (dir, root) = (base.join("user"), base.join("state").join("k3f9"));
        fs::create_dir(&dir).expect("the folder above is ours");
        Self { _temp: temp, dir, root, owner: LoopId::new("k3f9") }
    }

    /// A repository without commits.
    pub fn unborn() -> Self {
        let world = Self::plain();
        world.git("init -q -b main");
        world.git("config user.name Person");
        world.git("config user.email op@example.com");
        world
    }

    /// A repository with one commit of three files.
    pub fn new() -> Self {
        let world = Self::unborn();
        world.write("a.txt", "one\ntwo\nthree\n").write("sub/b.txt", "b\n").write("tests/t.sh", "exit 1\n");
        world.write(".gitignore", "*.log\ncache/\n").commit("first");
        world
    }

    /// Runs git as the person; must succeed.
    pub fn git(&self, args: &str) -> String {
        git_in(&self.dir, &args.split(' ').collect::<Vec<_>>())
    }

    /// Writes a file of the person.
    pub fn write(&self, path: &str, text: &str) -> &Self {
        put(&self.dir, path, text);
        self
    }

    /// Commits everything as the person.
    pub fn commit(&self, message: &str) -> String {
        self.git("add -A");
        git_in(&self.dir, &["commit", "-q", "-m", message]);
        self.git("rev-parse HEAD")
    }

    /// The content of a file of the person.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(path)).ok()
    }

    pub async fn spec(&self, below: &str) -> WorkspaceSpec {
        let dir = self.dir.join(below);
        let place = discover(&dir).await.expect("the folder can be looked at");
        WorkspaceSpec {
            dir: dir.display().to_string(),
            mode: place.mode(&self.owner),
            integrate: Integrate::Progress,
            setup: None,
            include_dirty: false,
            protect: vec!["tests/**".to_owned()],
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        }
    }

    pub async fn open(&self) -> Workspace {
        self.open_as(self.spec("").await).await
    }

    pub async fn open_as(&self, spec: WorkspaceSpec) -> Workspace {
        let options = WorkspaceOptions { owner: self.owner.clone(), root: self.root.clone(), spec };
        Workspace::open(options).await.expect("the workspace opens")
    }

    pub async fn open_in_place(&self) -> Workspace {
        let spec = self.spec("").await;
        self.open_as(WorkspaceSpec { mode: WorkspaceMode::InPlace, ..spec }).await
    }

    pub fn task(&self, number: u32) -> TaskId {
        TaskId::of_loop(&self.owner, number)
    }

    /// A fingerprint of everything that belongs to the person: files, index, refs, stash, config,
    /// logs.
    pub fn operators_side(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let ours = [".git/worktrees", ".git/objects", ".git/refs/everloop"].map(|p| self.dir.join(p));
        let mut found = Vec::new();
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
                let path = entry.path();
                let meta = fs::symlink_metadata(&path).expect("it was just listed");
                if ours.contains(&path) {
                    continue;
                }
                if meta.is_dir() {
                    folders.push(path);
                } else {
                    let content = fs::read(&path).unwrap_or_default();
                    found.push((path, meta.mode(), content));
                }
            }
        }
        found.sort();
        found
    }

    /// Messages on `branch` that carry the trailer of `task`.
    pub fn trailers(&self, branch: &str, task: &TaskId) -> usize {
        let log = git_in(&self.dir, &["log", "--format=%(trailers:key=Task-Id,valueonly)", branch]);
        log.lines().filter(|line| *line == task.as_str()).count()
    }
}

/// A turn: prepares, lets `agent` work in the folder, collects.
pub async fn turn(
    world: &World,
    workspace: &mut Workspace,
    (number, work): (u32, Option<&str>),
    agent: impl FnOnce(&Path),
) -> Result<(Base, Collected), Failed> {
    let task = world.task(number);
    let commit_meta = CommitMeta::new(&task, Fence(1), "work of a turn");
    let base = workspace.prepare_turn(&commit_meta.turn(), work).await?;
    agent(&workspace.turn_dir());
    let started = Started { base: base.commit.as_deref(), work, examined_from: None };
    let collected = workspace.collect(&commit_meta, &started).await?;
    Ok((base, collected))
}

/// Takes a turn and lands its work.
pub async fn land(
    world: &World,
    workspace: &mut Workspace,
    number: u32,
    agent: impl FnOnce(&Path),
) -> Result<(String, Integration), Failed> {
    let (_, collected) = turn(world, workspace, (number, None), agent).await?;
    let commit = collected.commit.ok_or("the turn changed something")?;
    let landed = workspace.integrate(&world.task(number), &commit, None).await?;
    Ok((commit, landed))
}

/// Whether the work landed as `commit`.
pub fn landed(integration: &Integration, commit: &str) -> bool {
    matches!(integration, Integration::Done(Integrated::Landed { commit: on }) if on == commit)
}

/// Why work did not land.
pub fn aside(integration: Integration) -> Result<(String, String), Failed> {
    match integration {
        Integration::Done(Integrated::Aside { why, command, .. }) => Ok((why, command)),
        other => Err(format!("not left aside: {other:?}").into()),
    }
}

/// Writes `text` to `dir/path`.
pub fn put(dir: &Path, path: &str, text: &str) {
    let full = dir.join(path);
    fs::create_dir_all(full.parent().expect("a file is in a folder")).expect("the folder can be made");
    fs::write(full, text).expect("the file can be written");
}

/// Runs git in `dir` with an identity of its own; must succeed.
pub fn git_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Somebody", "-c", "user.email=some@body", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("git is installed");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {args:?}: {out}{err}");
    out.trim().to_owned()
}

/// Fails with a message unless `condition` holds.
macro_rules! ensure {
    ($condition:expr) => {
        if !$condition {
            return Err(format!("{}:{}: not so: {}", file!(), line!(), stringify!($condition)).into());
        }
    };
    ($condition:expr, $($shown:tt)+) => {
        if !$condition {
            return Err(format!("{}:{}: not so: {}: {}", file!(), line!(), stringify!($condition), format!($($shown)+)).into());
        }
    };
}
pub(crate) use ensure;
