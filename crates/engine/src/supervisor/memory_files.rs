//! The memory of a persona as files for people: `memory.md`, `reflections.jsonl`, `plans.md`. They
//! are made from the ledger and never read; a person changes the memory with `everloop persona
//! remember`.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use everloop_core::rhythm::inward::memory::Memory;

use crate::state_folder::write_whole;

/// Private, like all of the state folder.
const MODE: u32 = 0o600;

/// Writes all files, each whole or not at all.
pub(super) fn write(dir: &Path, memory: &Memory) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    write_whole(&dir.join("memory.md"), format!("{}\n", memory.text()).as_bytes(), MODE)?;
    let mut reflections = String::new();
    for reflection in &memory.reflections {
        reflections.push_str(&serde_json::to_string(reflection)?);
        reflections.push('\n');
    }
    write_whole(&dir.join("reflections.jsonl"), reflections.as_bytes(), MODE)?;
    let mut plans = String::new();
    for plan in &memory.plans {
        write!(plans, "## If woken by {}\n\n{}\n\n", plan.describe(), plan.text)
            .expect("writing to a string cannot fail");
    }
    write_whole(&dir.join("plans.md"), plans.as_bytes(), MODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::rhythm::inward::form::Reflection;
    use everloop_core::rhythm::inward::plan::IfWoken;
    use everloop_core::rhythm::signal::SignalClass;
    use everloop_core::time::Time;

    #[test]
    fn files_are_written_again_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("personas/echo");
        let mut memory = Memory::default();
        memory.dream(Some("- eu is slow"), Time(1));
        memory.reflect(Reflection { notes: vec!["a\nb".to_owned()], ..Reflection::default() });
        memory.plans = vec![IfWoken { when: None, class: Some(SignalClass::High), text: "look at eu".to_owned() }];
        for _ in 0..2 {
            write(&dir, &memory).expect("they are written");
            let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("it is there");
            assert_eq!(read("memory.md"), "- eu is slow\n");
            assert_eq!(read("reflections.jsonl").lines().count(), 1);
            assert_eq!(read("plans.md"), "## If woken by class high\n\nlook at eu\n\n");
        }
    }
}
