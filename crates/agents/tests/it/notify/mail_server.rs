//! A real SMTP server on loopback: the testkit's `servers/smtp.py` with aiosmtpd, as
//! `test-servers.sh` installs it. It ends with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// The variable with the folder of the environment's `python3`.
const FOLDER: &str = "EVERLOOP_TEST_SERVERS";
/// Python starts within a second on a calm machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A mail that was taken is written out at once.
const MAIL_TIMEOUT: Duration = Duration::from_secs(20);

/// How connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Not at all, and without a login.
    Plain,
    /// After STARTTLS, which is required; then with a login.
    StartTls,
    /// From the first byte on, with a login.
    Tls,
}

/// A mail as the server took it.
#[derive(Clone, Debug, Deserialize)]
pub struct TakenMail {
    /// The version of TLS, if there was any.
    pub tls: Option<String>,
    /// The user that logged in.
    pub user: Option<String>,
    /// The sender of the envelope.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// Headers and body.
    pub mail: String,
}

/// A mail server in Python, as a child process.
pub struct MailServer {
    port: u16,
    child: Child,
    lines: Receiver<String>,
}

impl MailServer {
    /// Starts one with a certificate and its key (PEM); `without` names mechanisms of logins that
    /// it does not offer.
    pub fn start(security: Security, certificate: &Path, key: &Path, without: &[&str]) -> Self {
        let mode = match security {
            Security::Plain => "plain",
            Security::StartTls => "starttls",
            Security::Tls => "tls",
        };
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/servers/smtp.py");
        let mut command = Command::new(python());
        command.arg(program).arg(mode).arg(certificate).arg(key).args(without);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 can be started");
        let output = child.stdout.take().expect("it was piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test may be over.
                sender.send(line).ok();
            }
        });
        let first = lines.recv_timeout(START_TIMEOUT).expect("the server starts");
        let first: Value = serde_json::from_str(&first).expect("its first line is JSON");
        let port = first["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("it names its port");
        Self { port, child, lines }
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next mail that it took.
    pub fn mail(&self) -> TakenMail {
        let line = self.lines.recv_timeout(MAIL_TIMEOUT).expect("the server took a mail");
        serde_json::from_str(&line).expect("a line is a mail")
    }

    /// Ends it; mails that were not looked at yet.
    pub fn rest(mut self) -> Vec<String> {
        self.end();
        self.lines.try_iter().collect()
    }

    fn end(&mut self) {
        // It ends with its input. If it does not listen, it is ended.
        drop(self.child.stdin.take());
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A missing environment is an error, never a skipped test.
fn python() -> PathBuf {
    let hint = "hint: export EVERLOOP_TEST_SERVERS=<the folder that crates/testkit/test-servers.sh prints last>";
    let folder = std::env::var_os(FOLDER).unwrap_or_else(|| panic!("`{FOLDER}` is not set\n{hint}"));
    let program = Path::new(&folder).join("python3");
    assert!(program.exists(), "`{}` is not there\n{hint}", program.display());
    program
}
