//! How commands end, and what they see of their environment.

use std::collections::BTreeSet;
use std::fs;

use everloop_agents::job;

use super::room::Room;
use crate::trials;

trials!(
    exit_codes,
    signal_death,
    what_cannot_start,
    stdin_is_the_file,
    stdin_is_empty_without_a_file,
    stdin_that_nobody_reads,
    environment_is_cleared,
    no_descriptor_leaks,
    the_record_tells_the_use,
    folders_are_private,
);

fn exit_codes() {
    for code in [0, 1, 77, 255] {
        let record = Room::sh(&format!("echo hello; exit {code}")).run();
        assert_eq!((record.exit.code, record.exit.signal), (Some(code), None));
        assert_eq!((record.exit.tail.as_str(), record.exit.out_bytes), ("hello\n", 6));
        assert_eq!((record.exit.stopped, record.exit.leftovers, record.survivors), (None, 0, 0));
        assert!(record.exit.ended_at >= record.exit.started_at);
    }
}

fn signal_death() {
    let exit = Room::sh("kill -SEGV $$").run().exit;
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
}

fn what_cannot_start() {
    let missing = Room::with_argv(&["no-such-program"]).run().exit;
    assert!(missing.spawn_error.as_deref().unwrap().contains("no-such-program"), "{missing:?}");
    assert_eq!((missing.code, missing.signal), (None, None));

    let mut nowhere = Room::sh("true");
    nowhere.spec.cwd = nowhere.file("not there");
    assert!(nowhere.run().exit.spawn_error.unwrap().contains("not there"));

    let mut no_input = Room::sh("true");
    no_input.spec.stdin = Some(no_input.file("prompt"));
    assert!(no_input.run().exit.spawn_error.unwrap().contains("prompt"));

    let empty = Room::with_argv(&[]).run().exit;
    assert!(empty.spawn_error.unwrap().contains("empty"));

    let damaged = Room::sh("true");
    fs::create_dir(damaged.dir()).unwrap();
    fs::write(damaged.dir().join("job.jsonl"), "{").unwrap();
    let exit = super::room::finish(&mut damaged.start_prepared(&super::room::shim()));
    assert!(exit.spawn_error.unwrap().contains("job.jsonl"));
}

fn stdin_is_the_file() {
    let mut room = Room::with_argv(&["cat"]);
    room.spec.stdin = Some(room.file("prompt"));
    fs::write(room.file("prompt"), "do the work\n").unwrap();
    assert_eq!(room.run().exit.tail, "do the work\n");
}

fn stdin_is_empty_without_a_file() {
    assert_eq!(Room::sh("wc -c").run().exit.tail.trim(), "0");
}

fn stdin_that_nobody_reads() {
    let mut room = Room::sh("exit 4");
    room.spec.stdin = Some(room.file("prompt"));
    fs::write(room.file("prompt"), vec![b'x'; 4 << 20]).unwrap();
    assert_eq!(room.run().exit.code, Some(4));
}

fn environment_is_cleared() {
    let mut room = Room::with_argv(&["env"]);
    room.env = everloop_agents::environment::Environment::allowed(
        [("PATH", "/usr/bin:/bin"), ("HUB_URL", "postgres://secret"), ("EVERLOOP_HUB", "x"), ("MY_KEY", "k")]
            .map(|(n, v)| (n.into(), v.into())),
        &["MY_KEY".to_owned()],
    )
    .with("EVERLOOP_TURN", "k3f9-1.2");
    assert_eq!(room.run().exit.code, Some(0));
    let out = room.out();
    let names: BTreeSet<&str> = out.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
    assert_eq!(names, BTreeSet::from(["EVERLOOP_JOB", "EVERLOOP_TURN", "MY_KEY", "PATH"]));
}

fn no_descriptor_leaks() {
    // Started by a shell that leaves descriptors open, as shells and service managers do.
    let room = Room::sh("for fd in 7 8; do [ -e /proc/$$/fd/$fd ] && echo leaked; done; echo looked");
    job::prepare(&room.dir(), &room.spec).unwrap();
    let exe = std::env::current_exe().unwrap();
    let script = "exec 7</dev/null 8>/dev/null; exec \"$0\" __job \"$1\"";
    let shim = job::ShimProgram { exe: "/bin/sh".into(), args: vec!["-c".into(), script.into(), exe.into()] };
    super::room::finish(&mut room.start_prepared(&shim));
    assert_eq!(room.out(), "looked\n");
}

fn the_record_tells_the_use() {
    let record = Room::sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").run();
    assert!(record.cpu_ms > 0 && record.max_rss_kb > 0 && record.shim_rss_kb > 0, "{record:?}");
}

fn folders_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::sh("echo x");
    room.run();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&room.dir()), 0o700);
    for entry in fs::read_dir(room.dir()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}
