//! `[[route]]`: entries of a stream that become signals of a persona.

use everloop_core::rhythm::filter::RouteFilter;
use everloop_core::rhythm::persona::RouteSpec;
use everloop_core::rhythm::signal::SignalClass;
use everloop_engine::diagnostic::Diagnostic;

use super::layer::{Layer, Origin};
use super::settings::section;
use super::value::{NonEmptyText, nearest};

/// What the source of a route begins with.
const STREAM: &str = "stream:";

section! {
    /// Entries of a stream that become signals of a persona.
    #[schemars(extend("required" = ["from", "to"]))]
    pub struct RouteKeys;

    /// Where entries come from: `stream:NAME`, to which `POST /xadd/NAME` adds.
    from: NonEmptyText;

    /// The persona that gets them.
    to: NonEmptyText;

    /// Which of them: comparisons of fields with `and`, `or`, `not` and globs. Without it: all.
    filter: NonEmptyText;

    /// How urgent they are: `low`, `medium` or `high`.
    class: NonEmptyText = SignalClass::default().as_str();
}

/// The routes of a file, each with its persona.
pub(super) fn routes(
    all: &[(Layer, Origin)],
    personas: &[String],
) -> Result<Vec<(String, RouteSpec)>, Vec<Diagnostic>> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (layer, place) in all {
        match route(layer, place, personas) {
            Ok(one) => found.push(one),
            Err(diagnostic) => wrong.push(diagnostic),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn route(layer: &Layer, place: &Origin, personas: &[String]) -> Result<(String, RouteSpec), Diagnostic> {
    let keys: RouteKeys = layer.typed()?;
    let needed = |key: &str, value: Option<NonEmptyText>| {
        value
            .map(|text| text.0)
            .ok_or_else(|| place.blame(format!("a route has no `{key}`")).hint(format!("add `{key} = \"…\"`")))
    };
    let (from, to) = (needed("from", keys.from)?, needed("to", keys.to)?);
    let Some(stream) = from.strip_prefix(STREAM) else {
        return Err(layer
            .origin("from")
            .blame(format!("`{from}` is no source of a route"))
            .hint("write `stream:NAME`"));
    };
    if !personas.contains(&to) {
        let hint = match nearest(&to, personas.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `[persona.{to}]` to this file"),
        };
        return Err(layer.origin("to").blame(format!("there is no persona `{to}`")).hint(hint));
    }
    let parted = |key: &str, why: String| match why.split_once("; hint: ") {
        Some((what, hint)) => layer.origin(key).blame(what).hint(hint),
        None => layer.origin(key).blame(why),
    };
    let filter = keys.filter.map(|text| text.0.parse::<RouteFilter>()).transpose();
    let filter = filter.map_err(|e| parted("filter", e.to_string()))?;
    let class = keys.class.map_or(Ok(SignalClass::default()), |text| text.0.parse::<SignalClass>());
    let class = class.map_err(|e| parted("class", e.to_string()))?;
    Ok((to, RouteSpec { stream: stream.to_owned(), filter, class }))
}
