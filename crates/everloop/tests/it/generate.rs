//! `everloop generate`: completions, manual pages and the reference.

use std::path::Path;

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
fn bash_reads_its_script_and_completes_verbs_and_loops() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "true", "--agent-cmd", "true", "--in-place"]).ok();
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    let script = env.run(&["generate", "completions", "bash"]).ok().stdout;
    env.write("everloop.bash", &script);
    let complete = |typed: &str| {
        let call = format!(
            "source everloop.bash && COMP_WORDS=({typed}) && COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)) && \
             _everloop && printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = env.program("bash");
        let folder = Path::new(env!("CARGO_BIN_EXE_everloop")).parent().expect("a binary is in a folder");
        bash.args(["--norc", "--noprofile", "-c", &call]).env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
        let printed = bash.output().expect("bash is needed to complete");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8_lossy(&printed.stdout).into_owned()
    };
    assert_eq!(complete("everloop sta"), "status\n");
    assert_eq!(complete(&format!("everloop why {}", &id[..2])), format!("{id}\n"));
    assert_eq!(complete(&format!("everloop task add x --loop = {}", &id[..2])), format!("{id}\n"));
}

/// The words that the program offers to a shell in place of the last of `typed`.
fn offered(env: &Env, shell: &str, typed: &[&str]) -> String {
    let mut command = env.command(&[&["--", "everloop"], typed].concat());
    let out = command.env("COMPLETE", shell).output().expect("it starts");
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn loops_tasks_tickets_and_agents_complete() {
    let env = Env::new();
    env.write(
        "everloop.toml",
        "[agent.bot]\ncommand = \"true\"\n[loop.mine]\ngoal = \"g\"\nchecks = [\"true\"]\nagent = \"bot\"\n",
    );
    env.run(&["run", "x; $(y)", "--check", "true", "--agent-cmd", "true", "--in-place"]).ok();
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    let task = env.run(&["task", "add", "port it"]).ok().stdout.trim().to_owned();
    env.run(&["message", "send", "person", "may I?"]).ok();
    for verb in ["why", "stop", "pause", "resume", "wake", "take", "diff", "forget", "logs"] {
        assert!(offered(&env, "bash", &[verb, &id]).contains(&id), "{verb}");
    }
    let name = env.the_loop()["name"].as_str().expect("a name").to_owned();
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    assert_eq!(offered(&env, "bash", &["why", ""]).lines().any(|line| line == name), plain, "{name}");
    assert_eq!(offered(&env, "bash", &["task", "done", ""]), format!("{task}\n"));
    assert_eq!(offered(&env, "fish", &["task", "cancel", &task]), format!("{task}\tqueued: port it\n"));
    assert_eq!(offered(&env, "zsh", &["ticket", "answer", ""]), "1:question from tester: may I?\n");
    assert!(offered(&env, "bash", &["show", ""]).contains(&task));
    assert_eq!(offered(&env, "bash", &["run", "--agent", "bo"]), "bot\n");
    assert_eq!(offered(&env, "bash", &["run", "--loop", ""]), "mine\n");
}

#[test]
fn completion_makes_nothing_and_is_silent_about_damage() {
    let env = Env::new();
    std::fs::remove_dir_all(env.state()).ok();
    assert_eq!(offered(&env, "bash", &["why", ""]), "");
    assert!(!env.state().exists(), "no state folder is made");
    env.write("everloop.toml", "[loop");
    assert_eq!(offered(&env, "bash", &["run", "--agent", ""]), "");
    std::fs::create_dir_all(env.state()).expect("the folder can be made");
    std::fs::write(env.state().join("ledger.db"), "no database").expect("the file can be written");
    for verb in ["why", "forget", "show"] {
        assert_eq!(offered(&env, "bash", &[verb, ""]), "");
    }
    let left: Vec<_> = std::fs::read_dir(env.state()).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["ledger.db"]);
}

#[test]
fn other_shells_get_theirs_and_an_unknown_one_is_refused_with_the_list() {
    let env = Env::new();
    for (shell, mark) in [("zsh", "#compdef everloop"), ("fish", "complete -c everloop")] {
        let script = env.run(&["generate", "completions", shell]).ok().stdout;
        assert!(script.contains(mark) && script.contains(&format!("COMPLETE={shell}")), "{shell}");
    }
    assert!(env.run(&["generate", "completions", "elvish"]).ok().stdout.contains("guard"));
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
