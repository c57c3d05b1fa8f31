//! Puts members into a JSON text and takes them out again, by their places in the text. The rest of
//! the text keeps every byte: order, indentation, line ends, numbers as they were written.

use serde_json::Value;

/// A value in a text, with its place.
#[derive(Debug)]
enum Node {
    Object { open: usize, end: usize, members: Vec<Member> },
    Array { open: usize, end: usize, items: Vec<Node> },
    Other { end: usize, start: usize },
}

#[derive(Debug)]
struct Member {
    key: String,
    start: usize,
    value: Node,
}

impl Node {
    fn start(&self) -> usize {
        match self {
            Node::Object { open, .. } | Node::Array { open, .. } => *open,
            Node::Other { start, .. } => *start,
        }
    }

    fn end(&self) -> usize {
        match self {
            Node::Object { end, .. } | Node::Array { end, .. } | Node::Other { end, .. } => *end,
        }
    }

    /// The children's places, each from its first byte (a member's key) to its last.
    fn children(&self) -> Vec<(usize, usize)> {
        match self {
            Node::Object { members, .. } => members.iter().map(|m| (m.start, m.value.end())).collect(),
            Node::Array { items, .. } => items.iter().map(|i| (i.start(), i.end())).collect(),
            Node::Other { .. } => Vec::new(),
        }
    }

    fn at(&self, path: &[&str]) -> Option<&Node> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let Node::Object { members, .. } = self else { return None };
        members.iter().find(|m| m.key == *first)?.value.at(rest)
    }
}

/// A value to insert: as a member `key` of the object at `path`, or, without a key, as an item of
/// the array there.
pub struct JsonInsert<'a> {
    /// Names of the objects from the root on; missing ones are created.
    pub path: &'a [&'a str],
    /// `None` for an item.
    pub key: Option<&'a str>,
    pub value: Value,
}

/// The text with the piece in it; `None` when the text is not plain JSON, or another value is in
/// the way.
pub fn put(text: &str, piece: &JsonInsert<'_>) -> Option<String> {
    let root = parse(text)?;
    let depth = (0..=piece.path.len()).rev().find(|n| root.at(&piece.path[..*n]).is_some())?;
    let container = root.at(&piece.path[..depth])?;
    // Missing parts of the path are wrapped around the value.
    let missing = &piece.path[depth..];
    let mut value = piece.value.clone();
    let key = match missing.split_first() {
        None => piece.key,
        Some((first, rest)) => {
            value = match piece.key {
                None => Value::Array(vec![value]),
                Some(key) => serde_json::json!({ key: value }),
            };
            for name in rest.iter().rev() {
                value = serde_json::json!({ *name: value });
            }
            Some(*first)
        }
    };
    match (container, key) {
        (Node::Object { .. }, Some(_)) | (Node::Array { .. }, None) => {}
        _ => return None,
    }
    Some(insert(text, container, key, (&value, depth)))
}

/// The text of a new file.
pub fn fresh(pieces: &[JsonInsert<'_>]) -> Option<String> {
    let text = pieces.iter().try_fold("{\n}\n".to_owned(), |text, piece| put(&text, piece))?;
    let value: Value = serde_json::from_str(&text).ok()?;
    Some(format!("{}\n", serde_json::to_string_pretty(&value).ok()?))
}

/// The text without the items of all arrays and the members of all objects below `path` that `ours`
/// names by key and value.
pub fn take(text: &str, path: &[&str], ours: &dyn Fn(Option<&str>, &Value) -> bool) -> Option<String> {
    let mut text = text.to_owned();
    loop {
        let root = parse(&text)?;
        let Some(container) = root.at(path) else { return Some(text) };
        let children = container.children();
        let is_ours = |index: &usize| {
            let (value, key) = match container {
                Node::Object { members, .. } => (&members[*index].value, Some(members[*index].key.as_str())),
                Node::Array { items, .. } => (&items[*index], None),
                Node::Other { .. } => return false,
            };
            serde_json::from_str(&text[value.start()..value.end()]).is_ok_and(|value| ours(key, &value))
        };
        let Some(index) = (0..children.len()).find(is_ours) else { return Some(text) };
        let (start, end) = children[index];
        let (from, to) = match (index, children.get(index + 1)) {
            (0, Some(next)) => (start, next.0),
            (0, None) => (container.start() + 1, end),
            _ => (children[index - 1].1, end),
        };
        text.replace_range(from..to, "");
    }
}

/// The names of the members of the object at `path`.
pub fn names(text: &str, path: &[&str]) -> Vec<String> {
    let root = parse(text);
    match root.as_ref().and_then(|root| root.at(path)) {
        Some(Node::Object { members, .. }) => members.iter().map(|m| m.key.clone()).collect(),
        _ => Vec::new(),
    }
}

/// Whether there is a value at `path`, and whether it is empty.
pub fn is_empty(text: &str, path: &[&str]) -> Option<bool> {
    let root = parse(text)?;
    root.at(path).map(|node| !matches!(node, Node::Other { .. }) && node.children().is_empty())
}

/// Inserts behind the last child, with the same layout.
fn insert(text: &str, container: &Node, key: Option<&str>, (value, depth): (&Value, usize)) -> String {
    let children = container.children();
    let Some((start, end)) = children.last() else {
        // There is no layout to copy. What is between the brackets stays behind, so that it is
        // there again afterwards.
        let (at, piece) = (container.start() + 1, member(key, &value.to_string()));
        return format!("{}{piece}{}", &text[..at], &text[at..]);
    };
    let gap_from = children.len().checked_sub(2).map_or(container.start() + 1, |i| children[i].1);
    let gap: String = text[gap_from..*start].chars().filter(|c| c.is_whitespace()).collect();
    let piece = match gap.rfind('\n') {
        None => value.to_string(),
        Some(line) => {
            let base = &gap[line + 1..];
            let unit = &base[..base.len() / (depth + 1)];
            let eol = if gap.contains("\r\n") { "\r\n" } else { "\n" };
            pretty(value, if unit.is_empty() { "  " } else { unit }).replace('\n', &format!("{eol}{base}"))
        }
    };
    format!("{},{gap}{}{}", &text[..*end], member(key, &piece), &text[*end..])
}

fn member(key: Option<&str>, value: &str) -> String {
    match key {
        Some(key) => format!("{}: {value}", Value::from(key)),
        None => value.to_owned(),
    }
}

fn pretty(value: &Value, unit: &str) -> String {
    use serde::Serialize;
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, format));
    written.expect("a value always has a JSON form");
    String::from_utf8(bytes).expect("JSON is text")
}

/// Only plain JSON: what serde reads.
fn parse(text: &str) -> Option<Node> {
    serde_json::from_str::<Value>(text).ok()?;
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    Some(reader.value())
}

/// Relies on the text being valid JSON, so every step is the only one possible.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> u8 {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn value(&mut self) -> Node {
        let (first, start) = (self.peek(), self.at);
        match first {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while self.peek() != b'}' {
                    members.push(self.member());
                    if self.peek() == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
                Node::Object { open: start, end: self.at, members }
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while self.peek() != b']' {
                    items.push(self.value());
                    if self.peek() == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
                Node::Array { open: start, end: self.at, items }
            }
            b'"' => {
                self.text();
                Node::Other { start, end: self.at }
            }
            _ => {
                let ends = |b: &u8| b.is_ascii_whitespace() || b",]}".contains(b);
                while self.bytes.get(self.at).is_some_and(|b| !ends(b)) {
                    self.at += 1;
                }
                Node::Other { start, end: self.at }
            }
        }
    }

    fn member(&mut self) -> Member {
        let start = {
            self.peek();
            self.at
        };
        self.text();
        let key = serde_json::from_slice(&self.bytes[start..self.at]).unwrap_or_default();
        self.peek();
        self.at += 1;
        Member { key, start, value: self.value() }
    }

    /// Skips a text in quotes.
    fn text(&mut self) {
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hook() -> JsonInsert<'static> {
        JsonInsert { path: &["hooks", "Stop"], key: None, value: json!({ "ours": [1] }) }
    }

    fn ours(_: Option<&str>, value: &Value) -> bool {
        value.get("ours").is_some()
    }

    #[test]
    fn what_is_put_in_can_be_taken_out_to_the_byte() {
        for text in [
            "{\n  \"hooks\": {\n    \"Stop\": [\n      { \"theirs\": 1 }\n    ]\n  }\n}\n",
            "{\"hooks\":{\"Stop\":[{\"theirs\":1},2]},\"z\":1.50}",
            "{\r\n\t\"hooks\" : {\r\n\t\t\"Stop\" : [ 1 ]\r\n\t}\r\n}",
            "{ \"hooks\": { \"Stop\": [ ] } }",
            "{\"a\\\"}\": \"\\\\\", \"hooks\": {\"Stop\": []}}",
        ] {
            let with = put(text, &hook()).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(&with).unwrap()["hooks"]["Stop"].as_array().unwrap().last(),
                Some(&json!({ "ours": [1] }))
            );
            assert_eq!(take(&with, &["hooks", "Stop"], &ours).unwrap(), text, "{with}");
        }
    }

    #[test]
    fn it_looks_like_what_is_there() {
        let text = "{\r\n    \"a\": {\r\n        \"b\": 1\r\n    }\r\n}\r\n";
        let with = put(text, &JsonInsert { path: &[], key: Some("c"), value: json!({ "d": 2 }) }).unwrap();
        assert_eq!(
            with,
            "{\r\n    \"a\": {\r\n        \"b\": 1\r\n    },\r\n    \"c\": {\r\n        \"d\": 2\r\n    }\r\n}\r\n"
        );
        assert_eq!(take(&with, &[], &|key, _| key == Some("c")).unwrap(), text);
    }

    #[test]
    fn missing_objects_are_made_and_wrong_ones_are_in_the_way() {
        let with = put("{\"x\": 1}", &hook()).unwrap();
        assert_eq!(with, "{\"x\": 1,\"hooks\": {\"Stop\":[{\"ours\":[1]}]}}");
        assert_eq!(put("{\"hooks\": []}", &hook()), None);
        assert_eq!(put("{\"hooks\": {\"Stop\": {}}}", &hook()), None);
        assert_eq!(put("{ // a comment\n}", &hook()), None);
        assert_eq!(put("[]", &hook()), None);
        assert_eq!(
            fresh(&[hook()]).unwrap(),
            "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"ours\": [\n          1\n        ]\n      }\n    ]\n  }\n}\n"
        );
    }

    #[test]
    fn the_first_of_several_and_the_only_one_go_too() {
        let first = "{\"Stop\": [{\"ours\": 1}, {\"theirs\": 2}]}";
        assert_eq!(take(first, &["Stop"], &ours).unwrap(), "{\"Stop\": [{\"theirs\": 2}]}");
        assert_eq!(take("{\"Stop\": [{\"ours\": 1}]}", &["Stop"], &ours).unwrap(), "{\"Stop\": []}");
        assert_eq!(is_empty("{\"Stop\": []}", &["Stop"]), Some(true));
        assert_eq!(names("{\"a\": {\"b\": 1, \"c\": 2}}", &["a"]), ["b", "c"]);
    }
}
