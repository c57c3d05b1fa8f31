//! `everloop completions`: scripts for shells.

use std::process::{Command, Stdio};

use crate::env::Env;

#[test]
fn bash_reads_its_script_and_completes_a_verb() {
    let env = Env::new();
    let script = env.run(&["completions", "bash"]).ok().stdout;
    env.write("everloop.bash", &script);
    let ask = "source everloop.bash && COMP_WORDS=(everloop sta) COMP_CWORD=1 && \
               _everloop everloop sta everloop && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", ask]).current_dir(env.project()).stdin(Stdio::null());
    let told = bash.output().expect("bash is needed to complete");
    assert_eq!(String::from_utf8_lossy(&told.stdout), "status\n", "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn other_shells_get_theirs_and_an_unknown_one_is_refused_with_the_list() {
    let env = Env::new();
    for (shell, mark) in [("zsh", "#compdef everloop"), ("fish", "complete -c everloop")] {
        let script = env.run(&["completions", shell]).ok().stdout;
        assert!(script.contains(mark) && script.contains("quarantine"), "{shell}");
    }
    let data = env.run(&["completions", "zsh", "--json"]).ok().json();
    assert!(data["script"].as_str().is_some_and(|script| script.contains("#compdef everloop")));
    assert!(env.run(&["completions", "csh"]).exits(2).stderr.contains("zsh"));
}
