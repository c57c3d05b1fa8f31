//! Opens a model's paths confined to the workspace: `..`, a link, or a link swapped during the walk
//! cannot lead outside.
//!
//! Every component is opened on its own, relative to the folder before it, never following a link;
//! links are read and walked in the same way. So there is no window between check and use.
//! (`openat2` could do most of it, but not on every kernel, and it would not report whether the
//! path led through `.git`.)

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{Mode, mkdirat};

use super::Trouble;

/// The kernel's own limit.
const MOST_LINKS: u32 = 40;
/// Bound of the components of a path.
const DEEPEST: usize = 256;

/// The open folder below which all paths of the model are resolved.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    dir: OwnedFd,
}

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Reading a file or a folder.
    Reading,
    /// Changing a file that is there.
    Changing,
    /// Replacing a file; created, with its folders, if it does not exist.
    Making,
}

/// A walk through the workspace.
struct Walk<'r> {
    root: &'r Root,
    /// Folders from the top to the current one.
    open: Vec<OwnedFd>,
    /// Components still to be walked, the next one last.
    rest: Vec<OsString>,
    links: u32,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        let path = path.canonicalize().map_err(|e| format!("cannot open the workspace `{}`: {e}", path.display()))?;
        let dir = open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("cannot open the workspace `{}`: {e}", path.display()))?;
        Ok(Self { path, dir })
    }

    /// Opens `path`, relative to the workspace.
    pub(super) fn file(&self, path: &str, purpose: For) -> Result<File, Trouble> {
        let mut walk = Walk { root: self, open: Vec::new(), rest: Vec::new(), links: 0 };
        walk.add(Path::new(path))?;
        let file = walk.go(purpose).map_err(|e| match e {
            Stopped::Refused(why) => format!("`{}` {why}", super::super::clip(path)),
            Stopped::System(e) => format!("`{}`: {}", super::super::clip(path), io::Error::from(e)),
        })?;
        let file = File::from(file);
        let about = file.metadata().map_err(|e| format!("`{}`: {e}", super::super::clip(path)))?;
        let fits = about.is_file() || purpose == For::Reading && about.is_dir();
        // Reading a pipe or a device could block for ever.
        if !fits {
            return Err(format!("`{}` is not a regular file", super::super::clip(path)));
        }
        if purpose != For::Reading && about.nlink() > 1 {
            // The other name may be outside of the workspace.
            return Err(format!("`{}` has several names (hard links); it is not changed", super::super::clip(path)));
        }
        Ok(file)
    }
}

enum Stopped {
    Refused(&'static str),
    System(Errno),
}

impl From<Errno> for Stopped {
    fn from(e: Errno) -> Self {
        Stopped::System(e)
    }
}

const OUTSIDE: Stopped = Stopped::Refused("is outside of the workspace");

impl Walk<'_> {
    /// Puts the components of a path before those still to be walked.
    fn add(&mut self, path: &Path) -> Result<(), Trouble> {
        self.splice(path).map_err(|e| match e {
            Stopped::Refused(why) => format!("`{}` {why}", super::super::clip(&path.to_string_lossy())),
            Stopped::System(e) => e.desc().to_owned(),
        })
    }

    fn splice(&mut self, path: &Path) -> Result<(), Stopped> {
        let relative = if path.is_absolute() {
            self.open.clear();
            path.strip_prefix(&self.root.path).map_err(|_| OUTSIDE)?
        } else {
            path
        };
        for part in relative.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push(name.to_owned()),
                Component::ParentDir => self.rest.push(OsString::from("..")),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        if self.rest.len() + self.open.len() > DEEPEST {
            return Err(Stopped::Refused("is too deep"));
        }
        Ok(())
    }

    fn go(mut self, purpose: For) -> Result<OwnedFd, Stopped> {
        while let Some(name) = self.rest.pop() {
            if name == ".." {
                // Nothing is above the top; elsewhere `..` is the folder that the walk came
                // through, not the one that is there now.
                self.open.pop().ok_or(OUTSIDE)?;
                continue;
            }
            if name.eq_ignore_ascii_case(".git") {
                return Err(Stopped::Refused("belongs to git; it is left alone"));
            }
            if let Ok(target) = readlinkat(self.here(), name.as_os_str()) {
                self.links += 1;
                if self.links > MOST_LINKS {
                    return Err(Stopped::System(Errno::ELOOP));
                }
                self.splice(Path::new(&target))?;
                continue;
            }
            if self.rest.is_empty() {
                return self.last(&name, purpose);
            }
            let next = self.folder(&name, purpose)?;
            self.open.push(next);
        }
        // The workspace itself, or a folder that the path came back to.
        match purpose {
            For::Reading => Ok(openat(self.here(), ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?),
            For::Changing | For::Making => Err(Stopped::System(Errno::EISDIR)),
        }
    }

    fn here(&self) -> &OwnedFd {
        self.open.last().unwrap_or(&self.root.dir)
    }

    fn folder(&self, name: &OsStr, purpose: For) -> Result<OwnedFd, Stopped> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(self.here(), name, flags, Mode::empty()) {
            Err(Errno::ENOENT) if purpose == For::Making => {
                mkdirat(self.here(), name, Mode::from_bits_truncate(0o777))?;
                Ok(openat(self.here(), name, flags, Mode::empty())?)
            }
            other => Ok(other?),
        }
    }

    fn last(&self, name: &OsStr, purpose: For) -> Result<OwnedFd, Stopped> {
        // Without blocking: opening a pipe waits for its other end. It makes no difference for a
        // regular file.
        let common = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let flags = match purpose {
            For::Reading => OFlag::O_RDONLY,
            For::Changing => OFlag::O_RDWR,
            For::Making => OFlag::O_RDWR | OFlag::O_CREAT,
        };
        Ok(openat(self.here(), name, common | flags, Mode::from_bits_truncate(0o666))?)
    }
}
