//! Globs over short texts: tags, topics and the values of fields. `*` is any run of characters, `?`
//! is one character; nothing else is special.

/// Whether the whole text matches the pattern. It needs at most the product of both lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last star, and where the text behind it begins.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("deploy", "deploy", true),
            ("deploy", "deploys", false),
            ("deploy.*", "deploy.eu", true),
            ("deploy.*", "deploy", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*.eu.*", "a.eu.b.eu.c", true),
            ("a*b*c", "axxbxxbxxc", true),
            ("a*b*c", "axxbxxbxx", false),
            ("?", "ä", true),
            ("?", "", false),
            ("**a", "ba", true),
            ("[a]", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "`{pattern}` on `{text}`");
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let (pattern, text) = ("*a".repeat(200), "a".repeat(4_000) + "b");
        assert!(!matches(&pattern, &text));
    }
}
