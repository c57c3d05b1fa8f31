//! Paths of a model, opened so that they cannot leave the workspace: not by `..`, not by a link, not by a link that somebody
//! swaps while we look.
//!
//! Every part is opened by itself, below the folder before it, never following a link; links are read and walked in the same
//! way. So there is no moment between a check and its use. (`openat2` could do most of it, but not everywhere, and it would
//! not tell whether the way led through `.git`.)

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

/// As the kernel itself has it.
const MOST_LINKS: u32 = 40;
/// Parts of a path.
const DEEPEST: usize = 256;

/// The workspace.
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
    /// Replacing a file; made, with its folders, if it is not there.
    Making,
}

/// A walk through the workspace.
struct Walk<'r> {
    root: &'r Root,
    /// Folders from the top to where we are; their names are only for the refusal of `.git`.
    open: Vec<OwnedFd>,
    /// What is still to be walked, the next part last.
    rest: Vec<OsString>,
    links: u32,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        let path = path.canonicalize().map_err(|e| format!("the workspace `{}`: {e}", path.display()))?;
        let dir = open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("the workspace `{}`: {e}", path.display()))?;
        Ok(Self { path, dir })
    }

    /// Opens what `path` means below the workspace.
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
        // A pipe or a device would hang us or worse.
        if !fits {
            return Err(format!("`{}` is no plain file", super::super::clip(path)));
        }
        if purpose != For::Reading && about.nlink() > 1 {
            // The other name may be outside.
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
    /// Puts a path before what is still to be walked.
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
                // Above the top there is nothing; elsewhere the folder that we came from, not the one that is there now.
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
        // Without blocking: whoever opens a pipe waits for the other end. It makes no difference to a plain file.
        let common = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let flags = match purpose {
            For::Reading => OFlag::O_RDONLY,
            For::Changing => OFlag::O_RDWR,
            For::Making => OFlag::O_RDWR | OFlag::O_CREAT,
        };
        Ok(openat(self.here(), name, common | flags, Mode::from_bits_truncate(0o666))?)
    }
}
