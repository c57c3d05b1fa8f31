//! The wake pipe: a named pipe in the state folder. Clients write a byte; the supervisor reads the
//! ledger. A wake-up is only a hint.

use std::os::unix::fs::FileTypeExt;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use crate::error::Failure;
use crate::state_folder::StateFolder;

/// The supervisor's end of the wake pipe.
pub struct WakePipe {
    pipe: Receiver,
}

impl WakePipe {
    /// Creates the pipe if missing and opens it.
    pub fn hang(home: &StateFolder) -> Result<Self, Failure> {
        let path = home.wake_pipe();
        let cannot = |e: &std::io::Error| Failure::failed(format!("cannot listen on `{}`", path.display())).because(e);
        let is_pipe = std::fs::symlink_metadata(&path).is_ok_and(|m| m.file_type().is_fifo());
        if !is_pipe {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(&e)),
                _ => mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| cannot(&e.into()))?,
            }
        }
        // Read and write, so that the last client to go does not close it for good.
        let pipe = OpenOptions::new().read_write(true).open_receiver(&path).map_err(|e| cannot(&e))?;
        Ok(Self { pipe })
    }

    /// Waits for the next wake-up; several at once are one. Safe to drop.
    pub async fn rung(&mut self) {
        let mut rings = [0; 256];
        loop {
            if self.pipe.readable().await.is_err() {
                // Without the pipe the timers alone must do.
                return std::future::pending().await;
            }
            match self.pipe.try_read(&mut rings) {
                Ok(_) => return,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }
}
