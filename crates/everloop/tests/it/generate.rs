//! `everloop generate`: completions, manual pages and the reference.

use std::process::{Command, Stdio};

use crate::env::Env;

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

#[test]
fn bash_reads_its_script_and_completes_a_verb() {
    let env = Env::new();
    let script = env.run(&["generate", "completions", "bash"]).ok().stdout;
    env.write("everloop.bash", &script);
    let script_call = "source everloop.bash && COMP_WORDS=(everloop sta) COMP_CWORD=1 && \
               _everloop everloop sta everloop && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", script_call]).current_dir(env.project()).stdin(Stdio::null());
    let printed = bash.output().expect("bash is needed to complete");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), "status\n", "{}", String::from_utf8_lossy(&printed.stderr));
}

#[test]
fn other_shells_get_theirs_and_an_unknown_one_is_refused_with_the_list() {
    let env = Env::new();
    for (shell, mark) in [("zsh", "#compdef everloop"), ("fish", "complete -c everloop")] {
        let script = env.run(&["generate", "completions", shell]).ok().stdout;
        assert!(script.contains(mark) && script.contains("quarantine"), "{shell}");
    }
    let data = env.run(&["generate", "completions", "zsh", "--json"]).ok().json();
    assert!(data["script"].as_str().is_some_and(|script| script.contains("#compdef everloop")));
    assert!(env.run(&["generate", "completions", "csh"]).exits(2).stderr.contains("zsh"));
}

#[test]
fn the_main_page_is_printed_and_names_exit_codes() {
    let page = Env::new().run(&["generate", "man"]).ok().stdout;
    assert!(page.contains(".TH everloop") && page.contains("Exit codes"), "{page}");
}

#[test]
fn every_verb_gets_a_page_in_the_folder() {
    let env = Env::new();
    let written = env.run(&["generate", "man", "--to", "pages", "--json"]).ok().json()["written"].clone();
    let files = std::fs::read_dir(env.project().join("pages")).expect("it was made").count();
    assert_eq!(written.as_array().map(Vec::len), Some(files));
    assert!(files > 45, "{files} pages");
    assert!(env.read("pages/everloop-task-add.1").contains("priority"));
    env.write("taken", "a file");
    assert!(env.run(&["generate", "man", "--to", "taken"]).exits(1).stderr.contains("taken"));
}
