//! How tmux is called: with a deadline, with a clean environment, and without external text in its
//! arguments.
//!
//! tmux parses its arguments as code: one that ends in `;` ends the command, `#(…)` in a name, a
//! folder or a title runs a shell. And arguments are visible to all users of the machine; those of
//! the client that starts the server stay visible as long as the server lives. So every external
//! word goes through standard input, as a [`TmuxCommand`] in which each unusual byte is written as
//! a number.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::PaneError;
use crate::environment::Environment;

/// tmux responds in milliseconds; a stopped or wedged server must not block everloop.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Poll interval for the end of the client.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// More than the longest history of a pane; what is beyond is cut.
const OUTPUT_CAP: u64 = 64 << 20;

/// One call of the tmux client.
pub(super) struct TmuxCall<'a> {
    /// The socket of its server.
    pub(super) socket: &'a Path,
    /// Its purpose, as in "could not …".
    pub(super) what: &'static str,
    /// Constant words only: commands, ids from tmux, numbers.
    pub(super) args: &'a [&'a str],
    pub(super) stdin: &'a [u8],
}

impl TmuxCall<'_> {
    /// Runs it and returns its output.
    pub(super) fn run(&self) -> Result<String, PaneError> {
        debug_assert!(
            self.args.iter().all(|a| *a == ";" || !a.ends_with(';')),
            "a constant word would end the command"
        );
        let mut child = match self.command().spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(PaneError::NoTmux),
            Err(e) => return Err(PaneError::io("run", Path::new("tmux"))(e)),
        };
        let writer = feed(&mut child, self.stdin.to_vec());
        let (out, said) = (gather(child.stdout.take()), gather(child.stderr.take()));
        let ended = self.wait(&mut child)?;
        let (out, said) = (joined(out), joined(said));
        // A client that ended without reading everything reports the reason itself.
        drop(writer.map(JoinHandle::join));
        if ended {
            return Ok(String::from_utf8_lossy(&out).into_owned());
        }
        Err(PaneError::Refused { what: self.what, said: String::from_utf8_lossy(&said).trim().to_owned() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        // `-u`: without it every letter beyond ASCII is shown as `_` where the locale is `C`.
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.socket).args(self.args);
        // The server keeps the folder of the client that starts it, and must not hold the caller's.
        command.current_dir(self.socket.parent().filter(|dir| dir.is_dir()).unwrap_or(Path::new("/")));
        // The server inherits this from the client that starts it, and every pane from the server.
        command.env_clear().envs(Environment::from_ours(&[]).into_vars());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is for everloop. The server makes a session of its own (it calls
        // `daemon`).
        command.process_group(0);
        command
    }

    fn wait(&self, child: &mut Child) -> Result<bool, PaneError> {
        let end = Instant::now() + ANSWER_LIMIT;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
                Ok(None) => {
                    // The child was not waited for yet, so the pid is still its own.
                    child.kill().and_then(|()| child.wait()).map_err(PaneError::io("end", Path::new("tmux")))?;
                    return Err(PaneError::Silent { what: self.what, seconds: ANSWER_LIMIT.as_secs() });
                }
                Err(e) => return Err(PaneError::io("wait for", Path::new("tmux"))(e)),
            }
        }
    }
}

fn feed(child: &mut Child, bytes: Vec<u8>) -> Option<JoinHandle<()>> {
    let mut stdin = child.stdin.take()?;
    // A client that does not read closes the pipe and reports the reason on stderr.
    Some(std::thread::spawn(move || drop(stdin.write_all(&bytes))))
}

fn gather(stream: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    let stream = stream?;
    Some(std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        stream.take(OUTPUT_CAP).read_to_end(&mut bytes).ok();
        bytes
    }))
}

fn joined(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    reader.and_then(|r| r.join().ok()).unwrap_or_default()
}

/// One tmux command that may carry any text.
#[derive(Clone, Debug, Default)]
pub(super) struct TmuxCommand(String);

impl TmuxCommand {
    /// A constant command with constant flags.
    pub(super) fn new(words: &str) -> Self {
        Self(words.to_owned())
    }

    /// Adds a word that tmux takes literally.
    #[must_use]
    pub(super) fn word(mut self, word: impl AsRef<OsStr>) -> Self {
        self.0.push_str(" \"");
        for byte in word.as_ref().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b',' | b'+' => {
                    self.0.push(char::from(*byte));
                }
                byte => write!(self.0, "\\{byte:03o}").expect("writing to a string cannot fail"),
            }
        }
        self.0.push('"');
        self
    }

    /// Adds a word that tmux expands as a format: a doubled `#` is a plain `#`.
    #[must_use]
    pub(super) fn literal(self, word: impl AsRef<OsStr>) -> Self {
        let mut doubled = Vec::new();
        for byte in word.as_ref().as_bytes() {
            doubled.extend_from_slice(if *byte == b'#' { b"##" } else { std::slice::from_ref(byte) });
        }
        self.word(OsStr::from_bytes(&doubled))
    }

    pub(super) fn run(self, socket: &Path, what: &'static str) -> Result<String, PaneError> {
        let line = self.0 + "\n";
        TmuxCall { socket, what, args: &["source-file", "-"], stdin: line.as_bytes() }.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_plain_letters_stands_in_a_script() {
        let script = TmuxCommand::new("new-session -c").literal("/a b/#(touch x)").word("é;\n\"$HOME'~{");
        assert_eq!(
            script.0,
            r#"new-session -c "/a\040b/\043\043\050touch\040x\051" "\303\251\073\012\042\044HOME\047\176\173""#
        );
    }
}
