//! Command lines that need a shell: how they are recognised, and how a prompt is passed to them
//! without becoming code.

/// What stands for the prompt, and for the file that holds it.
const PLACES: [&str; 2] = ["{prompt}", "{prompt_file}"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// Whether a line means something else to a shell than its words.
pub fn is_needed(line: &str) -> bool {
    let mut found = false;
    walk(line, |quote, c, _| {
        found |= match quote {
            Quote::None => "|&;<>()$`*?[~\n".contains(c),
            Quote::Double => "$`".contains(c),
            Quote::Single => false,
        };
    });
    found
}

/// The argument vector that runs `line` in a shell. The prompt arrives as a positional parameter,
/// so nothing in it is ever read as shell code, however it is quoted.
pub fn wrap(line: &str) -> Vec<String> {
    let used: Vec<&str> = PLACES.into_iter().filter(|p| line.contains(p)).collect();
    let mut script = String::new();
    let mut skip = 0;
    walk(line, |quote, c, at| {
        if at < skip {
            return;
        }
        let Some((n, place)) = used.iter().enumerate().find(|(_, p)| line[at..].starts_with(**p)) else {
            script.push(c);
            return;
        };
        skip = at + place.len();
        let parameter = match quote {
            Quote::None => format!("\"${}\"", n + 1),
            Quote::Double => format!("${{{}}}", n + 1),
            Quote::Single => format!("'\"${}\"'", n + 1),
        };
        script.push_str(&parameter);
    });
    let mut argv = vec!["sh".to_owned(), "-c".to_owned(), script];
    if !used.is_empty() {
        argv.push("sh".to_owned());
        argv.extend(used.into_iter().map(str::to_owned));
    }
    argv
}

/// Whether a word of an explicit `sh -c` is shell code with a prompt in it.
pub fn has_prompt_in_code(words: &[String]) -> bool {
    let shell = words.first().and_then(|w| w.rsplit('/').next());
    let is_shell = shell.is_some_and(|s| ["sh", "bash", "dash", "zsh", "ksh", "fish"].contains(&s));
    let code = words.iter().position(|w| w.starts_with('-') && w.ends_with('c')).and_then(|i| words.get(i + 1));
    is_shell && code.is_some_and(|code| PLACES.iter().any(|p| code.contains(p)))
}

/// Calls `see` with every character, how it is quoted, and where it stands.
fn walk(line: &str, mut see: impl FnMut(Quote, char, usize)) {
    let mut quote = Quote::None;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        let next = match (quote, c) {
            _ if escaped => quote,
            (Quote::None, '\'') => Quote::Single,
            (Quote::None, '"') => Quote::Double,
            (Quote::Single, '\'') | (Quote::Double, '"') => Quote::None,
            _ => quote,
        };
        let literal = escaped;
        escaped = !escaped && c == '\\' && quote != Quote::Single;
        see(if literal { Quote::Single } else { quote }, c, at);
        quote = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_syntax_is_recognised_only_where_it_counts() {
        for line in ["a | b", "a; b", "echo hello; b", "a > f", "echo $X", "a \"$X\"", "a *.txt", "a && b", "a `b`"] {
            assert!(is_needed(line), "{line}");
        }
        for line in ["a b", "a '$X | y'", "a \"b | c\"", "a {prompt}", r"a \$X", "a --x=y", "sh -c 'a | b; c > d'"] {
            assert!(!is_needed(line), "{line}");
        }
    }

    #[test]
    fn a_prompt_is_an_argument_whatever_stands_around_it() {
        for (line, script) in [
            ("a {prompt} | b", r#"a "$1" | b"#),
            ("a \"say {prompt}\" | b", r#"a "say ${1}" | b"#),
            ("a 'say {prompt}' | b", r#"a 'say '"$1"'' | b"#),
            ("a < {prompt_file}", r#"a < "$1""#),
        ] {
            let argv = wrap(line);
            assert_eq!(argv[..3], ["sh".to_owned(), "-c".to_owned(), script.to_owned()], "{line}");
            let out = std::process::Command::new("sh").arg("-nc").arg(&argv[2]).status().expect("there is a shell");
            assert!(out.success(), "{line} became broken shell code");
        }
        assert_eq!(wrap("a | b"), ["sh", "-c", "a | b"]);
    }

    #[test]
    fn nothing_in_a_prompt_is_executed() {
        let evil = "x'; echo pwned; \" $(echo pwned) `echo pwned`";
        for line in ["printf %s {prompt} | cat", "printf %s \"{prompt}\" | cat", "printf %s '{prompt}' | cat"] {
            let argv: Vec<String> = wrap(line).into_iter().map(|w| w.replace("{prompt}", evil)).collect();
            let out = std::process::Command::new(&argv[0]).args(&argv[1..]).output().expect("there is a shell");
            assert_eq!(String::from_utf8_lossy(&out.stdout), evil, "{line}");
        }
    }

    #[test]
    fn a_prompt_in_explicit_shell_code_is_seen() {
        let words = |line: &str| shlex::split(line).expect("closed quotes");
        assert!(has_prompt_in_code(&words("sh -c 'a \"{prompt}\"'")));
        assert!(has_prompt_in_code(&words("/bin/bash -lc 'a {prompt_file}'")));
        assert!(!has_prompt_in_code(&words("sh -c 'a \"$1\"' sh {prompt}")));
        assert!(!has_prompt_in_code(&words("agent -c {prompt}")));
    }
}
