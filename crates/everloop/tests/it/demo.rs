//! `everloop demo`: the first thing that a new user tries.

use crate::env::Env;

#[test]
fn long_the_demo_shows_what_it_promises_and_ends_well() {
    let env = Env::new();
    let other = kept_without_network();
    let out = env.run(&["demo", "--svg", "demo.svg"]).ok();
    for seen in ["nothing was changed, so nothing counts", "refused", "killed with SIGKILL", "still at work", "sleeps"]
    {
        assert!(out.stderr.contains(seen), "`{seen}` is missing:\n{}", out.stderr);
    }
    assert!(out.stdout.contains("5 of 5 checks pass"), "{}", out.stdout);
    assert!(std::fs::read_dir(env.project().parent().unwrap().join("tmp")).unwrap().next().is_none(), "it cleans up");
    // The picture in docs is a recording: its comments are those of a run of today.
    let comments = |svg: &str| -> Vec<String> {
        svg.lines()
            .filter(|line| line.contains(">demo: "))
            .filter_map(|l| Some(l.split_once('>')?.1.to_owned()))
            .collect()
    };
    let picture = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo.svg")).unwrap();
    assert_eq!(comments(&env.read("demo.svg")), comments(&picture));
    other.join().expect("it ends well, too");
}

/// The demo on a machine without a network, kept in a folder.
fn kept_without_network() -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| {
        let env = Env::new();
        let mut command = env.program("unshare");
        command.args(["-rn", env!("CARGO_BIN_EXE_everloop"), "demo", "--keep", "kept"]);
        let ended = command.output().expect("`unshare` of util-linux is there");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        for folder in ["kept/project/.git", "kept/state"] {
            assert!(env.project().join(folder).is_dir(), "{folder}");
        }
    })
}
