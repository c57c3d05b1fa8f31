//! `[[loop.NAME.monitor]]`: what a loop watches, typed, with every mistake in its place.

use everloop_core::isolation::CommandAccess;
use everloop_core::watch::{EVERY, LEAST_EVERY, MOST_MONITORS, MOST_TIMEOUT, MonitorSpec, TIMEOUT, Target, WatchSpec};
use everloop_engine::diagnostic::Diagnostic;

use super::isolation::{AccessKeys, WHOLE_PATH};
use super::keys::{LoopKeys, MonitorKeys};
use super::layer::Layer;
use super::value::NonEmptyText;

/// A name of a monitor is shown in lines and stands in keys.
const NAME_MAX_CHARS: usize = 40;

/// What a loop watches.
pub(super) fn watch(keys: &LoopKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> WatchSpec {
    let mut spec = WatchSpec::default();
    if let Some(limit) = keys.park_after {
        spec.park_after = limit.0.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    }
    let mut blame = |what: String, hint: &str| wrong.push(values.origin("monitor").blame(what).hint(hint));
    for keys in keys.monitor.iter().flatten() {
        match monitor(keys, &spec) {
            Ok(one) if spec.get(&one.name).is_some() => {
                blame(format!("two monitors are called `{}`", one.name), "give each monitor a name of its own");
            }
            Ok(one) => spec.monitors.push(one),
            Err((what, hint)) => blame(what, hint),
        }
    }
    if spec.monitors.len() > MOST_MONITORS {
        let what = format!("there are {} monitors; more than {MOST_MONITORS} are too many", spec.monitors.len());
        blame(what, "one command can look at several things");
    }
    spec
}

fn monitor(keys: &MonitorKeys, known: &WatchSpec) -> Result<MonitorSpec, (String, &'static str)> {
    let target = target(keys)?;
    let own = keys.name.as_ref().map(|text| text.0.trim().to_owned());
    let name = own.unwrap_or_else(|| unused(target.kind(), known));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.chars().count() > NAME_MAX_CHARS || !name.chars().all(plain) {
        return Err((format!("`{name}` is not a good name"), "use up to 40 letters, digits, `-`, `_` and `.`"));
    }
    let every = keys.every.map_or(EVERY, |span| span.0);
    if every < LEAST_EVERY {
        return Err((format!("monitor `{name}` is looked at too often"), "use `every = \"1s\"` or more"));
    }
    let timeout = keys.timeout.map_or(TIMEOUT, |span| span.0);
    if timeout > MOST_TIMEOUT {
        return Err((format!("a look at monitor `{name}` may take too long"), "use `timeout = \"10m\"` or less"));
    }
    let access = access(keys, &name, &target)?;
    let text = |key: &Option<NonEmptyText>| key.as_ref().map(|text| text.0.trim().to_owned()).unwrap_or_default();
    Ok(MonitorSpec { name, target, every, timeout, title: text(&keys.title), prompt: text(&keys.prompt), access })
}

/// What the command of a monitor may reach besides; other monitors run none.
fn access(keys: &MonitorKeys, name: &str, target: &Target) -> Result<CommandAccess, (String, &'static str)> {
    let keys =
        AccessKeys { readable: keys.readable.as_ref(), writable: keys.writable.as_ref(), isolation: keys.isolation };
    match (target, keys.first()) {
        (Target::Command(_), _) | (_, None) => keys.access().map_err(|(_, what)| (what, WHOLE_PATH)),
        (_, Some(key)) => {
            Err((format!("`{key}` means nothing for monitor `{name}`, which runs no command"), "remove it"))
        }
    }
}

/// The first unused name of `stream`, `stream-2`, …
fn unused(kind: &str, known: &WatchSpec) -> String {
    let numbered = (2..).map(|n| format!("{kind}-{n}"));
    let mut names = std::iter::once(kind.to_owned()).chain(numbered);
    names.find(|name| known.get(name).is_none()).expect("numbers do not end")
}

fn target(keys: &MonitorKeys) -> Result<Target, (String, &'static str)> {
    let text = |key: &Option<NonEmptyText>| key.as_ref().map(|text| text.0.clone());
    let given: Vec<Target> = [
        text(&keys.file).map(Target::File),
        text(&keys.command).map(Target::Command),
        text(&keys.stream).map(Target::Stream),
        text(&keys.mailbox).map(Target::Mailbox),
        text(&keys.http).map(Target::Http),
    ]
    .into_iter()
    .flatten()
    .collect();
    let one = match <[Target; 1]>::try_from(given) {
        Ok([one]) => one,
        Err(none) if none.is_empty() => {
            return Err((
                "a monitor watches nothing".to_owned(),
                "add `file`, `command`, `stream`, `mailbox` or `http`",
            ));
        }
        Err(several) => {
            let what = format!("a monitor has both `{}` and `{}`", several[0].kind(), several[1].kind());
            return Err((what, "make two monitors of it"));
        }
    };
    match &one {
        Target::Mailbox(name) if !name.starts_with('@') || name.len() < 2 => {
            Err((format!("`{name}` is no box"), "write it like `mailbox = \"@reviewer\"`"))
        }
        Target::Http(url) if !url.starts_with("https://") && !url.starts_with("http://") => {
            Err((format!("`{url}` is no address"), "write it like `http = \"https://example.org/status\"`"))
        }
        Target::Http(url) if url.split('/').nth(2).is_some_and(|host| host.contains('@')) => {
            Err(("an address holds a password, and would stand in the journal".to_owned(), "use a command instead"))
        }
        Target::File(glob) => match everloop_agents::protect::Globs::new(std::slice::from_ref(glob)) {
            Ok(_) => Ok(one),
            Err(e) => Err((e.to_string(), "a glob is written like `in/**/*.txt`")),
        },
        Target::Command(_) | Target::Stream(_) | Target::Mailbox(_) | Target::Http(_) => Ok(one),
    }
}
