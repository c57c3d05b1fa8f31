//! `everloop init`: a file with the checks that the project seems to have.

use crate::env::Env;

#[test]
fn a_project_gets_its_checks_and_the_file_is_sound() {
    let env = Env::new();
    env.write("Makefile", "test:\n\ttrue\n");
    let said = env.run(&["init", "--agent-cmd", "my-agent {prompt}", "--goal", "be good"]).ok().stdout;
    assert!(said.contains("found make test") && said.contains("next: everloop run"), "{said}");
    let text = env.read("everloop.toml");
    assert!(text.contains("goal = \"be good\"") && text.contains("run = \"make test\""), "{text}");
    env.run(&["config", "check"]).ok();
    let again = env.run(&["init"]).exits(1);
    assert!(again.stderr.contains("exists already") && again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(env.read("everloop.toml"), text);
    env.run(&["init", "--force"]).ok();
    assert_ne!(env.read("everloop.toml"), text);
}

#[test]
fn printing_writes_nothing() {
    let env = Env::new();
    let text = env.run(&["init", "--print"]).ok().stdout;
    assert!(text.contains("[loop.main]"), "{text}");
    assert!(!env.project().join("everloop.toml").exists());
}

#[test]
fn the_first_run_after_init_lands_beside_a_changed_instruction_file() {
    let env = Env::new().git();
    env.write("CLAUDE.md", "be brief\n");
    env.write("Makefile", "test:\n\ttest -f done\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "instructions"]);
    let said = env.run(&["init", "--agent", "claude", "--yes"]).ok().stdout;
    assert!(said.contains("next: git add everloop.toml ") && said.contains("CLAUDE.md"), "{said}");
    assert!(env.git_run(&["status", "--porcelain"]).contains("M CLAUDE.md"));
    let said = env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done"]).ok();
    assert!(said.stderr.contains("uncommitted changes in CLAUDE.md"), "{}", said.stderr);
    assert!(said.stderr.contains("landed as"), "{}", said.stderr);
    assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "CLAUDE.md\nMakefile\nREADME\ndone\n");
    assert!(env.git_run(&["status", "--porcelain"]).contains("M CLAUDE.md"), "the change is still there");
}

#[test]
fn a_plan_for_research_is_written_once_and_never_again() {
    let env = Env::new().git();
    let printed = env.run(&["init", "--research", "--print"]).ok().stdout;
    assert!(printed.contains("- ") && !env.project().join(".everloop/research-plan.md").exists(), "{printed}");
    let said = env.run(&["init", "--research"]).ok().stdout;
    assert!(said.contains("wrote ") && said.contains("next: everloop research"), "{said}");
    assert!(!env.project().join("everloop.toml").exists(), "nothing else is written");
    assert!(env.read(".everloop/research-plan.md").lines().filter(|line| line.starts_with("- ")).count() > 2);
    env.write(".everloop/research-plan.md", "- mine\n");
    let again = env.run(&["init", "--research"]).exits(1).stderr;
    assert!(again.contains("exists already") && again.contains("it is yours"), "{again}");
    assert_eq!(env.read(".everloop/research-plan.md"), "- mine\n");
}
