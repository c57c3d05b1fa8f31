//! A separate state folder for every test; its tmux server ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everloop_agents::tmux::{Colours, Pane, PaneProgram, Program, ScreenCapture, TmuxServer};
use everloop_testkit::wait::{DEADLINE, wait_until};
use tempfile::TempDir;

pub struct World {
    root: TempDir,
    pub server: TmuxServer,
}

impl World {
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("everloop-tmux-").tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        let server = TmuxServer::open(&root.path().join("state")).unwrap();
        Self { root, server }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn program(&self, argv: &[&str]) -> Program {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        Program { argv, cwd: self.path("work"), env: Vec::new() }
    }

    /// A pane that runs a script of `sh`.
    pub fn sh(&self, name: &str, script: &str) -> Pane {
        self.server.start(name.parse().unwrap(), PaneProgram::Plain, self.program(&["sh", "-c", script])).unwrap()
    }

    pub fn screen(&self, pane: &Pane) -> String {
        self.server.read(pane, ScreenCapture { colours: Colours::Plain, history: 0 }).unwrap()
    }

    /// A pane that writes every byte it gets to a file, with bracketed paste enabled as agents do.
    /// It also prints its input: typing waits for that.
    pub fn raw_reader(&self, name: &str) -> (Pane, PathBuf) {
        let file = self.path(&format!("{name}.got"));
        let script = format!("stty raw -echo; : > '{0}'; printf '\\033[?2004hREADY'; exec tee '{0}'", file.display());
        let pane = self.sh(name, &script);
        // tmux has processed the switch once it has drawn the text after it; the switch itself
        // cannot be queried.
        wait_for("the reader listens", || self.screen(&pane).contains("READY"));
        (pane, file)
    }

    /// tmux at another socket: a person's server.
    pub fn persons_tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(self.path("person.sock"))
            .args(args)
            .env_remove("TMUX")
            .current_dir(self.path("work"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// tmux at the private socket, as a person with its path could use it.
    pub fn our_tmux(&self, args: &[&str]) -> String {
        let socket = self.server.socket().to_str().unwrap();
        let output = Command::new("tmux").args(["-u", "-S", socket]).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// No shell may have run anything that was typed, named or passed.
    #[track_caller]
    pub fn nothing_was_run(&self) {
        let found = files_named(self.root.path(), "x");
        assert!(found.is_empty(), "a shell ran what was only text: {found:?}");
        assert!(!Path::new("x").exists());
    }
}

fn files_named(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|n| n == name) {
            found.push(path.clone());
        }
        found.extend(files_named(&path, name));
    }
    found
}

impl Drop for World {
    fn drop(&mut self) {
        for socket in [self.server.socket().to_owned(), self.path("person.sock")] {
            let mut command = Command::new("tmux");
            command.arg("-S").arg(socket).arg("kill-server").stdout(Stdio::null()).stderr(Stdio::null());
            // There may be none.
            command.status().ok();
        }
    }
}

/// tmux shows the output and the end of a program with a delay: tests wait for a screen instead of
/// reading it once.
#[track_caller]
pub fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    wait_until(what, DEADLINE, holds);
}
