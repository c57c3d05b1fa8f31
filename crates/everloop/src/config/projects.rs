//! The answers of configuration to the engine: of the text that is in force, and of the user's own
//! file.

use std::path::{Path, PathBuf};

use everloop_core::time::Time;
use everloop_engine::error::Failure;
use everloop_engine::projects::NotifierSender;
use everloop_engine::projects::{OutboundSpec, ProjectFile, Projects, SessionSpec};

use super::{
    Config, Flags, Overrides, PROJECT_FILE, ProjectText, ResolveContext, USER_FILE, commands, find, load_with, user_dir,
};

/// `everloop.toml` of projects, and the user's own file.
#[derive(Clone, Copy, Debug)]
pub struct FileProjects;

fn of_user() -> Option<PathBuf> {
    user_dir(|name| std::env::var(name).ok())
}

impl FileProjects {
    fn load(file: Option<&ProjectFile>, user: Option<&Path>, overrides: &Overrides) -> Result<Config, Failure> {
        let text = ProjectText::Given(file.map(|file| file.text.clone()));
        Ok(load_with(file.map_or(Path::new("/"), |file| &file.root), &text, user, overrides)?)
    }
}

impl Projects for FileProjects {
    fn user_files(&self) -> Vec<PathBuf> {
        of_user().map(|dir| dir.join(USER_FILE)).into_iter().collect()
    }

    fn file(&self, dir: &Path) -> Option<PathBuf> {
        find(dir).map(|root| root.join(PROJECT_FILE))
    }

    fn root(&self, dir: &Path) -> PathBuf {
        find(dir).unwrap_or(dir).to_owned()
    }

    fn check(&self, file: &ProjectFile, now: Time) -> Result<(), Failure> {
        let config = Self::load(Some(file), of_user().as_deref(), &Overrides::default())?;
        config.check(&ResolveContext::at(now))?;
        config.listen()?;
        config.hook()?;
        Ok(())
    }

    fn commands(&self, text: &str) -> Vec<String> {
        commands(text)
    }

    fn outbound(&self, file: Option<&ProjectFile>) -> Result<OutboundSpec, Failure> {
        match file {
            None => Ok(OutboundSpec::default()),
            Some(_) => Ok(Self::load(file, None, &Overrides::default())?.outbound()?),
        }
    }

    fn notifiers(&self, file: Option<&ProjectFile>, now: Time) -> Result<Vec<NotifierSender>, Failure> {
        let config = Self::load(file, of_user().as_deref(), &Overrides::default())?;
        let (user, project) = config.notifiers(&ResolveContext::at(now))?;
        let user = user.into_iter().map(|of| NotifierSender { dir: None, of });
        let root = file.map(|file| file.root.clone());
        let project = project.into_iter().map(|of| NotifierSender { dir: root.clone(), of });
        Ok(user.chain(project).collect())
    }

    fn session(&self, file: &ProjectFile, now: Time) -> Result<Option<SessionSpec>, Failure> {
        let config = Self::load(Some(file), of_user().as_deref(), &Overrides::new(Flags::default()))?;
        let hook = config.hook()?;
        let loops = config.loops();
        let name = match (&hook.name, loops.as_slice()) {
            (Some(name), _) => name.clone(),
            (None, [only]) => only.clone(),
            (None, _) => return Ok(None),
        };
        let wanted = config.resolve(&name, &ResolveContext::at(now))?;
        let unprotected = wanted.workspace.unprotect.iter().map(|glob| format!("!{glob}"));
        Ok(Some(SessionSpec {
            root: file.root.clone(),
            dir: wanted.workspace.dir.clone(),
            goal: wanted.goal.clone(),
            checks: wanted.checks.clone(),
            isolation: wanted.isolation.clone(),
            hook,
            protect: wanted.workspace.protect.iter().cloned().chain(unprotected).collect(),
            agents: wanted.agents().cloned().collect(),
            name,
        }))
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::planted::{self, Bug, CONFIGURATION};
    use everloop_engine::hook::session_folder;
    use everloop_engine::state_folder::StateFolder;
    use everloop_engine::trust::{Consent, FileHashes, Standing, TrustStore, accept};
    use everloop_store::{OpenMode, Sqlite};

    use super::*;

    const ACCEPTED: &str = "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"false\"]\n";

    /// A folder with an accepted file and one beside it that no person knows; both are written
    /// by an agent afterwards. Returns what does not hold.
    fn violations() -> Vec<&'static str> {
        let world = tempfile::tempdir().expect("a folder");
        let dir = world.path().canonicalize().expect("it is there");
        let (mine, clone) = (dir.join("mine"), dir.join("clone"));
        let home = StateFolder::open(Some(&dir.join("state"))).expect("a state folder");
        let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite).expect("a new ledger");
        let file = ProjectFile { root: mine.clone(), text: ACCEPTED.to_owned() };
        accept(&mut ledger, &file, Consent { by: "me", via: "run", now: Time(1) }).expect("it is accepted");
        let hostile = format!("[mailbox]\ncommand = [\"evil\"]\n{ACCEPTED}");
        for folder in [&mine, &clone] {
            std::fs::create_dir(folder).expect("the folder is new");
            std::fs::write(folder.join(PROJECT_FILE), &hostile).expect("it can be written");
        }
        let store = TrustStore::read(&ledger).expect("it was just written");
        let standing = |dir: &Path| store.compare(&FileProjects, dir, &mut FileHashes::default()).map(|d| d.standing);
        let outbound = FileProjects.outbound(store.in_force(&FileProjects, &mine).as_ref()).expect("it is valid");
        let hooked = |dir: &Path| session_folder::in_force(&FileProjects, &home, &ledger, dir).expect("it is read");
        let rules = [
            ("a changed file is not in force", outbound.mailbox.is_none()),
            ("a changed file is not trusted", standing(&mine) == Some(Standing::Changed)),
            ("an unknown file is not trusted", standing(&clone) == Some(Standing::Untrusted)),
            ("a hook uses what was accepted", hooked(&mine).is_some_and(|file| file.text == ACCEPTED)),
            ("a hook uses nothing of an unknown file", hooked(&clone).is_none()),
        ];
        rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
    }

    #[test]
    fn every_planted_mistake_about_the_configuration_in_force_is_found() {
        assert_eq!(violations(), [""; 0]);
        let caught = CONFIGURATION.iter().map(|bug| {
            planted::plant(Some(*bug));
            let found = violations();
            planted::plant(None);
            (*bug, found)
        });
        for (bug, found) in caught.collect::<Vec<_>>() {
            let rule = match bug {
                Bug::ReloadsConfig => "a changed file is not in force",
                Bug::TrustsWithoutHash => "a changed file is not trusted",
                _ => "a hook uses nothing of an unknown file",
            };
            assert!(found.contains(&rule), "{bug:?}: {found:?}");
        }
    }
}
