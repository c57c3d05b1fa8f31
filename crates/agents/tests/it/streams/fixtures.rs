//! The recorded cases, and how one is fed to a reader.

use std::fs;
use std::path::{Path, PathBuf};

use everloop_agents::agent::{ProcessEnd, Reader};
use everloop_core::spec::AgentKind;
use everloop_core::stream::{AgentEvent, TurnReport};
use everloop_core::time::Time;

/// 2026-11-15 18:50:00 UTC: shortly before the recordings were made.
pub const NOW: Time = Time(1_794_768_600_000);

/// One recorded run.
pub struct Case {
    pub kind: AgentKind,
    pub name: String,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// Codex's own session file.
    pub rollout: Vec<u8>,
    /// Negative: the signal.
    pub exit: i32,
    /// Path of the expected result.
    pub said: PathBuf,
}

/// The folder of the cases.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/streams/fixtures")
}

impl Case {
    /// A run without output that failed.
    pub fn empty(kind: AgentKind) -> Self {
        let nothing = Vec::new;
        Self {
            kind,
            name: String::new(),
            out: nothing(),
            err: nothing(),
            rollout: nothing(),
            exit: 1,
            said: PathBuf::new(),
        }
    }
}

/// All cases of the table.
pub fn all() -> Vec<Case> {
    let folder = folder();
    let table = fs::read_to_string(folder.join("cases.tsv")).unwrap();
    let cases: Vec<Case> = table.lines().skip(1).map(|line| case(&folder, line)).collect();
    assert!(cases.len() > 100, "only {} cases", cases.len());
    cases
}

fn case(folder: &Path, line: &str) -> Case {
    let columns: Vec<&str> = line.split('\t').collect();
    let [cli, name, exit, ..] = columns.as_slice() else { panic!("`{line}` is not a case") };
    let kind = AgentKind::ALL.into_iter().find(|k| k.label() == *cli).unwrap();
    let stem = folder.join(cli).join(name);
    let part = |end: &str| fs::read(stem.with_file_name(format!("{name}.{end}"))).unwrap_or_default();
    Case {
        kind,
        name: format!("{cli}/{name}"),
        out: part("jsonl"),
        err: part("err"),
        rollout: part("rollout"),
        exit: exit.parse().unwrap(),
        said: stem.with_file_name(format!("{name}.said")),
    }
}

/// How a process ended, with no variable of this machine in its environment.
pub fn end(exit: i32, env: &[(String, String)]) -> ProcessEnd<'_> {
    ProcessEnd { code: (exit >= 0).then_some(exit), signal: (exit < 0).then_some(-exit), now: NOW, env }
}

/// The variables of a child in a zone that is the same on every machine.
pub fn env() -> Vec<(String, String)> {
    vec![("TZ".to_owned(), "UTC".to_owned())]
}

/// Feeds a case in pieces of this size.
pub fn read(case: &Case, piece: usize) -> Vec<AgentEvent> {
    let mut reader = Reader::new(case.kind, case.name.contains("resume"));
    let mut all = Vec::new();
    let mut take = |said| all.push(said);
    for bytes in case.err.chunks(piece) {
        reader.err(bytes, NOW, &mut take);
    }
    for bytes in case.out.chunks(piece) {
        reader.out(bytes, NOW, &mut take);
    }
    let home = codex_home(case);
    let mut env = env();
    env.extend(home.iter().map(|h| ("CODEX_HOME".to_owned(), h.path().display().to_string())));
    reader.end(&end(case.exit, &env), &mut take);
    all
}

/// The folder in which codex would have left its session file.
fn codex_home(case: &Case) -> Option<tempfile::TempDir> {
    let first = case.rollout.split(|b| *b == b'\n').next().filter(|line| !line.is_empty())?;
    let meta: serde_json::Value = serde_json::from_slice(first).unwrap();
    let thread = meta["payload"]["id"].as_str().unwrap();
    let home = tempfile::tempdir().unwrap();
    let day = home.path().join("sessions/2026/11/16");
    fs::create_dir_all(&day).unwrap();
    fs::create_dir_all(home.path().join("sessions/2026/12/31")).unwrap();
    fs::write(day.join("rollout-2026-11-16T00-41-25-another.jsonl"), "{}\n").unwrap();
    fs::write(day.join(format!("rollout-2026-11-16T00-41-26-{thread}.jsonl")), &case.rollout).unwrap();
    Some(home)
}

/// Reads standard output alone, from a process with this exit code.
pub fn read_text(kind: AgentKind, out: &str, exit: i32) -> Vec<AgentEvent> {
    read(&Case { out: out.into(), exit, ..Case::empty(kind) }, usize::MAX)
}

/// Folds all records into a report.
pub fn report(said: &[AgentEvent]) -> TurnReport {
    let mut report = TurnReport::default();
    for one in said {
        report.take(one);
    }
    report
}
