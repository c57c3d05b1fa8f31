//! The command of a monitor, a notifier, a mailbox or a tracker: isolated as its section says, in a
//! process group and with a folder for temporary files of its own, for a bounded time. It has no
//! job: nothing of it outlives the supervisor, and its result is only what it printed and how it
//! exited.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use everloop_core::isolation::advice::FailedCommand;
use everloop_core::isolation::{Isolation, IsolationMode};
use everloop_core::time::human;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::environment::Environment;
use crate::isolation::{Confined, Confinement};
use crate::job::temporary;

/// Bytes that are read of each stream; the rest is ignored.
const MAX_BYTES: u64 = 256 << 10;
/// Characters of a last line that stand in an error.
const LAST_CHARS: usize = 200;

/// A command with its input, its reach and its time.
#[derive(Clone, Debug)]
pub(crate) struct ShortCommand<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) dir: &'a Path,
    pub(crate) input: &'a str,
    pub(crate) isolation: &'a Isolation,
    pub(crate) within: Duration,
}

/// How it ended, with what it printed.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Finished {
    /// The last line that is not empty, of errors rather than of output.
    pub(crate) fn last_line(&self) -> String {
        let last = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.lines().rev().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
        };
        let line = last(&self.err).or_else(|| last(&self.out)).unwrap_or_default();
        line.chars().filter(|c| !c.is_control()).take(LAST_CHARS).collect()
    }
}

/// Removes the folder for temporary files with the command.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        temporary::remove(&self.0);
    }
}

impl ShortCommand<'_> {
    /// Runs it; kills it with its process group when it takes longer than it may. The error is a
    /// fragment that names the program.
    pub(crate) async fn run(&self) -> Result<Finished, String> {
        let program = self.argv.first().ok_or("there is no command")?;
        let (confinement, tmp) = self.confine().await?;
        let mut child = self
            .command(confinement, &tmp.0)
            .spawn()
            .map_err(|e| format!("`{program}` cannot be started: {e}{}", self.hint(&e.to_string())))?;
        let group = child.id().map(|id| Pid::from_raw(id.cast_signed()));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            let write = async {
                if let Some(mut pipe) = stdin {
                    // A program that does not read all of its input may still succeed.
                    pipe.write_all(self.input.as_bytes()).await.ok();
                }
            };
            let ((), out, err) = tokio::join!(write, first_bytes(stdout), first_bytes(stderr));
            child.wait().await.map(|status| Finished { status, out, err })
        };
        let ended = timeout(self.within, talk).await;
        if let Some(group) = group {
            // Its background processes have had their time. An error means that the group is
            // already gone.
            killpg(group, Signal::SIGKILL).ok();
        }
        match ended {
            Ok(Ok(finished)) => Ok(finished),
            Ok(Err(e)) => Err(format!("`{program}`: {e}")),
            Err(_) => Err(format!("`{program}` took longer than {}", human(self.within))),
        }
    }

    /// What opens what it seems to have needed, as the end of a sentence.
    pub(crate) fn hint(&self, said: &str) -> String {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let words = self.argv.join(" ");
        let exists = |path: &Path| path.exists();
        FailedCommand { words: &words, said, isolation: self.isolation, home: &home, exists: &exists }.hint()
    }

    /// The isolation, made on another thread: it looks at some hundred files.
    async fn confine(&self) -> Result<(Confinement, Temporary), String> {
        let (isolation, argv, dir) = (self.isolation.clone(), self.argv.to_vec(), self.dir.to_owned());
        let made = spawn_blocking(move || {
            let tmp = Temporary(temporary::make()?);
            let of = Confined { isolation: &isolation, argv: &argv, cwd: &dir, tmp: &tmp.0, shared: None };
            let confinement = match isolation.mode {
                IsolationMode::None => Confinement::open(&argv),
                _ => Confinement::prepare(of).map_err(|why| format!("cannot isolate `{}`: {why}", argv[0]))?,
            };
            Ok((confinement, tmp))
        });
        made.await.map_err(|e| e.to_string())?
    }

    /// The process to start.
    fn command(&self, confinement: Confinement, tmp: &Path) -> Command {
        let mut command = Command::new(&confinement.argv[0]);
        command.args(&confinement.argv[1..]).current_dir(self.dir);
        command.env_clear().envs(Environment::from_ours(&[]).into_vars());
        command.envs([("TMPDIR", tmp), ("TMP", tmp), ("TEMP", tmp)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        #[expect(unsafe_code, reason = "an isolation is entered between fork and exec")]
        // SAFETY: with an open network, which these commands have, entering only makes system calls
        // on what was prepared before the fork; it takes no lock and allocates nothing.
        unsafe {
            command.pre_exec(move || confinement.enter().map_err(io::Error::from));
        }
        command
    }
}

/// The beginning of a stream. A command that writes more gets a closed pipe; what it wrote before
/// counts.
async fn first_bytes(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_BYTES).read_to_end(&mut bytes).await.ok();
    }
    bytes
}
