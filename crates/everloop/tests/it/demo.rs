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

#[test]
fn long_the_demo_of_research_shows_each_outcome_and_ends_with_a_champion() {
    let env = Env::new();
    let other = thread_of_a_demo_that_is_not_kept();
    let out = env.run(&["demo", "research", "--keep", "kept"]).ok();
    for seen in [
        "better in every look of the race",
        "worse at the first look",
        "the same experiment goes on with a turn that mends it",
        "measured again, the luck was gone",
        "it edited the script that measures: refused",
        "killed with SIGKILL",
        "still at work",
        "The same as a page: ",
    ] {
        assert!(out.stderr.contains(seen), "`{seen}` is missing:\n{}", out.stderr);
    }
    assert!(out.stdout.contains("=== Autoresearch Complete (6/9 iterations) ==="), "{}", out.stdout);
    assert!(out.stdout.contains("   6 keep ") && out.stdout.contains("● kept 3"), "rows and chart: {}", out.stdout);
    // What the comments claim is in the records.
    let shown = env.run(&["--state-dir", "kept/state", "-C", "kept/project", "research", "show", "--json"]).ok().json();
    let rows = shown["rows"].as_array().expect("rows");
    let statuses: Vec<&str> = rows.iter().filter_map(|row| row["status"].as_str()).collect();
    assert_eq!(statuses, ["baseline", "keep", "discard", "keep", "discard", "refused", "keep"], "{}", out.stderr);
    let value = |n: usize| rows[n]["value"].as_f64().expect("it was measured");
    let samples = |n: usize| -> Vec<f64> {
        rows[n]["samples"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    assert_eq!((rows[3]["fixes"].as_u64(), rows[5]["value"].as_f64()), (Some(1), None));
    assert_eq!(samples(2).len(), 1, "what is worse is measured once");
    assert!(samples(4)[0] < value(3) && samples(4).len() > 1, "a lucky look: {:?} beside {}", samples(4), value(3));
    assert!(value(0) > value(1) && value(1) > value(3) && value(3) > value(6), "{rows:?}");
    let page = env.read("kept/report.html");
    assert!(page.contains("<svg") && page.contains("geometric mean"), "{page}");
    other.join().expect("it ends well, too");
}

/// The demo of research without `--keep`: nothing stays but the page that it names.
fn thread_of_a_demo_that_is_not_kept() -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| {
        let env = Env::new();
        let out = env.run(&["demo", "research"]).ok();
        let folder = std::fs::read_dir(env.project().join("../tmp")).expect("the folder is the test's");
        let left: Vec<_> = folder.map(|entry| entry.expect("it can be read").path()).collect();
        let [page] = left.as_slice() else { panic!("it cleans up: {left:?}") };
        let name = page.file_name().expect("it was listed").to_string_lossy();
        assert!(out.stderr.contains(&*name), "{}", out.stderr);
        assert!(std::fs::read_to_string(page).expect("it was written").contains("<svg"));
    })
}
