//! `[otel]`: the collector that gets telemetry.

use std::path::{Path, PathBuf};

use everloop_agents::channel::{SecretSource, check_address};
use everloop_agents::otlp::OtlpReceiver;
use everloop_engine::diagnostic::Diagnostic;

use super::keys::OtelKeys;
use super::{Config, ConfigError};

impl Config {
    /// The collector of telemetry; the project's values override the user's. Paths of files are
    /// relative to `dir`.
    pub fn collector(&self, dir: &Path) -> Result<Option<OtlpReceiver>, ConfigError> {
        let mut layer = self.user.otel.clone();
        layer.lay(&self.project.otel);
        if layer.0.is_empty() {
            return Ok(None);
        }
        let keys: OtelKeys = layer.typed()?;
        let blame = |key: &str, what: String, hint: &str| -> Diagnostic { layer.origin(key).blame(what).hint(hint) };
        let Some(endpoint) = keys.endpoint else {
            let key = layer.0.keys().next().map_or("endpoint", String::as_str);
            let hint = "add `endpoint = \"http://127.0.0.1:4318\"`";
            return Err(blame(key, "`[otel]` has no `endpoint`".to_owned(), hint).into());
        };
        check_address(&endpoint.0).map_err(|why| {
            let hint = "the base of a collector's paths: `http://127.0.0.1:4318`, elsewhere `https://…`";
            blame("endpoint", format!("`endpoint`: {why}"), hint)
        })?;
        let path = |text: &str| -> PathBuf { dir.join(text) };
        let token = match (keys.token_env, keys.token_file) {
            (Some(_), Some(_)) => {
                let what = "both `token_env` and `token_file` are there".to_owned();
                return Err(blame("token_file", what, "keep one of them").into());
            }
            (Some(name), None) => Some(SecretSource::Env(name.0)),
            (None, Some(file)) => Some(SecretSource::File(path(&file.0))),
            (None, None) => None,
        };
        Ok(Some(OtlpReceiver { endpoint: endpoint.0, token, ca_file: keys.ca_file.map(|file| path(&file.0)) }))
    }
}
