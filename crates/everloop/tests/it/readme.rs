//! The README's commands work on a machine that has nothing but git and the binary.

use std::path::Path;
use std::process::Command;

use crate::env::Env;

/// Blocks that are marked with `<!-- run -->`.
fn blocks(text: &str) -> Vec<String> {
    let marked = text.split("<!-- run -->\n```sh\n").skip(1);
    marked.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_commands_of_the_readme_run() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let blocks = blocks(&text);
    assert!(blocks.len() >= 3, "the README lost its marked blocks");
    let env = Env::new();
    let script = format!("set -e\n{}", blocks.concat());
    let bin = Path::new(env!("CARGO_BIN_EXE_everloop")).parent().unwrap();
    let mut command: Command = env.command(&[]);
    let vars: Vec<_> = command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    command = Command::new("sh");
    command.env_clear().envs(vars).current_dir(env.project()).arg("-c").arg(&script);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{script}\n{err}\n{}", String::from_utf8_lossy(&out.stdout));
    assert!(err.contains("reached, all checks pass"), "{err}");
}
