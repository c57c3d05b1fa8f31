//! Where the hub's address is found. The address itself is never read here.

use everloop_engine::diagnostic::Diagnostic;
use everloop_engine::services::mesh::hub::HubSource;

use super::keys::HubKeys;
use super::layer::Layer;
use super::{Config, ResolveContext};

impl Config {
    /// Where the address of the hub is stored; the project's value overrides the user's. `None` if
    /// neither is set.
    pub fn hub(&self, moment: &ResolveContext) -> Result<Option<HubSource>, Diagnostic> {
        let layer: Option<&Layer> = [&self.project.hub, &self.user.hub].into_iter().find(|layer| !layer.0.is_empty());
        let Some(layer) = layer else { return Ok(None) };
        let keys: HubKeys = layer.typed()?;
        let file = |path: String| match (path.strip_prefix("~/"), &moment.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.dir.join(path),
        };
        let env = keys.url_env.map(|name| HubSource::Env(name.0));
        Ok(env.or_else(|| keys.url_file.map(|path| HubSource::File(file(path.0)))))
    }
}
