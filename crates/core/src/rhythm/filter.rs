//! The filter of a route: comparisons of fields, joined by `and`, `or`, `not` and parentheses.
//!
//! ```text
//! status == "RESTARTING" and (load > 0.8 or not host ~ "test-*")
//! ```
//!
//! A filter is parsed once, when the configuration is read (`filter/parse.rs`); evaluation cannot
//! fail. Fields hold text: a comparison with a number is false for text that is none, and every
//! comparison with a field that is not there is false, except `!=`, which is the opposite of `==`.

mod parse;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::glob;

/// Most bytes of a filter: longer ones are programs, which a command does better.
pub const TEXT_MAX_BYTES: usize = 4096;
/// Deepest nesting of parentheses and `not`: parsing and evaluation are recursive.
pub const DEPTH_MAX: usize = 32;
/// Most comparisons: each is done for every entry of a stream.
pub const COMPARISONS_MAX: usize = 256;

/// A parsed filter with its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RouteFilter {
    text: String,
    root: Expression,
}

impl RouteFilter {
    /// Whether an entry with these fields passes.
    pub fn passes(&self, fields: &BTreeMap<String, String>) -> bool {
        self.root.holds(fields)
    }

    /// The filter as it is configured.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parsed form; its display is a filter with the same meaning.
    pub fn expression(&self) -> &Expression {
        &self.root
    }
}

impl FromStr for RouteFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Ok(Self { text: text.to_owned(), root: parse::parse(text)? })
    }
}

impl TryFrom<String> for RouteFilter {
    type Error = FilterError;

    fn try_from(text: String) -> Result<Self, FilterError> {
        text.parse()
    }
}

impl From<RouteFilter> for String {
    fn from(filter: RouteFilter) -> String {
        filter.text
    }
}

/// Where and why a filter cannot be read. Lines and columns begin at 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter, line {line}, column {column}: {problem}; hint: {hint}")]
#[expect(missing_docs, reason = "the message describes the fields")]
pub struct FilterError {
    pub line: usize,
    pub column: usize,
    pub problem: String,
    pub hint: &'static str,
}

/// A condition on fields.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// At least two conditions of which one has to hold.
    Or(Vec<Expression>),
    /// At least two conditions that all have to hold.
    And(Vec<Expression>),
    /// A condition that must not hold.
    Not(Box<Expression>),
    /// One field against a value.
    Compare(Comparison),
}

impl Expression {
    fn holds(&self, fields: &BTreeMap<String, String>) -> bool {
        match self {
            Expression::Or(parts) => parts.iter().any(|part| part.holds(fields)),
            Expression::And(parts) => parts.iter().all(|part| part.holds(fields)),
            Expression::Not(part) => !part.holds(fields),
            Expression::Compare(comparison) => comparison.holds(fields),
        }
    }
}

/// One field against a value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub struct Comparison {
    pub field: String,
    pub operator: Operator,
    pub value: Operand,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants are named after what they test")]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Glob,
}

impl Operator {
    fn as_str(self) -> &'static str {
        match self {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Glob => "~",
        }
    }
}

/// A value in a filter.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "variants are named after what they hold")]
pub enum Operand {
    Text(String),
    /// Whole numbers are compared exactly: ids do not fit into a float.
    Whole(i64),
    Number(f64),
}

impl Comparison {
    fn holds(&self, fields: &BTreeMap<String, String>) -> bool {
        let is = |test: fn(Ordering) -> bool| self.order(fields).is_some_and(test);
        match self.operator {
            Operator::Equal => is(Ordering::is_eq),
            Operator::NotEqual => !is(Ordering::is_eq),
            Operator::Less => is(Ordering::is_lt),
            Operator::LessOrEqual => is(Ordering::is_le),
            Operator::Greater => is(Ordering::is_gt),
            Operator::GreaterOrEqual => is(Ordering::is_ge),
            Operator::Glob => match &self.value {
                Operand::Text(pattern) => fields.get(&self.field).is_some_and(|text| glob::matches(pattern, text)),
                Operand::Whole(_) | Operand::Number(_) => false,
            },
        }
    }

    /// The field against the value; `None` if they cannot be compared.
    fn order(&self, fields: &BTreeMap<String, String>) -> Option<Ordering> {
        let field = fields.get(&self.field)?;
        match &self.value {
            Operand::Text(text) => Some(field.as_str().cmp(text)),
            Operand::Whole(value) => match field.trim().parse::<i64>() {
                Ok(whole) => Some(whole.cmp(value)),
                Err(_) => number(field)?.partial_cmp(&(*value as f64)),
            },
            Operand::Number(value) => number(field)?.partial_cmp(value),
        }
    }
}

/// The finite number that a field holds.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|n: &f64| n.is_finite())
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Or(parts) => joined(f, parts, "or"),
            Expression::And(parts) => joined(f, parts, "and"),
            Expression::Not(part) => {
                f.write_str("not ")?;
                nested(f, part, matches!(**part, Expression::Or(_) | Expression::And(_)))
            }
            Expression::Compare(Comparison { field, operator, value }) => {
                let plain = parse::is_plain(field);
                let field = if plain { field.clone() } else { format!("`{field}`") };
                write!(f, "{field} {} {value}", operator.as_str())
            }
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expression], word: &str) -> fmt::Result {
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            write!(f, " {word} ")?;
        }
        // `and` binds tighter than `or`, so only an `and` inside of an `or` stands without
        // parentheses.
        let bare = match part {
            Expression::Or(_) => false,
            Expression::And(_) => word == "or",
            Expression::Not(_) | Expression::Compare(_) => true,
        };
        nested(f, part, !bare)?;
    }
    Ok(())
}

fn nested(f: &mut fmt::Formatter<'_>, part: &Expression, parentheses: bool) -> fmt::Result {
    if parentheses { write!(f, "({part})") } else { write!(f, "{part}") }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Text(text) => {
                f.write_str("\"")?;
                for c in text.chars() {
                    match c {
                        '"' => f.write_str("\\\"")?,
                        '\\' => f.write_str("\\\\")?,
                        '\n' => f.write_str("\\n")?,
                        '\r' => f.write_str("\\r")?,
                        '\t' => f.write_str("\\t")?,
                        other => write!(f, "{other}")?,
                    }
                }
                f.write_str("\"")
            }
            Operand::Whole(n) => write!(f, "{n}"),
            Operand::Number(n) => write!(f, "{n:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn comparisons() {
        let entry = fields(&[
            ("status", "RESTARTING"),
            ("load", "0.85"),
            ("n", "10"),
            ("id", "9007199254740993"),
            ("host", "test-7"),
            ("bad", "NaN"),
            ("odd name", "x"),
            ("and", "1"),
        ]);
        for (text, expected) in [
            (r#"status == "RESTARTING""#, true),
            (r"status == 'RESTARTING'", true),
            (r#"status != "RESTARTING""#, false),
            ("load > 0.8", true),
            ("load >= 0.85 and load <= 0.85", true),
            ("n > 9", true),
            (r#"n > "9""#, false),
            ("n == 10.0", true),
            ("n == 1e1", true),
            ("id == 9007199254740993", true),
            ("id == 9007199254740992", false),
            (r#"host ~ "test-*""#, true),
            (r#"not host ~ "test-*""#, false),
            ("bad == 0 or bad < 0 or bad > 0", false),
            ("bad != 0", true),
            ("gone == 1 or gone < 1 or gone ~ '*'", false),
            ("gone != 1", true),
            ("status > 5", false),
            ("n == 1 or n == 10 and load < 0.5", false),
            ("(n == 1 or n == 10) and load > 0.5", true),
            ("not not n == 10", true),
            ("`odd name` == 'x' and `and` == 1", true),
            ("n > -3 and load > -0.5", true),
        ] {
            let filter: RouteFilter = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(filter.passes(&entry), expected, "{text}");
        }
    }

    #[test]
    fn display_is_a_filter_with_the_same_meaning() {
        for (text, shown) in [
            ("a==1 and(b==2 or c==3)", "a == 1 and (b == 2 or c == 3)"),
            ("((a == 1)) or b == 2 and c == 3", "a == 1 or b == 2 and c == 3"),
            ("not(a == 1 and b == 2)", "not (a == 1 and b == 2)"),
            ("(a == 1 and b == 2) and c == 3", "(a == 1 and b == 2) and c == 3"),
            (r#"a == 'say "x" \\ \n'"#, r#"a == "say \"x\" \\ \n""#),
            ("`a b` ~ '*'", "`a b` ~ \"*\""),
        ] {
            let filter: RouteFilter = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(filter.expression().to_string(), shown);
            let again: RouteFilter = shown.parse().expect("what is shown is a filter");
            assert_eq!(again.expression(), filter.expression());
        }
    }

    #[test]
    fn it_is_stored_as_its_text_and_checked_when_read() {
        let filter: RouteFilter = "a == 1".parse().expect("a filter");
        let stored = serde_json::to_string(&filter).expect("text");
        assert_eq!(stored, "\"a == 1\"");
        assert_eq!(serde_json::from_str::<RouteFilter>(&stored).expect("the same"), filter);
        assert!(serde_json::from_str::<RouteFilter>("\"a ==\"").is_err());
    }
}
