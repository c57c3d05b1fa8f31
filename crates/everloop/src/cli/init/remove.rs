//! `everloop init --remove`: removes what `init` wrote into a project, and only that.

use std::path::PathBuf;

use everloop_engine::error::{Code, Failure};
use everloop_engine::install::record::Originals;
use everloop_engine::install::{FileChange, plan};
use everloop_engine::services::trust;
use serde_json::json;

use super::InitArgs;
use crate::cli::VerbSession;
use crate::config::PROJECT_FILE;
use crate::ui::text::clean;

pub fn remove(args: &InitArgs, session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let root = session.dir.clone();
    let failed = |e: std::io::Error| Failure::failed("cannot remove everloop from this project").because(&e);
    let originals = Originals::load(&home, &root).map_err(failed)?;
    let mut changes = originals.undo(&root).map_err(failed)?;
    let by_parts = plan::take(&root, &|path| originals.of(path, &root)).map_err(failed)?;
    changes
        .extend(by_parts.into_iter().filter(|c| !changes.iter().any(|done| done.path == c.path)).collect::<Vec<_>>());
    changes.retain(FileChange::is_real);
    let kept: Vec<PathBuf> = originals
        .paths(&root)
        .into_iter()
        .filter(|path| path.ends_with(PROJECT_FILE) && path.exists() && !changes.iter().any(|c| c.path == *path))
        .collect();
    let mut lines: Vec<String> = changes.iter().flat_map(|change| change.lines(&root)).collect();
    if args.print {
        session.ui.answer(&lines, &json!({ "files": names(&changes) }))?;
        return Ok(Code::Ok);
    }
    if !args.yes && session.ui.asks() && !changes.is_empty() {
        for line in lines.drain(..) {
            session.ui.talk(&clean(&line));
        }
        if !session.ui.agrees("do this?")? {
            session.ui.talk("nothing was changed");
            return Ok(Code::Ok);
        }
    }
    for change in &changes {
        let done = change.perform(&root);
        done.map_err(|e| Failure::failed(format!("cannot change `{}`", change.path.display())).because(&e))?;
    }
    Originals::forget(&home, &root).map_err(failed)?;
    let trusted = trust::in_force(session)?.is_some_and(|file| file.root == root);
    if trusted && !root.join(PROJECT_FILE).exists() && session.is_for_a_person() {
        trust::revoke(session, &root)?;
    }
    lines.extend(kept.iter().map(|path| format!("kept {}, which was changed since", path.display())));
    if lines.is_empty() {
        lines.push("nothing of everloop was found here".to_owned());
    }
    session.ui.answer(&lines, &json!({ "files": names(&changes), "kept": kept }))?;
    Ok(Code::Ok)
}

fn names(changes: &[FileChange]) -> Vec<&PathBuf> {
    changes.iter().map(|change| &change.path).collect()
}
