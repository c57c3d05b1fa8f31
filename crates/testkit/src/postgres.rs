//! A PostgreSQL server for tests: made in a temporary folder, on loopback, gone when the test is.
//! Owns the server, its databases and a pooler in front of it; knows nothing of what is stored
//! there.
//!
//! `./test` starts one server for all tests of a run (`everloop-servers`) and names its port in
//! `EVERLOOP_TEST_POSTGRES`; each test has a database and a role of its own there. Without the
//! variable a test process starts its own server. Tests that crash or configure a server always do.
//!
//! Each server is watched by a shell that waits at the other end of a pipe. However this process
//! ends, the pipe is closed, and the shell stops the server and removes its folder.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid};

/// Limit of a start; on an idle machine it takes less than a second.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks whether it is there.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The port of the server that all tests of a run share.
pub const SHARED: &str = "EVERLOOP_TEST_POSTGRES";
/// The owner of everything in a server.
const ADMIN: &str = "admin";
/// Attempts with another port when a free one was taken meanwhile.
const PORT_TRIES: u32 = 5;

/// When a commit is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// As in production: on disk.
    Durable,
    /// Nothing is synced: for tests that need only the replies, or crashes of the server but not of
    /// the machine.
    Off,
}

/// How clients log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Without a password.
    Trust,
    /// With this password (SCRAM).
    Password(&'static str),
}

/// The setup of a server.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    pub sync: Sync,
    pub login: Login,
    /// Where its folder is made.
    pub dir: PathBuf,
    /// Whether it offers TLS, with a certificate of its own authority for `localhost`.
    pub tls: bool,
}

impl Default for ServerSetup {
    fn default() -> Self {
        Self { sync: Sync::Off, login: Login::Trust, dir: std::env::temp_dir(), tls: false }
    }
}

/// A running server; dropping it stops it and removes its folder.
pub struct PostgresServer {
    setup: ServerSetup,
    folder: PathBuf,
    port: u16,
    /// The shell that watches it, while it runs; a shared server is watched elsewhere.
    watch: Option<Watch>,
    databases: AtomicU32,
}

/// The server of this run, or of this process when the run has none; made when it is first needed.
pub fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(SHARED) {
        Ok(port) => PostgresServer::shared(port.parse().expect("the port of the shared server is a number")),
        Err(_) => PostgresServer::start(ServerSetup::default()),
    })
}

impl PostgresServer {
    /// Makes a server and waits until it takes connections.
    pub fn start(setup: ServerSetup) -> Self {
        let folder = folder(&setup.dir, "everloop-pg.");
        make_cluster(&folder, setup.login);
        if setup.tls {
            make_certificates(&folder);
        }
        let mut server = Self { setup, folder, port: 0, watch: None, databases: AtomicU32::new(0) };
        for _ in 0..PORT_TRIES {
            server.port = free_port();
            if server.try_start() {
                return server;
            }
        }
        panic!("the server does not start: {}", server.log());
    }

    /// The server of the run.
    fn shared(port: u16) -> Self {
        let (setup, databases) = (ServerSetup::default(), AtomicU32::new(0));
        Self { setup, folder: PathBuf::new(), port, watch: None, databases }
    }

    /// Stops it at once, as a crash would: what was committed is there after the next start.
    pub fn crash(&mut self) {
        self.watch.take().expect("the server runs").end();
    }

    /// Starts it again after [`PostgresServer::crash`], on the same port.
    pub fn restart(&mut self) {
        assert!(self.try_start(), "the server does not start again: {}", self.log());
    }

    /// The address of a new, empty database, which belongs to a role of its own.
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        // Tests of a shared server are concurrent processes of their own; their process ids are
        // reused.
        let drawn = RandomState::new().hash_one(std::process::id());
        let name = format!("test_{drawn:016x}_{number}");
        let login = match self.setup.login {
            Login::Trust => String::new(),
            Login::Password(password) => format!(" password '{password}'"),
        };
        self.psql("postgres", &format!("create role {name} login{login}"));
        self.psql("postgres", &format!("create database {name} owner {name}"));
        self.url_as(&name, self.password(), &name)
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        self.url_as(ADMIN, self.password(), database)
    }

    /// The address of a database for another role.
    pub fn url_as(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process that all others of it come from.
    pub fn pid(&self) -> u32 {
        let state = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        let pid = state.lines().next().and_then(|line| line.trim().parse().ok());
        pid.expect("a server that runs has written its number down")
    }

    /// The certificate of the authority behind a server with TLS.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Runs SQL as the owner of everything and returns its output, a line per row.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(programs().join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", ADMIN]);
        command.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]).env("PGPASSWORD", self.password());
        said(&command.output().expect("`psql` stands next to `initdb`"), "psql")
    }

    fn password(&self) -> &'static str {
        match self.setup.login {
            Login::Trust => "",
            Login::Password(password) => password,
        }
    }

    /// False when the port was taken meanwhile.
    fn try_start(&mut self) -> bool {
        let data = self.folder.join("data");
        let mut args = vec!["-D".to_owned(), data.display().to_string()];
        let mut set = |name: &str, value: &str| args.extend(["-c".to_owned(), format!("{name}={value}")]);
        set("port", &self.port.to_string());
        set("listen_addresses", "127.0.0.1");
        set("unix_socket_directories", "");
        set("shared_buffers", "64MB");
        set("max_connections", "200");
        if self.setup.sync == Sync::Off {
            set("fsync", "off");
            set("full_page_writes", "off");
        }
        if self.setup.tls {
            set("ssl", "on");
            set("ssl_cert_file", &self.folder.join("server.pem").display().to_string());
            set("ssl_key_file", &self.folder.join("server.key").display().to_string());
        }
        let mut watch = Watch::new(&self.folder, "QUIT", &programs().join("postgres"), &args);
        let deadline = Instant::now() + START_WITHIN;
        // The server's own mark for being ready.
        let ready = || {
            let state = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            state.lines().nth(7).is_some_and(|line| line.trim() == "ready")
        };
        while !ready() {
            if watch.has_ended() {
                return false;
            }
            assert!(Instant::now() < deadline, "the server does not get ready: {}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
        self.watch = Some(watch);
        true
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
        // What is still there is in a temporary folder; a shared server has none here.
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// `pgbouncer` in transaction mode in front of a server.
pub struct Pooler {
    port: u16,
    watch: Option<Watch>,
    folder: PathBuf,
}

impl Pooler {
    /// Starts it and waits until it takes connections.
    pub fn start(server: &PostgresServer) -> Self {
        let folder = folder(&server.setup.dir, "everloop-pool.");
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user={ADMIN}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n",
            server.port
        );
        let path = folder.join("pgbouncer.ini");
        std::fs::write(&path, settings).expect("the folder is ours");
        give_away(&path);
        let program = find("pgbouncer", &["/usr/sbin", "/usr/bin"]);
        let mut watch = Watch::new(&folder, "KILL", &program, &[path.display().to_string()]);
        let deadline = Instant::now() + START_WITHIN;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(!watch.has_ended() && Instant::now() < deadline, "pgbouncer does not start: {}", log());
            std::thread::sleep(POLL_INTERVAL);
        }
        Self { port, watch: Some(watch), folder }
    }

    /// The address of a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ADMIN}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A program and the shell that ends it when this process ends.
struct Watch {
    shell: Child,
    pipe: ChildStdin,
}

impl Watch {
    fn new(folder: &Path, signal: &str, program: &Path, args: &[String]) -> Self {
        // After the end of this process the folder is useless. A deliberate stop keeps it: `x` is
        // written before the pipe closes.
        let script = r#"folder=$1; signal=$2; shift 2; exec 3<&0
            "$@" >>"$folder/log" 2>&1 </dev/null 3<&- & pid=$!
            (word=$(cat <&3); kill -$signal $pid; while kill -0 $pid; do sleep 0.1; done
             [ -n "$word" ] || rm -rf "$folder") 2>/dev/null &
            wait $pid"#;
        let mut command = unprivileged("sh");
        command.args(["-c", script, "sh"]).arg(folder).arg(signal).arg(program).args(args).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut shell = command.spawn().expect("a shell can be started");
        let pipe = shell.stdin.take().expect("standard input is piped");
        Self { shell, pipe }
    }

    fn has_ended(&mut self) -> bool {
        self.shell.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Stops the program and waits for its end.
    fn end(mut self) {
        // If the shell is gone already, so is the program.
        self.pipe.write_all(b"x").ok();
        drop(self.pipe);
        self.shell.wait().ok();
    }
}

fn make_cluster(folder: &Path, login: Login) {
    let mut command = unprivileged(programs().join("initdb").to_str().expect("a plain path"));
    command.args(["--no-sync", "--encoding=UTF8", "--locale=C", "-U", ADMIN, "-D"]).arg(folder.join("data"));
    match login {
        Login::Trust => command.arg("--auth=trust"),
        Login::Password(password) => {
            let file = folder.join("password");
            std::fs::write(&file, password).expect("the folder is ours");
            give_away(&file);
            command.arg("--auth=scram-sha-256").arg("--pwfile").arg(file)
        }
    };
    // Another order of letters than that of bytes, so that a forgotten COLLATE shows.
    let help = Command::new(programs().join("initdb")).arg("--help").output().expect("`initdb` was just found");
    if String::from_utf8_lossy(&help.stdout).contains("--icu-locale") {
        command.args(["--locale-provider=icu", "--icu-locale=en"]);
    }
    said(&command.current_dir("/").output().expect("`initdb` was just found"), "initdb");
}

/// An authority and a certificate of it for `localhost`.
fn make_certificates(folder: &Path) {
    let script = r#"cd "$1" && umask 077 &&
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=ca \
            -keyout ca.key -out ca.pem &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
            -keyout server.key -out server.csr &&
        printf 'subjectAltName=DNS:localhost\n' >ext &&
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out server.pem"#;
    let mut command = unprivileged("sh");
    command.args(["-c", script, "sh"]).arg(folder);
    said(&command.output().expect("a shell can be started"), "openssl");
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(folder.join("ca.pem"), readable).expect("it was just made");
}

/// PostgreSQL refuses to run as root; then it runs as Debian's user `postgres`, or as `nobody`.
fn unprivileged(program: &str) -> Command {
    let Some(user) = other_user() else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid)).args(["--clear-groups", "--"]);
    command.arg(program);
    command
}

fn other_user() -> Option<User> {
    if !geteuid().is_root() {
        return None;
    }
    let found = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
    Some(found.expect("there is a user without rights"))
}

fn give_away(path: &Path) {
    if let Some(user) = other_user() {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root may give away");
    }
}

fn folder(dir: &Path, prefix: &str) -> PathBuf {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(dir).expect("a temporary folder can be made");
    let folder = folder.keep();
    give_away(&folder);
    folder
}

/// Another process may take the port before the server does; then the server does not start and
/// another port is tried.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The newest PostgreSQL of this machine.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut found: Vec<(u32, PathBuf)> = versions
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .filter(|(_, bin): &(u32, PathBuf)| bin.join("initdb").exists())
            .collect();
        found.sort();
        let newest = found.pop().map(|(_, bin)| bin);
        newest.unwrap_or_else(|| {
            let path = find("initdb", &["/usr/local/bin", "/usr/bin"]);
            path.parent().expect("a program lies in a folder").to_owned()
        })
    })
}

/// A missing program is a failure, not a reason to skip a test.
fn find(program: &str, also: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(also.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("`{program}` is missing; on Debian: apt-get install postgresql pgbouncer"))
}

fn said(output: &Output, who: &str) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{who}: {out}{err}");
    out.trim_end().to_owned()
}
