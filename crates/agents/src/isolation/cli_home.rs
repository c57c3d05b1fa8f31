//! The folders of a CLI before a turn: those that have to exist, and a private one where its files
//! and its settings would otherwise stand side by side.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use everloop_core::isolation::Places;
use everloop_core::isolation::places::{CliFolder, PrivateHome};

/// A folder that a CLI uses instead of the person's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedHome {
    /// The variable that names it.
    pub variable: &'static str,
    pub folder: PathBuf,
    /// Where in it the CLI writes. The folder above stays closed: a turn that put a link in the place
    /// of this one would have other files cleaned away before the next.
    pub writable: PathBuf,
}

/// Makes the folders of a CLI ready. Its private one, if it has one, is `private`.
pub fn furnish(cli: &CliFolder, at: &Places<'_>, private: &Path) -> io::Result<Option<MovedHome>> {
    for folder in cli.needed {
        fs::create_dir_all(cli.path(folder, at))?;
    }
    let Some(home) = &cli.private else { return Ok(None) };
    let inside = if home.inside.is_empty() { private.to_owned() } else { private.join(home.inside) };
    if fs::symlink_metadata(&inside).is_ok_and(|meta| !meta.is_dir()) {
        fs::remove_file(&inside)?;
    }
    fs::create_dir_all(&inside)?;
    clean(home, &inside)?;
    for name in home.linked {
        let original = cli.path(name, at);
        if original.exists() {
            symlink(original, inside.join(name))?;
        }
    }
    Ok(Some(MovedHome { variable: home.variable, folder: private.to_owned(), writable: inside }))
}

/// Removes everything but what the CLI keeps between turns; links are made anew.
fn clean(home: &PrivateHome, inside: &Path) -> io::Result<()> {
    for entry in fs::read_dir(inside)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_kept = home.kept.iter().any(|kept| name.to_string_lossy().starts_with(kept));
        let kind = entry.file_type()?;
        match (kind.is_symlink(), kind.is_dir()) {
            (false, _) if is_kept => {}
            (false, true) => fs::remove_dir_all(entry.path())?,
            _ => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::isolation::places::CLIS;
    use everloop_core::spec::AgentKind;

    #[test]
    fn what_a_turn_planted_is_gone_and_settings_are_the_persons() {
        let dir = tempfile::tempdir().unwrap();
        let (home, private) = (dir.path().join("home"), dir.path().join("private"));
        fs::create_dir_all(home.join(".codex")).unwrap();
        fs::write(home.join(".codex/config.toml"), "theirs").unwrap();
        let none = |_: &str| None;
        let at = Places {
            home: &home,
            state: dir.path(),
            folder: dir.path(),
            env: &none,
            secret_files: Vec::new(),
            own: Vec::new(),
            own_writable: Vec::new(),
        };
        let codex = CLIS.iter().find(|cli| cli.kind == AgentKind::Codex).unwrap();
        let moved = furnish(codex, &at, &private).unwrap().unwrap();
        assert_eq!((moved.variable, &moved.folder, &moved.writable), ("CODEX_HOME", &private, &private));
        fs::create_dir_all(private.join("sessions/2026")).unwrap();
        fs::remove_file(private.join("config.toml")).unwrap();
        for planted in ["config.toml", "AGENTS.md", "hooks.json"] {
            fs::write(private.join(planted), "planted").unwrap();
        }
        symlink("/etc", private.join("log")).unwrap();
        furnish(codex, &at, &private).unwrap();
        assert_eq!(fs::read_to_string(private.join("config.toml")).unwrap(), "theirs");
        assert!(private.join("sessions/2026").exists());
        assert!(!private.join("AGENTS.md").exists() && !private.join("hooks.json").exists());
        assert!(!private.join("log").exists());

        let gemini = CLIS.iter().find(|cli| cli.kind == AgentKind::Gemini).unwrap();
        let private = dir.path().join("gemini");
        let moved = furnish(gemini, &at, &private).unwrap().unwrap();
        assert_eq!(moved.writable, private.join(".gemini"));
        fs::remove_dir_all(&moved.writable).unwrap();
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "theirs").unwrap();
        symlink(&precious, &moved.writable).unwrap();
        furnish(gemini, &at, &private).unwrap();
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "theirs");
    }
}
