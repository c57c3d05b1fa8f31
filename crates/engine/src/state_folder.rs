//! The state folder: everything that everloop remembers on this machine. Private to the user
//! (0700).

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use everloop_agents::process::Identity;
use everloop_core::ids::{LoopId, NodeId, TurnId};
use everloop_core::time::Time;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// Held by the supervisor, which writes its owner record into it.
const LOCK: &str = "supervisor.lock";

/// Reading the owner takes the lock for microseconds; many readers at once take no longer than
/// this.
const LOCK_WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Replaces a file by `bytes`, whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&aside, path)
}

/// The folder of the ledger and everything else that outlives a process. Knows all paths in it.
#[derive(Clone, Debug)]
pub struct StateFolder {
    root: PathBuf,
}

/// The process that supervises this folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockOwner {
    pub process: Identity,
    /// `up` or `run`.
    pub role: String,
    pub since: Time,
}

/// The right to supervise; held as long as this value lives.
pub struct Ownership {
    _lock: Flock<File>,
}

impl StateFolder {
    /// Opens the given folder, else the one of the XDG rules; creates it if missing.
    pub fn open(explicit: Option<&Path>) -> Result<Self, Failure> {
        let home = Self { root: Self::place(explicit)? };
        home.make(&home.root)?;
        Ok(home)
    }

    /// Where that folder is, or would be.
    pub fn place(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
        match explicit {
            Some(path) => std::path::absolute(path).map_err(|e| cannot("resolve", path, &e)),
            None => default_root(),
        }
    }

    /// The same folder if it exists; nothing of it is changed.
    pub fn existing(explicit: Option<&Path>) -> Option<Self> {
        let root = Self::place(explicit).ok()?;
        root.is_dir().then_some(Self { root })
    }

    /// The same folder if it exists and has a supervisor. Takes no lock, not even for a moment:
    /// this is called often, and a supervisor that starts meanwhile must not find the lock taken.
    pub fn supervised(explicit: Option<&Path>) -> Option<Self> {
        let root = Self::place(explicit).ok()?;
        let owner = std::fs::read_to_string(root.join(LOCK)).ok()?;
        let owner: LockOwner = serde_json::from_str(&owner).ok()?;
        owner.process.is_alive().then_some(Self { root })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The ledger of this node.
    pub fn database(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// The file that names the mesh.
    pub fn membership(&self) -> PathBuf {
        self.root.join("hub.json")
    }

    /// The key pair of this node of a mesh.
    pub fn mesh_key(&self) -> PathBuf {
        self.root.join("mesh-key.json")
    }

    /// The keys that this node of a mesh trusts.
    pub fn mesh_trust(&self) -> PathBuf {
        self.root.join("mesh-trust.json")
    }

    /// Clones of shared repositories, and the claims of a node.
    pub fn mesh(&self) -> PathBuf {
        self.root.join("mesh")
    }

    /// Records of research runs, a folder per run.
    pub fn research(&self) -> PathBuf {
        self.root.join("research")
    }

    /// The mirror: the ledger as plain files.
    pub fn mirror(&self) -> PathBuf {
        self.root.join("mirror")
    }

    /// The folder of turns: a folder per turn, with its job and its output.
    pub fn turns(&self) -> PathBuf {
        self.root.join("turns")
    }

    /// The named pipe through which clients wake the supervisor.
    pub fn wake_pipe(&self) -> PathBuf {
        self.root.join("bell")
    }

    /// The folder of signals that are files.
    pub fn signals(&self) -> PathBuf {
        self.root.join("signals")
    }

    /// The files of a persona's memory.
    pub fn persona(&self, name: &str) -> PathBuf {
        self.root.join("personas").join(name)
    }

    /// Address of the supervisor's HTTP port.
    pub fn http(&self) -> PathBuf {
        self.root.join("http.json")
    }

    /// The access token of the HTTP port.
    pub fn token(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The log of a detached supervisor.
    pub fn log(&self) -> PathBuf {
        self.root.join("everloop.log")
    }

    /// A turn's folder: prompt, output, exit record.
    pub fn turn(&self, turn: &TurnId) -> PathBuf {
        self.root.join("turns").join(turn.as_str())
    }

    /// Names of the variables that a loop was started with.
    pub fn needs(&self, id: &LoopId) -> PathBuf {
        self.root.join("brought").join(format!("{}.needs.json", id.as_str()))
    }

    /// The environment that a `run` brings along for a loop; removed as soon as it is read.
    pub fn brought(&self, id: &LoopId) -> PathBuf {
        self.root.join("brought").join(format!("{}.json", id.as_str()))
    }

    /// A loop's private clone and checkout.
    pub fn work(&self, id: &LoopId) -> PathBuf {
        self.root.join("work").join(id.as_str())
    }

    /// Job folders of a loop's checks.
    pub fn checks(&self, id: &LoopId) -> PathBuf {
        self.root.join("checks").join(id.as_str())
    }

    /// The last good copies of guarded files.
    pub fn copies(&self) -> PathBuf {
        self.root.join("copies")
    }

    /// Job folder of a loop's setup command.
    pub fn setup(&self, id: &LoopId) -> PathBuf {
        self.root.join("setup").join(id.as_str())
    }

    /// The folders of a loop that are there: clone and checkout, jobs of its checks and its setup,
    /// and turns: those of its own tasks, and `turns`.
    pub fn of_loop(&self, id: &LoopId, turns: &BTreeSet<TurnId>) -> Vec<PathBuf> {
        let own = format!("{id}-");
        let names = std::fs::read_dir(self.turns()).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let its = names.filter(|name| name.starts_with(&own) || turns.iter().any(|turn| turn.as_str() == name));
        let mut folders: Vec<PathBuf> = its.map(|name| self.turns().join(name)).collect();
        folders.sort();
        let others = [self.work(id), self.checks(id), self.setup(id), self.research().join(id.as_str())];
        folders.extend(others.into_iter().filter(|folder| folder.exists()));
        folders
    }

    /// Creates a private folder.
    pub fn make(&self, path: &Path) -> Result<(), Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| cannot("make", path, &e))?;
        if path == self.root {
            let mode = std::fs::metadata(path).map_err(|e| cannot("read", path, &e))?.permissions().mode();
            if mode & 0o077 != 0 {
                let private = std::fs::Permissions::from_mode(0o700);
                std::fs::set_permissions(path, private).map_err(|e| cannot("protect", path, &e))?;
            }
        }
        Ok(())
    }

    fn lock_file(&self) -> Result<File, Failure> {
        let path = self.root.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        opened.map_err(|e| cannot("open", &path, &e))
    }

    /// Takes the right to supervise, or returns its owner.
    pub fn own(&self, role: &str, now: Time) -> Result<Result<Ownership, Option<LockOwner>>, Failure> {
        let end = Instant::now() + LOCK_WAIT_TIMEOUT;
        let mut lock = loop {
            match Flock::lock(self.lock_file()?, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break lock,
                Err((_, Errno::EWOULDBLOCK)) => match self.owner() {
                    // Another process only read the owner: that is no reason to give up.
                    None if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                    owner => return Ok(Err(owner)),
                },
                Err((_, e)) => return Err(cannot("lock", &self.root, &e.into())),
            }
        };
        let process = Identity::current().map_err(|e| cannot("lock", &self.root, &e))?;
        let owner = LockOwner { process, role: role.to_owned(), since: now };
        let text = serde_json::to_string(&owner).expect("an owner is plain data and always has a JSON form");
        let written =
            lock.set_len(0).and_then(|()| lock.seek(SeekFrom::Start(0))).and_then(|_| lock.write_all(text.as_bytes()));
        written.map_err(|e| cannot("write", &self.root.join(LOCK), &e))?;
        Ok(Ok(Ownership { _lock: lock }))
    }

    /// The current owner, if any.
    pub fn owner(&self) -> Option<LockOwner> {
        let file = self.lock_file().ok()?;
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            // The lock was free; the shared lock goes with this value.
            Ok(_) => None,
            Err((mut file, _)) => {
                let mut text = String::new();
                file.seek(SeekFrom::Start(0)).ok()?;
                file.read_to_string(&mut text).ok()?;
                // A killed supervisor's child may hold the lock for the moment between its fork and
                // its exec.
                serde_json::from_str(&text).ok().filter(|o: &LockOwner| o.process.is_alive())
            }
        }
    }

    /// Whether a process holds the lock of the folder.
    pub fn is_owned(&self) -> bool {
        self.lock_file().is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
    }

    /// Wakes the supervisor, if there is one.
    pub fn wake(&self) {
        // No reader, a full pipe, no pipe at all: each means that no supervisor runs or that it is
        // awake already.
        let wake_pipe = OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(self.wake_pipe());
        if let Ok(mut wake_pipe) = wake_pipe {
            let _woken = wake_pipe.write(&[1]);
        }
    }
}

fn default_root() -> Result<PathBuf, Failure> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(state) = of("XDG_STATE_HOME").filter(|p| p.is_absolute()) {
        return Ok(state.join("everloop"));
    }
    let home = of("HOME").ok_or_else(|| {
        Failure::usage("neither `HOME` nor `XDG_STATE_HOME` is set")
            .hint("name a state folder with --state-dir or EVERLOOP_STATE_DIR")
    })?;
    Ok(home.join(".local/state/everloop"))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot {what} `{}`", path.display())).because(error)
}

/// This machine's name.
pub fn node_id() -> NodeId {
    let name = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok()).filter(|n| !n.is_empty());
    NodeId::new(name.unwrap_or_else(|| "localhost".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_keeps_nobody_from_supervising() {
        let dir = tempfile::tempdir().unwrap();
        let home = StateFolder::open(Some(dir.path())).unwrap();
        let looks = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while looks.load(std::sync::atomic::Ordering::Relaxed) {
                        home.owner();
                        home.is_owned();
                    }
                });
            }
            let owned = (0..200).filter(|_| home.own("up", Time(0)).unwrap().is_ok()).count();
            looks.store(false, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(owned, 200);
        });
        let _held = home.own("up", Time(0)).unwrap().ok().unwrap();
        assert!(home.own("run", Time(0)).unwrap().is_err_and(|owner| owner.is_some_and(|o| o.role == "up")));
    }
}
