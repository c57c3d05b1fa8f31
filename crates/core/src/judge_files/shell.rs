//! Simple commands in a shell script. Parses enough of the shell's grammar for commands that people
//! write as checks.

/// Words before the program itself.
const PREFIXES: &[&str] = &[
    "env", "exec", "command", "time", "timeout", "nice", "nohup", "stdbuf", "xvfb-run", "if", "then", "else", "elif",
    "while", "until", "do", "!", "{",
];

/// Variables, wrappers with their options and numbers, keywords.
pub fn is_prefix(word: &str) -> bool {
    let assignment = word
        .split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    assignment || word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit()) || PREFIXES.contains(&word)
}

/// The words of every simple command in `text`, without redirections and quotes.
pub fn simple_commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut redirected = false;
    let mut chars = text.chars().peekable();
    let finish = |word: &mut Option<String>, redirected: &mut bool, commands: &mut Vec<Vec<String>>| {
        if let (Some(done), Some(command)) = (word.take(), commands.last_mut())
            && !std::mem::take(redirected)
        {
            command.push(done);
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let open = word.get_or_insert_default();
                while let Some(inner) = chars.next().filter(|&inner| inner != c) {
                    match inner {
                        '\\' if c == '"' => open.extend(chars.next()),
                        _ => open.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => while chars.next_if(|&c| c != '\n').is_some() {},
            ' ' | '\t' => finish(&mut word, &mut redirected, &mut commands),
            '>' | '<' => {
                // `2>` belongs to the redirection.
                if word.as_ref().is_some_and(|w| w.chars().all(|c| c.is_ascii_digit())) {
                    word = None;
                }
                finish(&mut word, &mut redirected, &mut commands);
                while chars.next_if(|&c| c == '>' || c == '&' || c == '<').is_some() {}
                redirected = true;
            }
            ';' | '&' | '|' | '(' | ')' | '\n' | '`' => {
                finish(&mut word, &mut redirected, &mut commands);
                redirected = false;
                commands.push(Vec::new());
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    finish(&mut word, &mut redirected, &mut commands);
    commands
}
