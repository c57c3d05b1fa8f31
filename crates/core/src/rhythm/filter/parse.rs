//! From the text of a filter to its [`Expression`]: words with their places first, then the tree.
//! Every error has a line, a column and a hint.

use super::{COMPARISONS_MAX, Comparison, DEPTH_MAX, Expression, FilterError, Operand, Operator, TEXT_MAX_BYTES};

const COMPARISON_HINT: &str = "write a comparison like `status == \"FAILED\"` or `load > 0.8`";
const VALUE_HINT: &str = "a value is a number or a text in quotes, like `\"FAILED\"`";
const OPERATOR_HINT: &str = "compare with `==`, `!=`, `<`, `<=`, `>`, `>=` or `~` for a glob";
const JOIN_HINT: &str = "join comparisons with `and` or `or`";
const SIZE_HINT: &str = "filter in a command of your own (`run`), or use several routes";

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Field(String),
    Operator(Operator),
    Value(Operand),
    End,
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Token::Open => "`(`".to_owned(),
            Token::Close => "`)`".to_owned(),
            Token::And => "`and`".to_owned(),
            Token::Or => "`or`".to_owned(),
            Token::Not => "`not`".to_owned(),
            Token::Field(name) => format!("`{name}`"),
            Token::Operator(operator) => format!("`{}`", operator.as_str()),
            Token::Value(value) => format!("{value}"),
            Token::End => "the end".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn error(self, problem: impl Into<String>, hint: &'static str) -> FilterError {
        FilterError { line: self.line, column: self.column, problem: problem.into(), hint }
    }
}

/// Whether a name can stand without backticks.
pub(super) fn is_plain(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    begins && name.chars().all(is_name_char) && !["and", "or", "not"].contains(&name)
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || "_.-:".contains(c)
}

/// Reads a filter.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let start = Place { line: 1, column: 1 };
    if text.len() > TEXT_MAX_BYTES {
        return Err(start.error(format!("{} bytes are more than {TEXT_MAX_BYTES}", text.len()), SIZE_HINT));
    }
    let tokens = Scanner { rest: text.chars().collect(), at: 0, place: start }.tokens()?;
    let mut parser = Parser { tokens, at: 0, comparisons: 0 };
    let root = parser.or(0)?;
    match parser.peek() {
        Token::End => Ok(root),
        other => Err(parser.place().error(format!("{} does not belong here", other.shown()), JOIN_HINT)),
    }
}

struct Scanner {
    rest: Vec<char>,
    at: usize,
    place: Place,
}

impl Scanner {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, test: fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek().filter(|c| test(*c)) {
            taken.push(c);
            self.next();
        }
        taken
    }

    fn tokens(mut self) -> Result<Vec<(Token, Place)>, FilterError> {
        let mut tokens = Vec::new();
        loop {
            self.take_while(char::is_whitespace);
            let place = self.place;
            let token = self.token(place)?;
            let over = token == Token::End;
            tokens.push((token, place));
            if over {
                return Ok(tokens);
            }
        }
    }

    fn token(&mut self, place: Place) -> Result<Token, FilterError> {
        let Some(c) = self.peek() else { return Ok(Token::End) };
        if c.is_alphabetic() || c == '_' {
            let name = self.take_while(is_name_char);
            return Ok(match name.as_str() {
                "and" => Token::And,
                "or" => Token::Or,
                "not" => Token::Not,
                _ => Token::Field(name),
            });
        }
        if c.is_ascii_digit() || c == '-' {
            return self.number(place);
        }
        self.next();
        let followed = |scanner: &mut Self, wanted: char| {
            let is = scanner.peek() == Some(wanted);
            if is {
                scanner.next();
            }
            is
        };
        match c {
            '(' => Ok(Token::Open),
            ')' => Ok(Token::Close),
            '"' | '\'' => self.text(c, place).map(|text| Token::Value(Operand::Text(text))),
            '`' => self.quoted_field(place),
            '~' => Ok(Token::Operator(Operator::Glob)),
            '=' if followed(self, '=') => Ok(Token::Operator(Operator::Equal)),
            '!' if followed(self, '=') => Ok(Token::Operator(Operator::NotEqual)),
            '<' if followed(self, '=') => Ok(Token::Operator(Operator::LessOrEqual)),
            '<' => Ok(Token::Operator(Operator::Less)),
            '>' if followed(self, '=') => Ok(Token::Operator(Operator::GreaterOrEqual)),
            '>' => Ok(Token::Operator(Operator::Greater)),
            '=' => Err(place.error("`=` is no comparison", "write `==`")),
            '!' => Err(place.error("`!` is no word of a filter", "write `not` before a comparison, or `!=`")),
            '&' => Err(place.error("`&` is no word of a filter", "write `and`")),
            '|' => Err(place.error("`|` is no word of a filter", "write `or`")),
            other => Err(place.error(format!("`{}` is no word of a filter", other.escape_debug()), COMPARISON_HINT)),
        }
    }

    fn number(&mut self, place: Place) -> Result<Token, FilterError> {
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if let Ok(whole) = text.parse::<i64>() {
            return Ok(Token::Value(Operand::Whole(whole)));
        }
        // `-inf` and `-nan` are numbers for the standard library.
        let digits = text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && digits => Ok(Token::Value(Operand::Number(number))),
            Ok(_) | Err(_) => Err(place.error(format!("`{text}` is no number"), VALUE_HINT)),
        }
    }

    fn text(&mut self, quote: char, place: Place) -> Result<String, FilterError> {
        let mut text = String::new();
        loop {
            let here = self.place;
            match self.next() {
                None => return Err(place.error("this text has no end", "close it with the same quote")),
                Some(c) if c == quote => return Ok(text),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some(c @ ('\\' | '"' | '\'')) => text.push(c),
                    Some(_) | None => {
                        return Err(here.error("`\\` with this character means nothing", "write `\\\\` for one `\\`"));
                    }
                },
                Some(c) => text.push(c),
            }
        }
    }

    fn quoted_field(&mut self, place: Place) -> Result<Token, FilterError> {
        let name = self.take_while(|c| c != '`' && c != '\n');
        match self.next() {
            Some('`') if !name.is_empty() => Ok(Token::Field(name)),
            Some(_) | None => Err(place.error("this field has no name or no end", "close its name with a backtick")),
        }
    }
}

struct Parser {
    tokens: Vec<(Token, Place)>,
    at: usize,
    comparisons: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn place(&self) -> Place {
        self.tokens[self.at].1
    }

    /// The present token; the last one, the end, is never passed.
    fn take(&mut self) -> (Token, Place) {
        let taken = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        taken
    }

    fn or(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut parts = vec![self.and(depth)?];
        while *self.peek() == Token::Or {
            self.take();
            parts.push(self.and(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Or(parts) })
    }

    fn and(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut parts = vec![self.one(depth)?];
        while *self.peek() == Token::And {
            self.take();
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::And(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let (token, place) = self.take();
        if depth >= DEPTH_MAX {
            return Err(place.error(format!("this is nested more than {DEPTH_MAX} deep"), SIZE_HINT));
        }
        match token {
            Token::Not => Ok(Expression::Not(Box::new(self.one(depth + 1)?))),
            Token::Open => {
                let inside = self.or(depth + 1)?;
                match self.take() {
                    (Token::Close, _) => Ok(inside),
                    (other, at) => {
                        let problem = format!(
                            "expected `)` for the `(` of line {}, column {}, found {}",
                            place.line,
                            place.column,
                            other.shown()
                        );
                        Err(at.error(problem, JOIN_HINT))
                    }
                }
            }
            Token::Field(field) => self.comparison(field, place),
            other => Err(place.error(format!("expected a comparison, found {}", other.shown()), COMPARISON_HINT)),
        }
    }

    fn comparison(&mut self, field: String, at: Place) -> Result<Expression, FilterError> {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Err(at.error(format!("more than {COMPARISONS_MAX} comparisons"), SIZE_HINT));
        }
        let operator = match self.take() {
            (Token::Operator(operator), _) => operator,
            (other, place) => {
                let problem = format!("expected a comparison sign after `{field}`, found {}", other.shown());
                return Err(place.error(problem, OPERATOR_HINT));
            }
        };
        match self.take() {
            (Token::Value(value @ (Operand::Whole(_) | Operand::Number(_))), place) if operator == Operator::Glob => {
                Err(place.error(format!("`~` needs a text, found {value}"), "write the glob in quotes"))
            }
            (Token::Value(value), _) => Ok(Expression::Compare(Comparison { field, operator, value })),
            (other, place) => Err(place.error(format!("expected a value, found {}", other.shown()), VALUE_HINT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_place_and_a_hint() {
        for (text, line, column, has) in [
            ("", 1, 1, "expected a comparison, found the end"),
            ("status", 1, 7, "expected a comparison sign after `status`"),
            ("status = 1", 1, 8, "`=` is no comparison"),
            ("status ==", 1, 10, "expected a value, found the end"),
            ("status == FAILED", 1, 11, "expected a value, found `FAILED`"),
            ("a == 1 and\n  b = 2", 2, 5, "`=` is no comparison"),
            ("a == 1\nand", 2, 4, "expected a comparison, found the end"),
            ("(a == 1", 1, 8, "expected `)` for the `(` of line 1, column 1"),
            ("a == 1)", 1, 7, "`)` does not belong here"),
            ("a == 1 b == 2", 1, 8, "`b` does not belong here"),
            ("a == 'x", 1, 6, "no end"),
            (r"a == '\x'", 1, 7, "means nothing"),
            ("a ~ 5", 1, 5, "`~` needs a text"),
            ("a == 1.2.3", 1, 6, "is no number"),
            ("a == -inf", 1, 6, "is no number"),
            ("a == 1e999", 1, 6, "is no number"),
            ("a && b", 1, 3, "`&` is no word"),
            ("!a", 1, 1, "`!` is no word"),
            ("ä == 1 and €", 1, 12, "`€` is no word"),
            ("`a == 1", 1, 1, "no name or no end"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.problem.contains(has) && !error.hint.is_empty(), "{text}: {error}");
        }
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let deep = |n: usize| format!("{}a == 1{}", "(".repeat(n), ")".repeat(n));
        assert!(parse(&deep(DEPTH_MAX - 1)).is_ok());
        assert!(parse(&deep(DEPTH_MAX)).expect_err("too deep").problem.contains("nested"));
        assert!(parse(&format!("{}a == 1", "not ".repeat(1_000))).is_err());
        let wide = |n: usize| vec!["a==1"; n].join(" or ");
        assert!(parse(&wide(COMPARISONS_MAX)).is_ok());
        assert!(parse(&wide(COMPARISONS_MAX + 1)).expect_err("too many").problem.contains("comparisons"));
        assert!(parse(&"(".repeat(TEXT_MAX_BYTES + 1)).expect_err("too long").problem.contains("bytes"));
    }
}
