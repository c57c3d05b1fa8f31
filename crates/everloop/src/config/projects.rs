//! The answers of configuration files to the engine.

use std::path::{Path, PathBuf};

use everloop_core::time::Time;
use everloop_engine::error::Failure;
use everloop_engine::projects::NotifierSender;
use everloop_engine::projects::{OutboundSpec, Projects, SessionSpec};

use super::{Flags, Overrides, PROJECT_FILE, ResolveContext, USER_FILE, find, load, user_dir};

/// `everloop.toml` of a folder or one above it, and the user's own file.
#[derive(Clone, Copy, Debug)]
pub struct FileProjects;

fn of_user() -> Option<PathBuf> {
    user_dir(|name| std::env::var(name).ok())
}

impl Projects for FileProjects {
    fn sources(&self, dir: &Path) -> Vec<PathBuf> {
        let user = of_user().map(|dir| dir.join(USER_FILE));
        user.into_iter().chain([find(dir).unwrap_or(dir).join(PROJECT_FILE)]).collect()
    }

    fn root(&self, dir: &Path) -> PathBuf {
        find(dir).unwrap_or(dir).to_owned()
    }

    fn outbound(&self, dir: &Path) -> Result<OutboundSpec, Failure> {
        match find(dir) {
            None => Ok(OutboundSpec::default()),
            Some(root) => Ok(load(root, None, &Overrides::default())?.outbound()?),
        }
    }

    fn notifiers(&self, dir: &Path, now: Time) -> Result<Vec<NotifierSender>, Failure> {
        let root = find(dir).unwrap_or(dir);
        let config = load(root, of_user().as_deref(), &Overrides::default())?;
        let (user, project) = config.notifiers(&ResolveContext::at(now))?;
        let user = user.into_iter().map(|of| NotifierSender { dir: None, of });
        let project = project.into_iter().map(|of| NotifierSender { dir: Some(root.to_owned()), of });
        Ok(user.chain(project).collect())
    }

    fn session(&self, dir: &Path, now: Time) -> Result<Option<SessionSpec>, Failure> {
        let Some(root) = find(dir) else { return Ok(None) };
        let config = load(root, of_user().as_deref(), &Overrides::new(Flags::default()))?;
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
            root: root.to_owned(),
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
