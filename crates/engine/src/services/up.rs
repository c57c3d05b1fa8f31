//! The supervisor as a process: the lock of its state folder, its start in the background, and its
//! unit of a service manager.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::ServiceContext;
use crate::error::Failure;
use crate::quantities::here;
use crate::state_folder::{LockOwner, Ownership, StateFolder};
use crate::unit::{Manager, Unit, is_ours};

/// Between two attempts to own the state folder.
const OWN_POLL: Duration = Duration::from_millis(200);

/// What happens while another process supervises the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenTaken {
    Fail,
    Wait,
}

/// A unit that was written.
#[derive(Clone, Debug)]
pub struct InstalledUnit {
    pub path: PathBuf,
    pub manager: Manager,
    /// Commands of the service manager that worked.
    pub done: Vec<String>,
    /// Those that are left for a person, because no manager answers.
    pub to_do: Vec<String>,
}

/// The lock of the state folder. [`WhenTaken::Wait`] waits until a running supervisor is gone.
pub fn own(context: &ServiceContext, home: &StateFolder, when_taken: WhenTaken) -> Result<Ownership, Failure> {
    loop {
        match home.own("up", context.now())? {
            Ok(ownership) => return Ok(ownership),
            Err(_) if when_taken == WhenTaken::Wait => std::thread::sleep(OWN_POLL),
            Err(owner) => return Err(taken(home, owner.as_ref())),
        }
    }
}

/// The failure when another process supervises this folder.
pub fn taken(home: &StateFolder, owner: Option<&LockOwner>) -> Failure {
    let owner = owner.map_or_else(
        || "another process".to_owned(),
        |o| format!("`everloop {}` (process {}, since {})", o.role, o.process.pid, here(o.since)),
    );
    Failure::failed(format!("{owner} already supervises `{}`", home.root().display()))
        .hint("`everloop status` shows what it does; `everloop down` stops it; --state-dir names another folder")
}

/// The unit of this program and this state folder.
pub fn unit(home: &StateFolder) -> Result<Unit, Failure> {
    let cannot = |e: &std::io::Error| Failure::failed("cannot find this program's own file").because(e);
    let program = std::env::current_exe().map_err(|e| cannot(&e))?;
    Unit::new(program, home.root().to_owned(), home.log())
}

/// Writes the unit and starts it. Where no manager answers, the file stays.
pub fn install(context: &ServiceContext) -> Result<InstalledUnit, Failure> {
    let home = context.home()?;
    context.for_a_person("install a service")?;
    let manager = Manager::here();
    let (path, text) = (manager.path()?, unit(&home)?.text(manager));
    let cannot = |e: &std::io::Error| Failure::failed(format!("cannot write `{}`", path.display())).because(e);
    match std::fs::read_to_string(&path) {
        Ok(there) if !is_ours(&there) => {
            return Err(Failure::failed(format!("`{}` was not written by everloop", path.display()))
                .hint("move it away, or print the unit and put it elsewhere: everloop up --print-unit"));
        }
        _ => {}
    }
    let new = path.with_extension("new");
    std::fs::create_dir_all(path.parent().unwrap_or(home.root())).map_err(|e| cannot(&e))?;
    std::fs::write(&new, &text).and_then(|()| std::fs::rename(&new, &path)).map_err(|e| cannot(&e))?;
    let (done, to_do) = perform(manager.begin(&path));
    Ok(InstalledUnit { path, manager, done, to_do })
}

/// Runs commands of the service manager until one fails: those that worked, and the rest.
pub(super) fn perform(commands: Vec<Vec<String>>) -> (Vec<String>, Vec<String>) {
    let (mut done, mut rest) = (Vec::new(), Vec::new());
    for words in commands {
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let worked = rest.is_empty() && command.status().is_ok_and(|status| status.success());
        if worked { done.push(words.join(" ")) } else { rest.push(words.join(" ")) }
    }
    (done, rest)
}

/// A supervisor owns its state folder within milliseconds; a busy machine needs longer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at the owner of the state folder.
const START_POLL: Duration = Duration::from_millis(10);

/// Starts a supervisor that outlives this process and this terminal, and waits until the state
/// folder has an owner: a `down` right behind it must find one.
pub fn start_in_background(home: &StateFolder) -> Result<(), Failure> {
    let cannot = |e: &std::io::Error| Failure::failed("cannot start the supervisor in the background").because(e);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(home.log()).map_err(|e| cannot(&e))?;
    let exe = std::env::current_exe().map_err(|e| cannot(&e))?;
    let mut command = std::process::Command::new(exe);
    command.arg("--state-dir").arg(home.root()).args(["up", "--queue"]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut child = command.spawn().map_err(|e| cannot(&e))?;
    let begun = Instant::now();
    while home.owner().is_none() && begun.elapsed() < START_TIMEOUT {
        if let Some(status) = child.try_wait().map_err(|e| cannot(&e))?
            && !status.success()
        {
            return Err(Failure::failed(format!("the supervisor in the background ended at once ({status})"))
                .hint(format!("its last lines are in `{}`", home.log().display())));
        }
        std::thread::sleep(START_POLL);
    }
    Ok(())
}
