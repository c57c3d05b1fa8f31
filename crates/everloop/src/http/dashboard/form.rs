//! Pairs of names and values: of a form that a browser sent, or behind the `?` of an address.

use super::super::gateway::unescaped;

/// More pairs are no form of ours.
const MAX_PAIRS: usize = 64;

/// Names and values.
#[derive(Clone, Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `a=b&c=d` with the escapes of forms; what is broken is left out.
    pub fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Some((unescaped(name)?, unescaped(value)?.replace("\r\n", "\n")))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).take(MAX_PAIRS).filter_map(pair).collect())
    }

    /// The value of a name; empty when it is not there.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The value of a name without blanks around it; `None` when nothing is left.
    pub fn given(&self, name: &str) -> Option<String> {
        Some(self.get(name).trim()).filter(|value| !value.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_browsers_send_them() {
        let form = Form::parse("a=b+c&d=%3Cx%3E%0D%0Ay&e&=f&bad=%zz");
        assert_eq!((form.get("a"), form.get("d"), form.get("e"), form.get("bad")), ("b c", "<x>\ny", "", ""));
        assert_eq!((form.given("e"), form.given("a")), (None, Some("b c".to_owned())));
    }
}
