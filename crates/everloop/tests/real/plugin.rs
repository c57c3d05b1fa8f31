//! The real claude validates, installs and loads everloop's plugin, and its hooks hold a session.

use std::process::Command;

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;

use super::env::Env;

fn claude(env: &Env, words: &[&str]) -> String {
    let mut command = Command::new(CliProgram::Claude.program());
    command
        .args(words)
        .current_dir(env.project())
        .env_clear()
        .envs(CliProgram::Claude.environment("http://127.0.0.1:9"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", env.project().join("../home"));
    let out = command.output().expect("claude is there");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "claude {words:?}: {said}");
    said
}

#[test]
fn claude_validates_and_installs_the_plugin() {
    offline(|| {
        let program = CliProgram::Claude.program();
        let folder = program.parent().expect("a program is in a folder").display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let env = Env::new().var("PATH", &path).var("DISABLE_AUTOUPDATER", "1");
        env.run(&["agents", "plugin", "install", "out"]).ok();
        for what in ["out", "out/.claude-plugin/plugin.json"] {
            claude(&env, &["plugin", "validate", what]);
        }
        env.run(&["agents", "plugin", "install"]).ok();
        let listed = claude(&env, &["plugin", "list"]);
        assert!(listed.contains("everloop@everloop"), "{listed}");
        // A second time it is renewed.
        env.run(&["agents", "plugin", "install"]).ok();
        env.run(&["agents", "plugin", "remove"]).ok();
        let listed = claude(&env, &["plugin", "list"]);
        assert!(!listed.contains("everloop@everloop"), "{listed}");
        assert!(!env.state().join("claude-plugin").exists());
    });
}
