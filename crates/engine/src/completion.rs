//! Looks for completion signs in a folder and in an agent's output, and remembers in the ledger
//! which were reported. The core decides what counts as a sign; the caller decides what it leads
//! to.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use everloop_core::completion::{
    CompletionEvidence, CompletionReading, CompletionRule, FILE_MAX_BYTES, Memory, SIGN, SIGN_VERSION,
};
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::Ledger;

use crate::error::Failure;

/// Where to look for signs.
pub struct CompletionInputs<'a> {
    /// The loop's id, or its place where the ledger does not know it.
    pub owner: &'a str,
    pub name: &'a str,
    /// The folder in which files are looked for; `None` where it is not known.
    pub dir: Option<&'a Path>,
    /// The turn or session that did the work.
    pub by: &'a str,
    /// The end of the agent's output.
    pub said: &'a str,
}

/// A sign to report, and the operation that remembers it.
pub struct CompletionNotice {
    pub rule: String,
    pub text: String,
    /// To be written in the same transaction as what the sign leads to. A second writer is refused:
    /// the sign was reported already.
    pub remember: Op,
}

impl CompletionNotice {
    /// The waker's name in the wake command.
    pub fn waker(&self) -> String {
        format!("completion `{}`: {}", self.rule, self.text)
    }
}

/// Looks once. The operations beside the signs forget signs that are gone.
pub fn look(
    ledger: &impl Ledger,
    rules: &[CompletionRule],
    scene: &CompletionInputs<'_>,
    now: Time,
) -> Result<(Vec<CompletionNotice>, Vec<Op>), Failure> {
    let (mut told, mut gone) = (Vec::new(), Vec::new());
    for rule in rules.iter().filter(|rule| rule.of.as_deref().is_none_or(|name| name == scene.name)) {
        let text = match (rule.sign.file(), scene.dir) {
            (None, _) => None,
            (Some(file), Some(dir)) => read(&dir.join(file)),
            (Some(_), None) => continue,
        };
        let key = key(scene.owner, &rule.name);
        let row = ledger.doc(SIGN, &key)?;
        let before = row.as_ref().and_then(|row| memory(&row.body));
        let evidence = CompletionEvidence { by: scene.by, said: scene.said, file: text.as_deref() };
        let version = row.map_or(0, |row| row.version);
        let save = |memory: &Memory| {
            let body = serde_json::to_string(memory).expect("a memory is plain data and always has a JSON form");
            Op::SaveDoc { kind: SIGN.to_owned(), key: key.clone(), version, body }
        };
        match rule.look(before.as_ref(), &evidence, now) {
            CompletionReading::Same => {}
            CompletionReading::Gone(memory) => gone.push(save(&memory)),
            CompletionReading::Seen(memory) => {
                told.push(CompletionNotice {
                    rule: rule.name.clone(),
                    text: memory.text.clone(),
                    remember: save(&memory),
                });
            }
        }
    }
    Ok((told, gone))
}

/// Signs reported for a loop, the newest first.
pub fn known(ledger: &impl Ledger, owner: &LoopId) -> Result<Vec<(String, Memory)>, Failure> {
    let begin = key(owner.as_str(), "");
    let rows = ledger.docs(SIGN)?.into_iter();
    let mut all: Vec<(String, Memory)> =
        rows.filter_map(|row| Some((row.key.strip_prefix(&begin)?.to_owned(), memory(&row.body)?))).collect();
    all.sort_by_key(|(_, memory)| std::cmp::Reverse(memory.at));
    Ok(all)
}

fn key(owner: &str, rule: &str) -> String {
    format!("{owner}:{rule}")
}

/// An unreadable memory counts as none: the sign is reported once more.
fn memory(body: &str) -> Option<Memory> {
    serde_json::from_str(body).ok().filter(|memory: &Memory| memory.sign_version <= SIGN_VERSION)
}

/// Reads a plain file; a file that is too long counts as empty. `O_NONBLOCK` keeps a pipe from
/// blocking the caller.
fn read(path: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()?;
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if meta.len() > FILE_MAX_BYTES {
        return Some(String::new());
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use everloop_core::completion::CompletionSign;
    use everloop_store::Model;

    use super::*;

    fn plan() -> Vec<CompletionRule> {
        let sign = CompletionSign::Plan { file: "PLAN.md".to_owned() };
        vec![CompletionRule { name: "plan".to_owned(), of: Some("main".to_owned()), sign }]
    }

    #[test]
    fn a_sign_is_told_once_whoever_looks_and_again_when_it_came_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut ledger = Model::default();
        let scene = |name| CompletionInputs { owner: "k3f9", name, dir: Some(dir.path()), by: "k3f9-1.1", said: "" };
        let write = |text: &str| std::fs::write(dir.path().join("PLAN.md"), text).expect("a file");
        write("- [x] a\n");
        assert!(look(&ledger, &plan(), &scene("other"), Time(1)).expect("it can be read").0.is_empty());
        let (first, _) = look(&ledger, &plan(), &scene("main"), Time(1)).expect("it can be read");
        let (second, _) = look(&ledger, &plan(), &scene("main"), Time(1)).expect("it can be read");
        assert_eq!(first[0].waker(), "completion `plan`: `PLAN.md` has no open box (1 done)");
        ledger.transact(Time(1), &[first[0].remember.clone()]).expect("the first one reports it");
        assert!(ledger.transact(Time(1), &[second[0].remember.clone()]).is_err(), "the second one comes too late");
        assert_eq!(known(&ledger, &LoopId::new("k3f9")).expect("it can be read")[0].0, "plan");
        assert!(look(&ledger, &plan(), &scene("main"), Time(2)).expect("it can be read").0.is_empty());
        write("- [x] a\n- [ ] b\n");
        let (none, gone) = look(&ledger, &plan(), &scene("main"), Time(3)).expect("it can be read");
        assert!(none.is_empty() && gone.len() == 1);
        ledger.transact(Time(3), &gone).expect("it can be written");
        write("- [x] a\n- [x] b\n");
        assert_eq!(look(&ledger, &plan(), &scene("main"), Time(4)).expect("it can be read").0.len(), 1);
    }

    #[test]
    fn what_is_no_file_is_not_read_and_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!((read(&pipe), read(dir.path()), read(Path::new("/dev/zero"))), (None, None, None));
        std::fs::write(dir.path().join("large"), "- [x] a\n".repeat(1 << 17)).expect("a file");
        assert_eq!(read(&dir.path().join("large")).as_deref(), Some(""), "an open box may follow behind the end");
    }
}
