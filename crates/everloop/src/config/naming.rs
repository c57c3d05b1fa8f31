//! Names for what the operator did not name: checks from their commands, loops from their goals.

use everloop_engine::text::clean;

/// Names are cut here, so that a scoreboard fits into 80 columns.
const NAME_MAX_CHARS: usize = 24;

/// The name, with a number behind it when it is taken.
pub fn unique(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|n| format!("{name} {n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken(name)).expect("numbers do not end")
}

/// A name for a check from its command: the program and what it is about, without flags.
pub fn short(run: &str) -> String {
    let words = shlex::split(run).unwrap_or_else(|| run.split_whitespace().map(str::to_owned).collect());
    if let [shell, "-c", script, ..] = words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
        && file_name(shell).ends_with("sh")
    {
        return short(script);
    }
    // Without its flags a test has no meaning.
    let is_test = words.first().is_some_and(|program| ["test", "["].contains(&file_name(program)));
    let mut name = String::new();
    let ends = |word: &&String| !word.starts_with(['&', '|', ';', '>', '<', '#']);
    for word in words.iter().take_while(ends).filter(|w| is_test || !w.starts_with('-') && !w.contains('=')).take(3) {
        let word = if name.is_empty() { file_name(word) } else { word.as_str() };
        let longer = if name.is_empty() { word.to_owned() } else { format!("{name} {word}") };
        if !name.is_empty() && longer.chars().count() > NAME_MAX_CHARS {
            break;
        }
        name = longer;
    }
    let name: String = clean(&name).chars().take(NAME_MAX_CHARS).collect();
    if name.trim().is_empty() { "check".to_owned() } else { name.trim().to_owned() }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// A name for a loop from its goal.
pub fn slug(goal: &str) -> String {
    let mut slug = String::new();
    for word in goal.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if slug.len() + word.len() > NAME_MAX_CHARS {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word.to_lowercase());
    }
    if slug.is_empty() { "run".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_command_is_about() {
        for (run, name) in [
            ("cargo test --workspace", "cargo test"),
            ("test -f done", "test -f done"),
            ("npm run lint", "npm run lint"),
            ("./scripts/check.sh --fast", "check.sh"),
            ("sh -c 'cargo test && cargo fmt'", "cargo test"),
            ("RUST_LOG=1 cargo test", "cargo test"),
            ("python -m pytest -q", "python pytest"),
            ("make test | tee log", "make test"),
            ("'open", "'open"),
            ("\u{1b}[2J", "check"),
            ("a_program_with_a_name_that_is_much_too_long", "a_program_with_a_name_th"),
        ] {
            assert_eq!(short(run), name, "{run}");
        }
        assert_eq!(unique("a", |name| name == "a" || name == "a 2"), "a 3");
        assert_eq!(slug("Make the parser pass all its tests!"), "make-the-parser-pass-all");
        assert_eq!(slug("日本語"), "run");
    }
}
