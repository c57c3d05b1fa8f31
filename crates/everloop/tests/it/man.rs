//! `everloop man`: the manual, on standard output or as a page per verb.

use crate::env::Env;

#[test]
fn the_main_page_is_printed_and_names_exit_codes() {
    let page = Env::new().run(&["man"]).ok().stdout;
    assert!(page.contains(".TH everloop") && page.contains("Exit codes"), "{page}");
}

#[test]
fn every_verb_gets_a_page_in_the_folder() {
    let env = Env::new();
    let written = env.run(&["man", "--to", "pages", "--json"]).ok().json()["written"].clone();
    let files = std::fs::read_dir(env.project().join("pages")).expect("it was made").count();
    assert_eq!(written.as_array().map(Vec::len), Some(files));
    assert!(files > 45, "{files} pages");
    assert!(env.read("pages/everloop-task-add.1").contains("priority"));
    env.write("taken", "a file");
    assert!(env.run(&["man", "--to", "taken"]).exits(1).stderr.contains("taken"));
}
