//! The demos' repositories: five checks, none of which passes; a metric.

use std::fs;
use std::path::Path;
use std::process::Command;

use everloop_engine::error::Failure;

pub const CHECKS: [&str; 5] =
    ["sh tests/greet.sh", "sh tests/add.sh", "sh tests/count.sh", "grep -q Usage README.md", "! grep -rn TODO src"];

/// Files of a repository, with its first commit's message.
pub struct Content {
    pub message: &'static str,
    pub files: &'static [(&'static str, &'static str)],
}

/// A tool with checks.
pub const TOOL: Content = Content { message: "an empty tool and its tests", files: &FILES };

const FILES: [(&str, &str); 6] = [
    ("README.md", "# tool\n\nTo be written.\n"),
    ("src/notes.txt", "TODO: everything\n"),
    ("tests/greet.sh", "test \"$(sh src/greet.sh World)\" = 'Hello, World!'\n"),
    ("tests/add.sh", "test \"$(sh src/add.sh 2 40)\" = 42\n"),
    ("tests/count.sh", "test \"$(printf 'a\\nb\\nc\\n' | sh src/count.sh)\" = 3\n"),
    (".gitignore", "*.tmp\n"),
];

/// Creates the repository with one commit.
pub fn make(dir: &Path, content: &Content) -> Result<(), Failure> {
    for (name, text) in content.files {
        let path = dir.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    git(dir, &["init", "--quiet", "--initial-branch=main"])?;
    git(dir, &["add", "--all"])?;
    git(dir, &["commit", "--quiet", "--message", content.message])
}

fn git(dir: &Path, args: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgSign=false"]);
    command.args(["-c", "core.hooksPath=/dev/null"]).arg("-C").arg(dir).args(args);
    let out = command.output().map_err(|e| {
        Failure::failed("cannot run `git`").because(&e).hint("the demo needs git; install it and try again")
    })?;
    if out.status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim())))
}
