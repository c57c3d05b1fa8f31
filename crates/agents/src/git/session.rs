//! A git process that answers many requests, one after the other, instead of one process for each.
//! Starting git costs several times what most requests do.
//!
//! It is started by the first request and ends by itself when none came for a while, when it is
//! dropped, or with this process: git ends when its input does, and a transaction on refs that is
//! under way then is given up by git itself. A session that fails in any way is ended and returns
//! nothing; the caller then makes a call of its own, which reports what is wrong.

use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use everloop_core::hex::hex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Git, STDOUT_CAP_BYTES, stop};

/// Without a request for so long the process ends. Turns of commands follow each other faster; while
/// a model works, nothing is held.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a mark that no text can hold by chance or intent.
const MARK_BYTES: usize = 16;

/// A git process for many requests.
#[derive(Debug)]
pub struct GitSession {
    git: Git,
    args: Vec<&'static str>,
    idle_timeout: Duration,
    idle: Arc<Mutex<Idle>>,
}

/// The process between two requests.
#[derive(Debug, Default)]
struct Idle {
    running: Option<Running>,
    /// A task ends it when it is idle for too long.
    watched: bool,
}

#[derive(Debug)]
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    used: Instant,
}

impl GitSession {
    /// A session of `git args`. Nothing is started yet.
    pub fn new(git: Git, args: &[&'static str]) -> Self {
        Self { git, args: args.to_vec(), idle_timeout: IDLE_TIMEOUT, idle: Arc::default() }
    }

    /// Ends the process: what it has read of files and settings is outdated.
    pub async fn end(&self) {
        self.idle.lock().await.running.take();
    }

    /// For `cat-file --batch`: the content of a blob.
    pub async fn blob(&self, id: &str) -> Option<Vec<u8>> {
        self.ask(format!("{id}\n").as_bytes(), async |running| {
            let head = running.line().await?;
            let size = head.strip_prefix(&format!("{id} blob "))?.parse::<u64>().ok()?;
            if size > STDOUT_CAP_BYTES {
                return None;
            }
            let mut content = vec![0; usize::try_from(size).ok()? + 1];
            running.output.read_exact(&mut content).await.ok()?;
            (content.pop() == Some(b'\n')).then_some(content)
        })
        .await
    }

    /// For `diff-tree --stdin`: what git writes about pairs of trees, one in each line. git repeats a
    /// line that names no tree, which marks the end.
    pub async fn compare(&self, pairs: &str) -> Option<Vec<u8>> {
        let mut mark = [0; MARK_BYTES];
        getrandom::fill(&mut mark).ok()?;
        let mark = format!("end {}\n", hex(&mark));
        self.ask(format!("{pairs}{mark}").as_bytes(), async |running| {
            let mut text = Vec::new();
            while !text.ends_with(mark.as_bytes()) {
                let rest = STDOUT_CAP_BYTES.saturating_sub(text.len() as u64);
                if (&mut running.output).take(rest).read_until(b'\n', &mut text).await.ok()? == 0 {
                    return None;
                }
            }
            text.truncate(text.len() - mark.len());
            Some(text)
        })
        .await
    }

    /// For `update-ref --stdin`: moves a ref; with `old`, only from there (`None` is "from anywhere").
    pub async fn move_ref(&self, name: &str, new: &str, old: Option<&str>) -> Option<()> {
        let old = old.map_or(String::new(), |old| format!(" {old}"));
        let request = format!("start\nupdate {name} {new}{old}\ncommit\n");
        self.ask(request.as_bytes(), async |running| {
            for step in ["start", "commit"] {
                if running.line().await? != format!("{step}: ok") {
                    return None;
                }
            }
            Some(())
        })
        .await
    }

    /// For `check-ignore --stdin -z -v -n`: which of the paths are ignored.
    pub async fn ignored(&self, paths: &[&[u8]]) -> Option<Vec<bool>> {
        let request: Vec<u8> = paths.iter().flat_map(|path| [path, &b"\0"[..]].concat()).collect();
        self.ask(&request, async |running| {
            let mut found = Vec::with_capacity(paths.len());
            for path in paths {
                // File, line and pattern of the rule, which are empty without one; then the path.
                let mut fields = Vec::with_capacity(4);
                for _ in 0..4 {
                    fields.push(running.field().await?);
                }
                let [source, _, pattern, named] = &fields[..] else { return None };
                if named != path {
                    return None;
                }
                found.push(!source.is_empty() && !pattern.starts_with(b"!"));
            }
            Some(found)
        })
        .await
    }

    /// Sends a request and reads the answer. The process is only used again if it answered as
    /// expected: after anything else, what it writes next may belong to this request.
    async fn ask<T>(&self, request: &[u8], read: impl AsyncFnOnce(&mut Running) -> Option<T>) -> Option<T> {
        let idle = self.idle.lock().await.running.take();
        let mut running = match idle {
            Some(running) => running,
            None => self.start()?,
        };
        let talk = async {
            running.input.write_all(request).await.ok()?;
            read(&mut running).await
        };
        match timeout(self.git.deadline, talk).await {
            Ok(Some(answer)) => {
                running.used = Instant::now();
                self.keep(running).await;
                Some(answer)
            }
            Ok(None) => None,
            Err(_) => {
                stop(&mut running.child).await;
                None
            }
        }
    }

    fn start(&self) -> Option<Running> {
        let mut command = self.git.command(&self.args);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(Running { child, input, output, used: Instant::now() })
    }

    /// Keeps the process for the next request, and ends it when none comes.
    async fn keep(&self, running: Running) {
        let mut idle = self.idle.lock().await;
        idle.running = Some(running);
        if !idle.watched {
            idle.watched = true;
            tokio::spawn(watch(Arc::downgrade(&self.idle), self.idle_timeout));
        }
    }
}

/// Ends the process of a session when no request came for a while.
async fn watch(session: Weak<Mutex<Idle>>, idle_timeout: Duration) {
    let mut until = Instant::now() + idle_timeout;
    loop {
        sleep_until(until).await;
        let Some(session) = session.upgrade() else { return };
        let mut idle = session.lock().await;
        match &idle.running {
            Some(running) if running.used + idle_timeout > Instant::now() => until = running.used + idle_timeout,
            // Ended, or in the middle of a request, after which it is watched again.
            _ => {
                *idle = Idle::default();
                return;
            }
        }
    }
}

impl Running {
    async fn line(&mut self) -> Option<String> {
        self.until(b'\n').await.map(|line| String::from_utf8_lossy(&line).into_owned())
    }

    async fn field(&mut self) -> Option<Vec<u8>> {
        self.until(0).await
    }

    /// Reads up to the byte `end`, which is cut off.
    async fn until(&mut self, end: u8) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.output).take(STDOUT_CAP_BYTES).read_until(end, &mut bytes).await.ok()?;
        (bytes.pop() == Some(end)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn repository() -> (tempfile::TempDir, Git, String) {
        let temp = tempfile::tempdir().unwrap();
        let git = Git::operators(temp.path());
        git.bytes(&["init", "-q"]).await.unwrap();
        let tree = git.line(&["mktree"]).await.unwrap();
        (temp, git, tree)
    }

    #[tokio::test]
    async fn many_requests_are_answered_by_one_process() {
        let (_temp, git, _) = repository().await;
        let session = GitSession::new(git.clone(), &["cat-file", "--batch"]);
        let mut processes = Vec::new();
        for text in ["", "one\n", "two\nlines"] {
            // An object that did not exist when the process began.
            let id = git.fed(&["hash-object", "-w", "--stdin"], text.as_bytes()).await.unwrap();
            let id = String::from_utf8_lossy(&id.stdout).trim().to_owned();
            if !text.is_empty() {
                assert_eq!(session.blob(&id).await.as_deref(), Some(text.as_bytes()));
                processes.push(session.idle.lock().await.running.as_ref().and_then(|running| running.child.id()));
            }
        }
        assert_eq!(processes[0], processes[1]);
        assert_eq!(session.blob(&"0".repeat(40)).await, None, "there is no such object");
        assert!(session.idle.lock().await.running.is_none(), "a session that failed is not used again");
    }

    #[tokio::test]
    async fn refs_move_only_from_where_they_are_expected() {
        let (_temp, git, tree) = repository().await;
        let session = GitSession::new(git.clone(), &["update-ref", "--stdin"]);
        let commit = async |message: &str| git.line(&["commit-tree", &tree, "-m", message]).await.unwrap();
        let (one, two, nothing) = (commit("one").await, commit("two").await, "0".repeat(40));
        assert_eq!(session.move_ref("refs/x/y", &one, Some(&nothing)).await, Some(()));
        assert_eq!(session.move_ref("refs/x/y", &two, Some(&nothing)).await, None);
        assert_eq!(git.commit("refs/x/y").await.unwrap(), Some(one.clone()));
        assert_eq!(session.move_ref("refs/x/y", &two, Some(&one)).await, Some(()));
        assert_eq!(session.move_ref("refs/x/y", &one, None).await, Some(()));
        assert_eq!(git.commit("refs/x/y").await.unwrap(), Some(one));
    }

    #[tokio::test]
    async fn what_is_ignored_is_what_git_says() {
        let (temp, git, _) = repository().await;
        fs::write(temp.path().join(".gitignore"), "*.o\n!keep.o\nout/\n").unwrap();
        fs::create_dir(temp.path().join("out")).unwrap();
        let session = GitSession::new(git, &["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"]);
        let paths: [&[u8]; 5] = [b"a.o", b"keep.o", b"out/x", b"a.c", b"odd\nname.o"];
        assert_eq!(session.ignored(&paths).await, Some(vec![true, false, true, false, true]));
        assert_eq!(session.ignored(&[b"b.o"]).await, Some(vec![true]));
    }

    #[tokio::test]
    async fn a_comparison_ends_where_it_ends() {
        let (temp, git, empty) = repository().await;
        fs::write(temp.path().join("a"), "end\nend 00\n").unwrap();
        git.bytes(&["add", "a"]).await.unwrap();
        let tree = git.line(&["write-tree"]).await.unwrap();
        let session = GitSession::new(git, &["diff-tree", "--stdin", "-r", "-z", "--raw"]);
        for (from, names) in [(&empty, 1), (&tree, 0), (&empty, 1)] {
            let text = session.compare(&format!("{from} {tree}\n")).await.unwrap();
            assert_eq!(memchr::memchr_iter(0, &text).count(), 2 * names, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_session_without_requests_ends() {
        let (_temp, git, tree) = repository().await;
        let session = GitSession::new(git, &["diff-tree", "--stdin"]);
        let session = GitSession { idle_timeout: Duration::from_millis(50), ..session };
        let pair = format!("{tree} {tree}\n");
        assert!(session.compare(&pair).await.is_some());
        let until = Instant::now() + Duration::from_secs(20);
        while session.idle.lock().await.running.is_some() && Instant::now() < until {
            tokio::task::yield_now().await;
        }
        assert!(session.idle.lock().await.running.is_none());
        assert!(session.compare(&pair).await.is_some(), "it begins again");
    }
}
