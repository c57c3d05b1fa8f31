//! `[[route]]`: entries of a stream that become signals of a persona, or tasks of a loop.

use everloop_core::rhythm::filter::RouteFilter;
use everloop_core::rhythm::persona::RouteSpec;
use everloop_core::rhythm::signal::SignalClass;
use everloop_engine::diagnostic::Diagnostic;

use super::layer::{Layer, Origin};
use super::settings::section;
use super::value::{NonEmptyText, Priority, nearest};

/// What the source of a route begins with.
const STREAM: &str = "stream:";

section! {
    /// Entries of a stream that become signals of a persona, or tasks of a loop.
    #[schemars(extend("required" = ["from", "to"]))]
    pub struct RouteKeys;

    /// Where entries come from: `stream:NAME`, to which `everloop stream add`
    /// and `POST /xadd/NAME` add.
    from: NonEmptyText;

    /// The persona that gets them as signals, or the loop that gets them as tasks.
    to: NonEmptyText;

    /// Which of them: comparisons of fields with `and`, `or`, `not` and globs. Without it: all.
    filter: NonEmptyText;

    /// How urgent they are: `low`, `medium` or `high`.
    class: NonEmptyText = SignalClass::default().as_str();

    /// For a loop: the priority of its tasks; higher is sooner.
    priority: Priority = 0;

    /// For a persona: the stream that gets its answers, unless an entry has a field `reply_to`.
    reply: NonEmptyText;
}

/// What routes may lead to.
pub(super) struct Targets {
    pub personas: Vec<String>,
    pub loops: Vec<String>,
}

/// The routes of a file, each with its persona or loop.
pub(super) fn routes(all: &[(Layer, Origin)], targets: &Targets) -> Result<Vec<(String, RouteSpec)>, Vec<Diagnostic>> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (layer, place) in all {
        match route(layer, place, targets) {
            Ok(one) => found.push(one),
            Err(diagnostic) => wrong.push(diagnostic),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn route(layer: &Layer, place: &Origin, targets: &Targets) -> Result<(String, RouteSpec), Diagnostic> {
    let keys: RouteKeys = layer.typed()?;
    let needed = |key: &str, value: Option<NonEmptyText>| {
        value
            .map(|text| text.0)
            .ok_or_else(|| place.blame(format!("a route has no `{key}`")).hint(format!("add `{key} = \"…\"`")))
    };
    let (from, to) = (needed("from", keys.from.clone())?, needed("to", keys.to.clone())?);
    let Some(stream) = from.strip_prefix(STREAM) else {
        return Err(layer
            .origin("from")
            .blame(format!("`{from}` is no source of a route"))
            .hint("write `stream:NAME`"));
    };
    let is_persona = targets.led_to(&to).map_err(|(what, hint)| layer.origin("to").blame(what).hint(hint))?;
    if let Some((key, whose)) = keys.misplaced(is_persona) {
        return Err(layer.origin(key).blame(format!("`{key}` is for routes to {whose}")).hint("leave it out"));
    }
    let parted = |key: &str, why: String| match why.split_once("; hint: ") {
        Some((what, hint)) => layer.origin(key).blame(what).hint(hint),
        None => layer.origin(key).blame(why),
    };
    let filter = keys.filter.map(|text| text.0.parse::<RouteFilter>()).transpose();
    let filter = filter.map_err(|e| parted("filter", e.to_string()))?;
    let class = keys.class.map_or(Ok(SignalClass::default()), |text| text.0.parse::<SignalClass>());
    let class = class.map_err(|e| parted("class", e.to_string()))?;
    let (priority, reply) = (keys.priority.map_or(0, |given| given.0), keys.reply.map(|text| text.0));
    Ok((to, RouteSpec { stream: stream.to_owned(), filter, class, priority, reply }))
}

impl Targets {
    /// Whether it is a persona; what is wrong, and a hint, if it is neither that nor a loop.
    fn led_to(&self, to: &str) -> Result<bool, (String, String)> {
        let is = |names: &[String]| names.iter().any(|name| name == to);
        if is(&self.personas) || is(&self.loops) {
            return Ok(is(&self.personas));
        }
        let hint = match nearest(to, self.personas.iter().chain(&self.loops).map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `[persona.{to}]` or `[loop.{to}]` to this file"),
        };
        Err((format!("there is no persona or loop `{to}`"), hint))
    }
}

impl RouteKeys {
    /// A key that has no meaning for such a target, and what it is for.
    fn misplaced(&self, is_persona: bool) -> Option<(&'static str, &'static str)> {
        match is_persona {
            true if self.priority.is_some() => Some(("priority", "loops")),
            false if self.reply.is_some() => Some(("reply", "personas")),
            false if self.class.is_some() => Some(("class", "personas")),
            _ => None,
        }
    }
}
