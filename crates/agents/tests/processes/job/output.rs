//! Floods, odd bytes, secrets and markers in the output.

use std::time::{Duration, Instant};

use everloop_agents::job::{self, JobRecord, OutputCaps, Stream};

use super::room::Room;
use crate::trials;

trials!(
    fifty_megabytes_are_kept_whole,
    a_gigabyte_needs_no_memory,
    a_line_of_100_megabytes,
    both_streams_flood_at_once,
    odd_bytes,
    streams_are_kept_apart,
    stdout_is_closed_and_the_work_goes_on,
    output_just_before_the_end_is_kept,
    secrets_are_redacted_across_reads,
    secrets_do_not_slow_a_flood,
    backoff_across_reads,
    the_last_backoff_counts,
    a_check_keeps_little,
);

/// Generous for a loaded machine and a build without optimisation; the shim really uses about 5 MB.
const SHIM_RSS_KB: u64 = 30_000;

fn flood(script: &str) -> (Room, JobRecord, Duration) {
    let room = Room::sh(script);
    let begun = Instant::now();
    let record = room.run();
    let took = begun.elapsed();
    assert!(record.shim_rss_kb < SHIM_RSS_KB, "the shim used {} kB", record.shim_rss_kb);
    assert_eq!((record.exit.code, &record.capture_error), (Some(0), &None));
    report(script, took, &record);
    (room, record, took)
}

/// Measurements are shown when a single test is run.
#[expect(clippy::print_stderr, reason = "a measurement for the reader of the test")]
fn report(what: &str, took: Duration, record: &JobRecord) {
    eprintln!("{what}: {took:?}, shim {} kB, {} bytes", record.shim_rss_kb, record.exit.out_bytes);
}

fn kept_bytes(room: &Room) -> u64 {
    let entries = std::fs::read_dir(room.dir()).unwrap().flatten();
    let output =
        entries.filter(|e| e.file_name().to_str().is_some_and(|n| n.contains(".head") || n.contains(".tail.")));
    output.map(|e| e.metadata().unwrap().len()).sum()
}

fn fifty_megabytes_are_kept_whole() {
    let (room, record, _) = flood("head -c 50M /dev/zero | tr '\\0' a");
    assert_eq!(record.exit.out_bytes, 50 << 20);
    // 32 MB head, and the last 16 MB of at most two segments: 50 MB minus one dropped segment.
    assert!(kept_bytes(&room) >= 40 << 20);
}

fn a_gigabyte_needs_no_memory() {
    let (room, record, _) = flood("head -c 1G /dev/zero; echo the end");
    assert_eq!(record.exit.out_bytes, (1 << 30) + 8);
    assert!(kept_bytes(&room) <= 64 << 20);
    assert!(record.exit.tail.ends_with("the end\n"));
    let ends = job::both_ends(&room.dir(), Stream::Out, 100).unwrap();
    assert!(ends.contains(&format!("… {} bytes not kept …", (1 << 30) + 8 - 100)), "{ends}");
    assert!(ends.ends_with("the end\n"));
}

fn a_line_of_100_megabytes() {
    let (_, record, _) = flood("head -c 100M /dev/zero | tr '\\0' x; echo; echo last");
    assert_eq!(record.exit.out_bytes, (100 << 20) + 6);
    assert!(record.exit.tail.ends_with("x\nlast\n") && record.exit.tail.len() <= 2048);
}

fn both_streams_flood_at_once() {
    let (room, record, _) = flood("head -c 60M /dev/zero >&2 & head -c 60M /dev/zero; wait");
    assert_eq!(record.exit.out_bytes, 120 << 20);
    assert!(kept_bytes(&room) <= 64 << 20);
}

fn odd_bytes() {
    let room = Room::sh(r"printf 'a\000b\377\376c\033[31mred\033]0;title\007\r\n'");
    let record = room.run();
    assert_eq!(record.exit.tail, "ab\u{fffd}\u{fffd}cred\n");
    let raw = std::fs::read(room.dir().join("out.head")).unwrap();
    assert!(raw.starts_with(b"a\0b\xff\xfec\x1b[31m"), "{raw:?}");
}

fn streams_are_kept_apart() {
    let room = Room::sh("echo to out; echo to err >&2");
    let tail = room.run().exit.tail;
    assert_eq!(room.out(), "to out\n");
    assert_eq!(job::output(&room.dir(), Stream::Err, 100).unwrap(), "to err\n");
    assert!(tail.contains("to out\n") && tail.contains("to err\n"));
}

fn stdout_is_closed_and_the_work_goes_on() {
    let room = Room::sh("echo before; exec >&- 2>&-; sleep 0.2; echo done > done; exit 5");
    let exit = room.run().exit;
    assert_eq!((exit.code, exit.tail.as_str()), (Some(5), "before\n"));
    assert!(room.file("done").exists());
}

fn output_just_before_the_end_is_kept() {
    for _ in 0..20 {
        let room = Room::sh("seq 20000; echo err >&2; exit 3");
        let exit = room.run().exit;
        assert_eq!(exit.out_bytes, 108_894 + 4);
        assert!(room.out().ends_with("19999\n20000\n"));
    }
}

fn secrets_are_redacted_across_reads() {
    let secret = "sk-12345678";
    let script: Vec<String> = (1..secret.len())
        .map(|cut| format!("printf %s '<{}'; sleep 0.02; printf %s '{}>'; sleep 0.02", &secret[..cut], &secret[cut..]))
        .collect();
    let mut room = Room::sh(&format!("{}; printf 'sk-1234' >&2", script.join(";")));
    room.env = room.env.with("MY_KEY", secret).with("SHORT", "sk-12");
    room.spec.secrets = vec!["MY_KEY".to_owned(), "SHORT".to_owned(), "NOT_SET".to_owned()];
    let exit = room.run().exit;
    assert_eq!(room.out(), "<[redacted:MY_KEY]>".repeat(secret.len() - 1));
    assert!(!exit.tail.contains(secret), "{}", exit.tail);
    assert!(exit.tail.contains("sk-1234"), "an unfinished secret is no secret: {}", exit.tail);
    for entry in std::fs::read_dir(room.dir()).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        // The command line of this test has only parts of the value, so all of it must be nowhere
        // on disk.
        assert!(!String::from_utf8_lossy(&content).contains(secret), "{}", path.display());
    }
}

fn secrets_do_not_slow_a_flood() {
    let mut room = Room::sh("yes 'sk-12345 an ordinary line of output sk-1234567' | head -c 50M; echo $MY_KEY");
    room.env = room.env.with("MY_KEY", "sk-12345678").with("OTHER", "another-secret");
    room.spec.secrets = vec!["MY_KEY".to_owned(), "OTHER".to_owned()];
    let begun = Instant::now();
    let record = room.run();
    report("50 MB with secrets", begun.elapsed(), &record);
    assert!(record.exit.tail.ends_with("[redacted:MY_KEY]\n"));
    assert!(record.shim_rss_kb < SHIM_RSS_KB);
}

fn backoff_across_reads() {
    let marker = "<BACKOFF 90s>";
    for cut in 1..marker.len() {
        let script = format!("printf 'wait\n{}'; sleep 0.02; printf '{}\nplease'", &marker[..cut], &marker[cut..]);
        assert_eq!(Room::sh(&script).run().exit.backoff_ms, Some(90_000), "cut at {cut}");
    }
}

fn the_last_backoff_counts() {
    let script = "echo '<BACKOFF 1h>'; sleep 0.05; echo '<BACKOFF 5m>' >&2; sleep 0.05; echo '<BACKOFF later>'";
    assert_eq!(Room::sh(script).run().exit.backoff_ms, Some(300_000));
    let mut deaf = Room::sh(script);
    deaf.spec.backoff_word = None;
    assert_eq!(deaf.run().exit.backoff_ms, None);
}

fn a_check_keeps_little() {
    let mut room = Room::sh("head -c 20M /dev/zero");
    room.spec.caps = OutputCaps::CHECK;
    assert_eq!(room.run().exit.out_bytes, 20 << 20);
    assert!(kept_bytes(&room) <= 2 << 20);
}
