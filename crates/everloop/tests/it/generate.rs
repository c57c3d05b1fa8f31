//! `everloop generate`: completions, manual pages and the reference.

use crate::env::Env;

#[test]
fn completions_and_manual_pages_are_made() {
    let env = Env::new();
    assert!(env.run(&["generate", "completions", "bash"]).ok().stdout.contains("everloop"));
    assert!(env.run(&["generate", "man"]).ok().stdout.contains(".TH everloop"));
    env.run(&["generate", "man", "--to", "pages"]).ok();
    let page = env.read("pages/everloop-task-add.1");
    assert!(page.contains("priority"), "{page}");
}

#[test]
fn the_reference_of_commands_is_printed() {
    let env = Env::new();
    let text = env.run(&["generate", "commands"]).ok().stdout;
    assert!(text.contains("### everloop run\n") && text.contains("#### everloop mesh join\n"), "{text}");
    assert_eq!(
        env.run(&["generate", "commands", "--json"]).ok().json()["reference"].as_str().map(str::trim),
        Some(text.trim())
    );
}
