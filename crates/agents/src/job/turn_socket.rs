//! How `everloop` inside of an isolated turn reaches the ledger: it cannot open the state folder,
//! so it sends its words and its three streams to the shim, which runs them outside, as this turn.
//!
//! The caller is known by its connection: the kernel names the process at the other end, and the
//! shim answers its own descendants alone. What a turn may do is decided by the verb, which sees
//! [`BEHIND`]. Variables of the caller are not taken over.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt::PeerCredentials,
};
use nix::sys::wait::WaitStatus;
use nix::unistd::geteuid;

use crate::process;

/// Names the socket to the programs of a turn.
pub const VARIABLE: &str = "EVERLOOP_SOCKET";
/// Marks an `everloop` that the shim runs for its turn.
pub const BEHIND: &str = "EVERLOOP_BEHIND_SOCKET";

/// The variable of a turn; without it there is no socket.
const TURN: &str = "EVERLOOP_TURN";
/// File name of the socket in the turn's temporary folder.
const NAME: &str = "everloop.sock";
/// A request is written by one call; a slower one is dropped, so that it cannot hold up the shim.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Longer requests are refused; a message of a turn is far shorter.
const REQUEST_MAX_BYTES: usize = 128 << 10;
/// Calls at once.
const MAX_CALLS: usize = 16;
/// The answer to a call that was refused before anything ran; no exit code of everloop.
const REFUSED: u8 = 255;
/// Exit code of a call that was killed.
const KILLED: u8 = 1;

/// The shim's end.
#[derive(Debug, Default)]
pub(super) struct TurnSocket {
    listener: Option<UnixListener>,
    path: Option<PathBuf>,
    calls: Vec<(Child, UnixStream)>,
}

impl TurnSocket {
    /// Listens in the command's temporary folder, if the command is a turn. Without it everything
    /// else works, so a failure is no reason to stop.
    pub(super) fn listen(tmp: Option<&Path>, vars: &[(OsString, OsString)]) -> Self {
        let is_turn = vars.iter().any(|(name, _)| name == TURN);
        let Some(path) = tmp.filter(|_| is_turn).map(|tmp| tmp.join(NAME)) else { return Self::default() };
        let Ok(listener) = UnixListener::bind(&path) else { return Self::default() };
        if listener.set_nonblocking(true).is_err() {
            return Self::default();
        }
        Self { listener: Some(listener), path: Some(path), calls: Vec::new() }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What becomes readable when there is a call.
    pub(super) fn open(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers one waiting call, if there is one.
    pub(super) fn serve(&mut self) {
        let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) else { return };
        let started = if self.calls.len() < MAX_CALLS { begin(&stream) } else { None };
        match started {
            Some(child) => self.calls.push((child, stream)),
            None => answer(&stream, REFUSED),
        }
    }

    /// Passes the end of a call on to its caller.
    pub(super) fn ended(&mut self, status: WaitStatus) {
        let Some(at) = self.calls.iter().position(|(c, _)| status.pid().is_some_and(|p| p.as_raw() == c.id() as i32))
        else {
            return;
        };
        let (_, stream) = self.calls.swap_remove(at);
        match status {
            WaitStatus::Exited(_, code) => answer(&stream, u8::try_from(code).unwrap_or(KILLED)),
            _ => answer(&stream, KILLED),
        }
    }

    /// Ends all calls; the turn is over.
    pub(super) fn close(&mut self) {
        self.listener = None;
        for (mut child, _) in self.calls.drain(..) {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn answer(mut stream: &UnixStream, code: u8) {
    // A caller that is gone needs no answer.
    stream.write_all(&[code]).ok();
}

fn begin(stream: &UnixStream) -> Option<Child> {
    let peer = getsockopt(stream, PeerCredentials).ok()?;
    let shim = std::process::id() as i32;
    if !process::with_ancestors(peer.pid()).contains(&shim) {
        return None;
    }
    let (words, [stdin, stdout, stderr]) = receive(stream)?;
    let (dir, args) = words.split_first()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(args).current_dir(dir).env(BEHIND, "1").env_remove(VARIABLE);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    command.spawn().ok()
}

/// The words of a call, its folder first, and its standard streams.
fn receive(stream: &UnixStream) -> Option<(Vec<OsString>, [OwnedFd; 3])> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).ok()?;
    let mut bytes = vec![0; REQUEST_MAX_BYTES];
    let mut control = nix::cmsg_space!([RawFd; 3]);
    let (length, passed) = {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let message =
            recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC).ok()?;
        (message.bytes, own(message.cmsgs().ok()?))
    };
    let (head, rest) = bytes[..length].split_first_chunk::<4>()?;
    let expected = u32::from_le_bytes(*head) as usize;
    // The kernel may hand over a long request in parts; the rest follows at once.
    let mut text = rest.to_vec();
    if expected > REQUEST_MAX_BYTES {
        return None;
    }
    if text.len() < expected {
        let mut more = vec![0; expected - text.len()];
        (&*stream).read_exact(&mut more).ok()?;
        text.extend(more);
    }
    let words = text.split(|b| *b == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    Some((words, passed.try_into().ok()?))
}

#[expect(unsafe_code, reason = "received descriptors are numbers until they have an owner")]
fn own<'a>(messages: impl Iterator<Item = ControlMessageOwned> + 'a) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    for message in messages {
        if let ControlMessageOwned::ScmRights(fds) = message {
            // SAFETY: the kernel made these descriptors for this message alone.
            all.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    all
}

/// The socket of the turn that this process is part of. A CLI may start its tools with a few
/// variables only; the temporary folder is one of them.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = || std::env::var_os("TMPDIR").map(|tmp| PathBuf::from(tmp).join(NAME));
    named.or_else(beside).filter(|socket| is_private(socket))
}

/// Whether a socket is in a folder that only this user can write: in one that all share, any program
/// could wait for the words and the streams of a person.
fn is_private(socket: &Path) -> bool {
    let folder = socket.parent().and_then(|folder| fs::symlink_metadata(folder).ok());
    let is_own = |meta: &fs::Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0;
    socket.exists() && folder.as_ref().is_some_and(is_own)
}

/// Lets the shim of this turn run `everloop` with these arguments on the caller's streams; its exit
/// code. An error means that nothing ran; a shim that has too many calls at once has room later.
pub fn call(socket: &Path, dir: &Path, args: &[OsString]) -> io::Result<u8> {
    let words: Vec<&OsStr> = [dir.as_os_str()].into_iter().chain(args.iter().map(OsString::as_os_str)).collect();
    let text = words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0);
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let message = [&length.to_le_bytes()[..], &text].concat();
    let mut stream = UnixStream::connect(socket)?;
    let streams = [io::stdin().as_raw_fd(), io::stdout().as_raw_fd(), io::stderr().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&streams)];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&message)], &rights, MsgFlags::empty(), None)?;
    stream.write_all(&message[sent..])?;
    let mut code = [0];
    stream.read_exact(&mut code)?;
    match code[0] {
        REFUSED => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "it refused, or has too many calls at once")),
        code => Ok(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_socket_in_a_folder_that_others_write_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("everloop-a");
        fs::create_dir(&folder).unwrap();
        let socket = folder.join(NAME);
        assert!(!is_private(&socket), "it is not there");
        let _listener = UnixListener::bind(&socket).unwrap();
        for (mode, private) in [(0o700, true), (0o755, true), (0o777, false), (0o1777, false), (0o770, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(&socket), private, "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&folder, root.path().join("link")).unwrap();
        assert!(!is_private(&root.path().join("link").join(NAME)));
    }
}
