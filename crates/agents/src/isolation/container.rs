//! The person's own command line around a command: docker, podman, ssh, or a script.

use super::Confined;

/// The words that are replaced in it. `{command}` stands for all words of the command.
const COMMAND: &str = "{command}";

pub(super) fn command_line(of: Confined<'_>) -> Result<Vec<String>, String> {
    let template = &of.isolation.container;
    if template.is_empty() {
        return Err("the isolation `container` has no command line: set `container` in [isolation]".to_owned());
    }
    let (dir, tmp) = (of.cwd.display().to_string(), of.tmp.display().to_string());
    let mut words = Vec::new();
    for word in template {
        if word == COMMAND {
            words.extend(of.argv.iter().cloned());
        } else {
            words.push(word.replace("{dir}", &dir).replace("{tmp}", &tmp));
        }
    }
    if !template.iter().any(|word| word == COMMAND) {
        words.extend(of.argv.iter().cloned());
    }
    Ok(words)
}
