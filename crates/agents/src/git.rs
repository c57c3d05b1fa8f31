//! Runs git: one process per call, with a deadline, capped output and no environment variable that
//! could change its behaviour. Owns how git is called; which calls are made is the workspace's
//! business.
//!
//! Files are data that an agent may have written. So no call runs hooks, a file system monitor, an
//! external diff, an editor, a pager or a transport helper, replaces objects by others, fetches
//! missing ones, or waits for a prompt. Calls over the files of a turn use everloop's own git folder
//! ([`Git::own`]), with settings taken when the loop was made and none of the machine's files.
//! Calls in a person's repository ([`Git::operators`], [`Git::shared`]) read the person's
//! configuration and only move refs or files there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use everloop_core::time::human;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{AccessFlags, Pid, access};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

pub use session::GitSession;

mod session;

/// Most calls return in milliseconds; a minute means a dead disk or a lock.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// For calls that write a whole tree: a large repository on a slow disk with filters needs minutes.
pub const LONG_DEADLINE: Duration = Duration::from_secs(600);

/// A list of a million paths fits; more is not a repository that a turn works in.
const STDOUT_CAP_BYTES: u64 = 128 << 20;

/// Enough for every message of git; the rest is read and dropped.
const STDERR_CAP_BYTES: u64 = 64 << 10;

/// git removes its lock files on SIGTERM, so SIGTERM comes before SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Settings of every call, over all configuration files.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.sshCommand=false",
    "core.editor=true",
    "core.pager=cat",
    "sequence.editor=true",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "core.safecrlf=false",
    "submodule.recurse=false",
    "merge.autoStash=false",
    "worktree.useRelativePaths=false",
    "merge.verifySignatures=false",
    "transfer.fsckObjects=true",
];

/// Settings of indexes of everloop, which everloop itself reads; a person's index stays as it is.
const INDEX_SETTINGS: &[&str] = &[
    "index.version=2",
    // Its checksum is verified by nothing, and takes most of the time of writing a large one.
    "index.skipHash=true",
    "index.sparse=false",
    "core.splitIndex=false",
    "core.trustctime=true",
    "core.checkStat=default",
];

/// For all calls but those of a mesh node to its remote: nothing is fetched.
const NO_TRANSPORT: &str = "protocol.allow=never";

/// Variables of the person that determine which configuration files git reads.
const CONFIG_FILES: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git or the folder to run it in does not exist.
    #[error("could not start git in `{dir}`")]
    Start { dir: String, source: io::Error },
    /// Its output could not be read.
    #[error("could not read the output of `git {command}`")]
    Read { command: String, source: io::Error },
    /// It was stopped at its deadline.
    #[error("`git {command}` took longer than {}", human(*.after))]
    Late { command: String, after: Duration },
    /// It wrote more than is held in memory.
    #[error("`git {command}` wrote more than {STDOUT_CAP_BYTES} bytes")]
    Flood { command: String },
    /// It exited with an error.
    #[error("`git {command}` failed ({code}): {stderr}")]
    Failed {
        command: String,
        /// Exit code; -1 after a signal.
        code: i32,
        /// Its standard error, in one line.
        stderr: String,
    },
}

/// The result of a call.
#[derive(Debug)]
pub struct Output {
    command: String,
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// The whole standard output.
    pub stdout: Vec<u8>,
    /// The start of standard error, in one line.
    pub stderr: String,
}

impl Output {
    /// The output of a call that must succeed.
    pub fn success(self) -> Result<Vec<u8>, GitError> {
        match self.code {
            0 => Ok(self.stdout),
            _ => Err(self.failure()),
        }
    }

    /// This result as an error.
    pub fn failure(self) -> GitError {
        GitError::Failed { command: self.command, code: self.code, stderr: self.stderr }
    }
}

/// A folder with the settings for running git there.
#[derive(Clone, Debug)]
pub struct Git {
    dir: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    settings: Vec<String>,
    deadline: Duration,
}

impl Git {
    /// In a person's repository: reading takes no locks and rewrites no index.
    pub fn operators(dir: &Path) -> Self {
        Self::at(dir).with("GIT_OPTIONAL_LOCKS", "0")
    }

    /// In the git folder `common` that all worktrees of a repository share, for calls that concern
    /// no worktree.
    pub fn shared(common: &Path) -> Self {
        Self::operators(common).with("GIT_DIR", common)
    }

    /// In a git folder of everloop that keeps its objects in the repository with the git folder
    /// `common`. No configuration and no attributes outside of `git_dir` are read.
    pub fn own(git_dir: &Path, common: &Path) -> Self {
        Self::at(git_dir)
            .with("GIT_DIR", git_dir)
            .with("GIT_OBJECT_DIRECTORY", common.join("objects"))
            .with("GIT_SHALLOW_FILE", common.join("shallow"))
            .with("GIT_CONFIG_GLOBAL", "/dev/null")
            .with("GIT_CONFIG_SYSTEM", "/dev/null")
            .with("GIT_CONFIG_NOSYSTEM", "1")
            .with("GIT_ATTR_NOSYSTEM", "1")
    }

    /// The same, over the files in `tree`, which `index` describes. The git folder is named, never
    /// discovered: what is called `.git` in the tree belongs to the agent.
    #[must_use]
    pub fn over(mut self, tree: &Path, index: &Path) -> Self {
        tree.clone_into(&mut self.dir);
        self.settings.extend(INDEX_SETTINGS.iter().map(|setting| (*setting).to_owned()));
        self.with("GIT_WORK_TREE", tree).with("GIT_INDEX_FILE", index)
    }

    /// In a clone of everloop that connects to its remote, with the person's keys and without
    /// prompts.
    pub fn sharing(dir: &Path) -> Self {
        let mut git =
            Self::at(dir).with("GIT_SSH_COMMAND", "ssh -o BatchMode=yes").with("GIT_CEILING_DIRECTORIES", dir);
        git.settings.retain(|setting| setting != NO_TRANSPORT);
        ["SSH_AUTH_SOCK", "GIT_ASKPASS"].into_iter().fold(git, |git, name| match std::env::var_os(name) {
            Some(value) => git.with(name, value),
            None => git,
        })
    }

    fn at(dir: &Path) -> Self {
        let variable = |name: &&'static str| Some((*name, std::env::var_os(name)?));
        let variables = CONFIG_FILES.iter().filter_map(variable).collect();
        Self { dir: dir.to_owned(), variables, settings: vec![NO_TRANSPORT.to_owned()], deadline: DEADLINE }
    }

    /// Sets another deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    /// Dates all commits `seconds` after 1970, so that the same content gives the same commit.
    #[must_use]
    pub fn dated(self, seconds: u64) -> Self {
        let date = format!("@{seconds} +0000");
        self.with("GIT_AUTHOR_DATE", &date).with("GIT_COMMITTER_DATE", &date)
    }

    /// Runs `git args` and returns its result, whatever the exit code.
    pub async fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<Output, GitError> {
        self.fed(args, &[]).await
    }

    /// The same, with `input` on its standard input.
    pub async fn fed<A: AsRef<OsStr>>(&self, args: &[A], input: &[u8]) -> Result<Output, GitError> {
        let command = describe(args);
        let mut start = self.command(args);
        start.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut child =
            start.spawn().map_err(|source| GitError::Start { dir: self.dir.display().to_string(), source })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let feed = write_all(child.stdin.take(), input);
        let talk = async {
            let (out, err, (), status) = tokio::join!(
                read_capped(out, STDOUT_CAP_BYTES),
                read_capped(err, STDERR_CAP_BYTES),
                feed,
                child.wait()
            );
            (out, err, status)
        };
        let Ok((out, err, status)) = timeout(self.deadline, talk).await else {
            stop(&mut child).await;
            return Err(GitError::Late { command, after: self.deadline });
        };
        let unreadable = |source| GitError::Read { command: command.clone(), source };
        let (out, err, status) = (out.map_err(unreadable)?, err.map_err(unreadable)?, status.map_err(unreadable)?);
        if out.flooded {
            return Err(GitError::Flood { command });
        }
        Ok(Output { command, code: status.code().unwrap_or(-1), stdout: out.bytes, stderr: one_line(&err.bytes) })
    }

    /// Runs `git args`, which must succeed, and returns its output.
    pub async fn bytes<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<Vec<u8>, GitError> {
        self.run(args).await?.success()
    }

    /// Like [`Git::bytes`], for output of one line.
    pub async fn line<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String, GitError> {
        let mut out = self.bytes(args).await?;
        if out.last() == Some(&b'\n') {
            out.pop();
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Like [`Git::line`], for output that is a path.
    pub async fn path<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<PathBuf, GitError> {
        let out = self.bytes(args).await?;
        Ok(path_from(out.strip_suffix(b"\n").unwrap_or(&out)))
    }

    /// Runs a query: exit code 0 is yes, 1 is no, all else an error.
    pub async fn asks<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<bool, GitError> {
        let output = self.run(args).await?;
        match output.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(output.failure()),
        }
    }

    /// The commit that `name` resolves to, if there is one.
    pub async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let output = self.run(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]).await?;
        match output.code {
            0 => Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())),
            1 => Ok(None),
            _ => Err(output.failure()),
        }
    }

    fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(program());
        command.env_clear();
        for name in ["PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("LANG", "C").env("GIT_TERMINAL_PROMPT", "0");
        // An object stands for itself, and one that is missing is missing.
        command.env("GIT_NO_REPLACE_OBJECTS", "1").env("GIT_NO_LAZY_FETCH", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "everloop").env(format!("GIT_{who}_EMAIL"), "everloop@localhost");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.arg("-c").arg(setting);
        }
        command.args(args).current_dir(&self.dir);
        // Its own group: an interrupt at the terminal is for everloop and must not cut a merge in
        // half.
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }
}

/// git by its path. By its name alone, with a `PATH` for the new process, the standard library
/// forks, which copies the memory map of the supervisor for each call.
fn program() -> PathBuf {
    let usable = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let absolute = std::env::split_paths(&folders).filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join("git")).find(usable).unwrap_or_else(|| PathBuf::from("git"))
}

/// Feeds a process. If it ends without reading everything, its exit code is the result.
async fn write_all(pipe: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut pipe) = pipe {
        pipe.write_all(input).await.ok();
    }
}

struct Capped {
    bytes: Vec<u8>,
    flooded: bool,
}

/// Reads to the end and keeps the first `cap` bytes.
async fn read_capped(pipe: Option<impl AsyncRead + Unpin>, cap: u64) -> io::Result<Capped> {
    let mut bytes = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(Capped { bytes, flooded: false }) };
    (&mut pipe).take(cap).read_to_end(&mut bytes).await?;
    let beyond = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(Capped { bytes, flooded: beyond > 0 })
}

/// Ends git and the filters that it started.
async fn stop(child: &mut Child) {
    let Some(group) = child.id().map(|id| Pid::from_raw(id.cast_signed())) else { return };
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // If the group is already gone, the wait returns at once.
        killpg(group, signal).ok();
        if timeout(TERM_GRACE, child.wait()).await.is_ok() {
            return;
        }
    }
}

/// A path as git prints it with `-z`.
pub fn path_from(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// The parts of output with `-z`.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0).filter(|part| !part.is_empty())
}

/// The arguments, shortened for a message.
fn describe<A: AsRef<OsStr>>(args: &[A]) -> String {
    const SHOWN_CHARS: usize = 120;
    let words: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
    words.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect()
}

/// Joins the lines of a message, without control characters.
fn one_line(bytes: &[u8]) -> String {
    const SHOWN_CHARS: usize = 600;
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("hint:")).collect();
    lines.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_one_line_without_hints() {
        assert_eq!(one_line(b"error: a\x1b[31m\nhint: b\n\nfatal: c\n"), "error: a [31m; fatal: c");
    }

    #[tokio::test]
    async fn a_call_that_hangs_is_stopped_at_its_deadline() {
        let git = Git::operators(Path::new("/")).within(Duration::from_millis(200));
        let started = std::time::Instant::now();
        let result = git.run(&["-c", "alias.nap=!sleep 60", "nap"]).await;
        assert!(matches!(result, Err(GitError::Late { .. })), "{result:?}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_failing_call_says_what_was_tried() {
        let error = Git::operators(Path::new("/")).bytes(&["no-such-verb"]).await.expect_err("there is no such verb");
        assert!(error.to_string().contains("git no-such-verb"), "{error}");
    }
}
