//! The file on disk: crashes, damage, other formats, permissions.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::journal::Damage;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, OpenMode, Sqlite};
use everloop_testkit::tamper::forge;
use tempfile::TempDir;

fn home() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    (home, path)
}

fn writer(path: &Path) -> Sqlite {
    Sqlite::open(path, OpenMode::ReadWrite).unwrap()
}

/// One batch that moves a loop's version and the journal together.
fn step(ledger: &mut Sqlite, version: u64) {
    let owner = LoopId::new(["a", "b"][version as usize % 2]);
    let events = vec![Event::Note { text: format!("step {version}") }];
    let save = Op::SaveLoop { id: LoopId::new("k3f9"), version, phase: "ready".into(), state: "{}".into() };
    ledger.transact(Time(version as i64), &[save, Op::Append { owner: Some(owner), events }]).unwrap();
}

fn with_steps(path: &Path, n: u64) {
    let mut ledger = writer(path);
    for version in 0..n {
        step(&mut ledger, version);
    }
}

fn with_steps_from(path: &Path, first: u64) {
    step(&mut writer(path), first);
}

fn wal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

/// Changes the file without the ledger.
fn raw(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_crash_at_any_byte_of_the_log_leaves_whole_batches_only() {
    let (home, path) = home();
    let mut ledger = writer(&path);
    for version in 0..40 {
        step(&mut ledger, version);
    }
    // Dropping the ledger would clean the log up, as no killed process does.
    std::mem::forget(ledger);
    let (main, wal) = (fs::read(&path).unwrap(), fs::read(wal_of(&path)).unwrap());
    let crashed = home.path().join("crashed.db");
    let mut last = 0;
    for length in (0..=wal.len()).step_by(997).chain([wal.len()]) {
        fs::write(&crashed, &main).unwrap();
        let mut log = fs::File::create(wal_of(&crashed)).unwrap();
        log.write_all(&wal[..length]).unwrap();
        // A torn write: the rest of the block exists but holds something else.
        log.write_all(&vec![0xa5; (wal.len() - length).min(300)]).unwrap();
        drop(log);
        let found = writer(&crashed);
        let version = found.get_loop(&LoopId::new("k3f9")).unwrap().map_or(0, |row| row.version);
        assert_eq!(replay(&found, drop).unwrap(), version, "half a batch after {length} bytes");
        assert!(version >= last, "a longer log gave less");
        last = version;
    }
    assert_eq!(last, 40, "the whole log gives everything back");
}

#[test]
fn a_damaged_record_is_reported_and_never_guessed() {
    let (_home, path) = home();
    with_steps(&path, 20);
    raw(&path, "UPDATE journal SET body = replace(body, 'step 9', 'step 8') WHERE seq = 10");
    let ledger = writer(&path);
    let damaged = |result: Result<_, Error>| match result {
        Err(Error::Damaged(damage)) => damage,
        other => panic!("{other:?}"),
    };
    let mut trusted = 0;
    let stopped = replay(&ledger, |record| trusted = record.seq);
    assert_eq!(damaged(stopped.map(|_| vec![])), Damage::Checksum { seq: 10 });
    assert_eq!(trusted, 9);
    let owner = LoopId::new("b");
    assert_eq!(damaged(ledger.journal(5, Some(&owner), 50)), Damage::Checksum { seq: 10 });
    assert_eq!(damaged(ledger.journal_tail(None, 15)), Damage::Checksum { seq: 10 });
    assert_eq!(ledger.journal(11, None, 50).unwrap().len(), 9, "what can be checked can be read");
    assert_eq!(ledger.loops().unwrap().len(), 1, "the rest of the ledger is not touched by it");
}

#[test]
fn bytes_that_are_no_text_any_more_are_damage_too() {
    let (_home, path) = home();
    with_steps(&path, 3);
    raw(&path, "UPDATE journal SET body = CAST(x'ff00fe' AS TEXT) WHERE seq = 2");
    assert!(matches!(replay(&writer(&path), drop), Err(Error::Damaged(Damage::Checksum { seq: 2 }))));
}

#[test]
fn a_missing_record_is_a_gap() {
    let (_home, path) = home();
    with_steps(&path, 5);
    raw(&path, "DELETE FROM journal WHERE seq = 3");
    let ledger = writer(&path);
    let gap = Damage::Gap { expected: 3, found: 4 };
    assert!(matches!(replay(&ledger, drop), Err(Error::Damaged(d)) if d == gap));
    assert!(matches!(ledger.journal(0, None, 9), Err(Error::Damaged(d)) if d == gap));
}

fn chain(path: &Path) -> Result<Option<u64>, Damage> {
    match Sqlite::open(path, OpenMode::ReadOnly).unwrap().verify_chain() {
        Err(Error::Damaged(damage)) => Err(damage),
        other => Ok(other.unwrap()),
    }
}

#[test]
fn what_only_everloop_wrote_is_signed() {
    let (_home, path) = home();
    drop(writer(&path));
    assert_eq!(chain(&path), Ok(None), "nothing is written yet");
    with_steps(&path, 5);
    assert_eq!(chain(&path), Ok(Some(1)));
    let key = fs::metadata(path.with_extension("key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_change_with_mended_checksums_is_found() {
    let (_home, path) = home();
    with_steps(&path, 5);
    forge(&path, "step 2", "step 7");
    assert_eq!(replay(&writer(&path), drop).unwrap(), 5, "the checksums fit");
    assert_eq!(chain(&path), Err(Damage::Forged { seq: 3 }));
    with_steps_from(&path, 5);
    assert_eq!(chain(&path), Err(Damage::Forged { seq: 3 }), "what is written after it does not heal it");
}

#[test]
fn removed_added_and_unsigned_records_are_found() {
    let cases = [
        ("DELETE FROM journal WHERE seq = 5", Damage::CutOff { seq: 4 }),
        ("DELETE FROM journal WHERE seq = 5; DELETE FROM journal_macs WHERE seq = 5", Damage::CutOff { seq: 4 }),
        ("DELETE FROM journal_macs", Damage::Unsigned { seq: 1 }),
        ("DELETE FROM journal_macs; DELETE FROM journal_head", Damage::Unsigned { seq: 1 }),
        ("DELETE FROM journal_head", Damage::CutOff { seq: 5 }),
        ("UPDATE journal_head SET seq = 4", Damage::CutOff { seq: 5 }),
        (
            "INSERT INTO journal SELECT 6, at, owner, version, body, sum FROM journal WHERE seq = 5",
            Damage::Unsigned { seq: 6 },
        ),
        ("UPDATE journal_macs SET mac = x'00' WHERE seq = 2", Damage::Forged { seq: 2 }),
    ];
    for (change, found) in cases {
        let (_home, path) = home();
        with_steps(&path, 5);
        raw(&path, change);
        assert_eq!(chain(&path), Err(found), "{change}");
    }
    let (_home, path) = home();
    with_steps(&path, 5);
    raw(&path, "DELETE FROM journal WHERE seq = 5; DELETE FROM journal_macs WHERE seq = 5");
    with_steps_from(&path, 5);
    assert_eq!(chain(&path), Err(Damage::Forged { seq: 5 }), "a new record does not hide it");
    let (_home, path) = home();
    with_steps(&path, 5);
    fs::remove_file(path.with_extension("key")).unwrap();
    assert_eq!(chain(&path), Err(Damage::NoKey));
}

#[test]
fn records_of_an_older_format_are_covered_from_the_first_signature_on() {
    let (_home, path) = home();
    raw(&path, include_str!("../fixtures/ledger-2.sql"));
    drop(writer(&path));
    assert_eq!(chain(&path), Ok(None), "an untampered old journal opens");
    let old = writer(&path).last_seq().unwrap();
    let note = Op::Append { owner: None, events: vec![Event::Note { text: "new".into() }] };
    writer(&path).transact(Time(20), &[note]).unwrap();
    assert_eq!(chain(&path), Ok(Some(old + 1)));
    forge(&path, "tests", "nests");
    assert_eq!(chain(&path), Err(Damage::Forged { seq: old + 1 }));
}

#[test]
fn a_row_that_makes_no_sense_is_named() {
    let (_home, path) = home();
    drop(writer(&path));
    raw(&path, "INSERT INTO guards VALUES ('account:main', 1, '{')");
    let text = writer(&path).guards().unwrap_err().to_string();
    assert!(text.starts_with("guard `account:main` in the ledger cannot be read: "), "{text}");
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let (_home, path) = home();
    with_steps(&path, 1);
    raw(&path, "PRAGMA user_version = 99");
    let before = fs::read(&path).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let error = Sqlite::open(&path, mode).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 99, .. }), "{error:?}");
        let said = format!("has format 99, newer than this everloop understands ({})", everloop_store::sqlite::FORMAT);
        assert!(error.to_string().contains(&said), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_reader_makes_no_file() {
    let (home, path) = home();
    assert!(matches!(Sqlite::open(&path, OpenMode::ReadOnly), Err(Error::Missing { .. })));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    // State of the file after a crash just after its creation.
    fs::write(&path, "").unwrap();
    assert!(matches!(Sqlite::open(&path, OpenMode::ReadOnly), Err(Error::Missing { .. })));
    drop(writer(&path));
    assert!(Sqlite::open(&path, OpenMode::ReadOnly).is_ok());
}

#[test]
fn something_that_is_no_ledger_is_not_opened() {
    let (_home, path) = home();
    fs::write(&path, "not a database, but long enough to be taken for one".repeat(100)).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let error = Sqlite::open(&path, mode).unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error:?}");
    }
    let nowhere = path.join("below/a/file.db");
    assert!(matches!(Sqlite::open(&nowhere, OpenMode::ReadWrite), Err(Error::Open { .. })));
}

#[test]
fn nobody_else_can_read_the_files() {
    let (home, path) = home();
    let mut ledger = writer(&path);
    step(&mut ledger, 0);
    let mut names = Vec::new();
    for entry in fs::read_dir(home.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        names.push(entry.file_name());
    }
    names.sort();
    assert_eq!(names, ["ledger.db", "ledger.db-shm", "ledger.db-wal", "ledger.key"]);
}

#[test]
fn the_integrity_check_finds_what_is_wrong_with_the_file() {
    let (_home, path) = home();
    with_steps(&path, 300);
    assert_eq!(writer(&path).check_integrity().unwrap(), Vec::<String>::new());
    // An index that no longer fits its table, as after a bad sector.
    raw(
        &path,
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX journal_by_owner ON journal (version, seq)'
         WHERE name = 'journal_by_owner';",
    );
    assert_ne!(writer(&path).check_integrity().unwrap(), Vec::<String>::new());
}
