//! `[completion.NAME]`: signs of completion that become signals.

use std::path::{Component, Path};

use everloop_core::completion::{CompletionRule, CompletionSign};
use everloop_engine::diagnostic::{ConfigError, Diagnostic};

use super::Config;
use super::keys::CompletionKeys;
use super::layer::Layer;
use super::value::nearest;

/// More are no signs any more but a program; each costs a look at every hook.
const RULES_MOST: usize = 20;
/// The keys for the sign; one of them is set.
const WAYS: [&str; 3] = ["plan", "marker", "file"];

impl Config {
    /// What the project looks for, typed. All mistakes are returned at once.
    pub fn completions(&self) -> Result<Vec<CompletionRule>, ConfigError> {
        let (mut rules, mut wrong) = (Vec::new(), Vec::new());
        for (name, layer) in &self.project.completions {
            match self.completion(name, layer) {
                Ok(rule) => rules.push(rule),
                Err(diagnostic) => wrong.push(diagnostic),
            }
        }
        if rules.len() > RULES_MOST {
            wrong.push(Diagnostic::new(format!("there are more than {RULES_MOST} `[completion.NAME]`")));
        }
        ConfigError::unless_empty(wrong)?;
        Ok(rules)
    }

    fn completion(&self, name: &str, layer: &Layer) -> Result<CompletionRule, Diagnostic> {
        let keys: CompletionKeys = layer.typed()?;
        let blame = |key: &str, message: String| layer.origin(key).blame(message);
        let ways: Vec<&str> = WAYS.into_iter().filter(|key| layer.0.contains_key(*key)).collect();
        let [way] = ways.as_slice() else {
            let place = ways.get(1).copied().unwrap_or("within");
            let message = format!("`[completion.{name}]` needs one of `plan`, `marker` and `file`");
            return Err(blame(place, message).hint("like `plan = \"PLAN.md\"`; for two signs write two sections"));
        };
        if let Some(owner) = &keys.r#loop
            && !self.project.loops.contains_key(&owner.0)
        {
            let known = self.loops();
            let hint = match nearest(&owner.0, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", known.join(", ")),
            };
            return Err(blame("loop", format!("there is no loop `{}`", owner.0)).hint(hint));
        }
        if keys.within.is_some() && *way != "marker" {
            let message = "`within` belongs to `marker`".to_owned();
            return Err(blame("within", message).hint("take it out"));
        }
        let inside = |key: &str, text: String| {
            let good = Path::new(&text).components().all(|part| matches!(part, Component::Normal(_)));
            let wrong = || blame(key, format!("`{text}` is no file of the project"));
            if good { Ok(text) } else { Err(wrong().hint("write it like `docs/PLAN.md`, from the folder of the loop")) }
        };
        let sign = match (keys.plan, keys.file, keys.marker, keys.within) {
            (Some(file), ..) => CompletionSign::Plan { file: inside("plan", file.0)? },
            (_, Some(file), ..) => CompletionSign::Appears { file: inside("file", file.0)? },
            (.., Some(marker), Some(file)) => {
                CompletionSign::Line { marker: marker.0, file: inside("within", file.0)? }
            }
            (.., marker, _) => CompletionSign::Said { marker: marker.map(|text| text.0).unwrap_or_default() },
        };
        Ok(CompletionRule { name: name.to_owned(), of: keys.r#loop.map(|text| text.0), sign })
    }
}
