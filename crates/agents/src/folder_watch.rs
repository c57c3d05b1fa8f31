//! The kernel's notices about files that are complete in one folder: closed after writing, or moved
//! there. Between two notices it costs nothing.

use std::ffi::OsString;
use std::path::Path;

/// The content of a notice.
#[derive(Debug, PartialEq, Eq)]
pub enum FolderNotice {
    /// These files are complete.
    Complete(Vec<OsString>),
    /// Notices were lost, or the folder is gone: only a look at all files shows what is there.
    Lost,
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, RawFd};

    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{FolderNotice, Path};

    struct Descriptor(Inotify);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    /// A folder that is watched until this is dropped.
    pub struct FolderWatch {
        notices: AsyncFd<Descriptor>,
    }

    impl FolderWatch {
        /// Watches a folder that is there. Files from before give no notice.
        pub fn start(dir: &Path) -> io::Result<Self> {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
            let wanted = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
            inotify.add_watch(dir, wanted | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_ONLYDIR)?;
            // SAFETY: `Descriptor` owns the descriptor, never gives it away and always names the same.
            #[expect(unsafe_code, reason = "tokio cannot know that a descriptor stays open")]
            let notices = unsafe { AsyncFd::register_with_interest(Descriptor(inotify), Interest::READABLE) };
            Ok(Self { notices: notices.map_err(io::Error::from)? })
        }

        /// Waits for the next notice. Safe to drop.
        pub async fn next(&mut self) -> FolderNotice {
            loop {
                let Ok(mut ready) = self.notices.readable().await else { return FolderNotice::Lost };
                let events = match ready.get_inner().0.read_events() {
                    Ok(events) => events,
                    Err(Errno::EAGAIN | Errno::EINTR) => {
                        ready.clear_ready();
                        continue;
                    }
                    Err(_) => return FolderNotice::Lost,
                };
                let lost = AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_IGNORED;
                if events.iter().any(|event| event.mask.intersects(lost)) {
                    return FolderNotice::Lost;
                }
                return FolderNotice::Complete(events.into_iter().filter_map(|event| event.name).collect());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::io;

    use super::{FolderNotice, Path};

    /// No folder is watched here; the supervisor's look around finds the files.
    pub struct FolderWatch;

    impl FolderWatch {
        /// There is nothing to watch with.
        pub fn start(_dir: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// Never comes, because nothing is watched.
        pub async fn next(&mut self) -> FolderNotice {
            std::future::pending().await
        }
    }
}

pub use kernel::FolderWatch;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_file_is_reported_when_it_is_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut watch = FolderWatch::start(dir.path()).expect("the folder is there");
        fs::write(dir.path().join("a"), "x").expect("it can be written");
        assert_eq!(watch.next().await, FolderNotice::Complete(vec!["a".into()]));
        let elsewhere = tempfile::NamedTempFile::new_in(dir.path().parent().expect("it has one")).expect("a file");
        fs::rename(elsewhere.path(), dir.path().join("b")).expect("it can be moved");
        assert_eq!(watch.next().await, FolderNotice::Complete(vec!["b".into()]));
        drop(elsewhere.into_temp_path().keep());
        fs::remove_dir_all(dir.path()).expect("it can be removed");
        assert_eq!(watch.next().await, FolderNotice::Lost);
    }

    #[tokio::test]
    async fn what_is_no_folder_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(FolderWatch::start(&dir.path().join("missing")).is_err());
        fs::write(dir.path().join("a"), "").expect("it can be written");
        assert!(FolderWatch::start(&dir.path().join("a")).is_err());
    }
}
