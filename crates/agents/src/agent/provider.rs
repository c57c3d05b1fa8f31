//! Whether codex would use its built-in provider, as it does by default. The retries of the
//! built-in provider cannot be set, only those of one with another name, and such an entry must not
//! replace a configured choice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Order;

/// Settings that choose a provider, or an address of the one that is built in.
const CHOICES: [&str; 5] = ["model_provider", "profile", "openai_base_url", "chatgpt_base_url", "oss_provider"];

/// Command line arguments that do the same.
const FLAGS: [&str; 4] = ["--profile", "-p", "--oss", "--local-provider"];

/// Settings for all users of this machine.
const SYSTEM: [&str; 2] = ["/etc/codex/config.toml", "/etc/codex/managed_config.toml"];

/// Whether no provider is chosen in a file, a variable or on the command line. In doubt, false.
pub(super) fn is_usual(order: &Order<'_>) -> bool {
    let var = |name: &str| order.env.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| Path::new(v));
    let Some(home) = var("CODEX_HOME").map(Path::to_owned).or_else(|| Some(var("HOME")?.join(".codex"))) else {
        return false;
    };
    let own = ["config.toml", "managed_config.toml"].map(|name| home.join(name));
    let files = own.iter().map(PathBuf::as_path).chain(SYSTEM.iter().map(Path::new));
    var("OPENAI_BASE_URL").is_none()
        && !order.agent.argv.iter().skip(1).any(|a| chooses(a))
        && files.into_iter().all(is_silent)
}

fn chooses(argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or_default();
    FLAGS.contains(&name) || CHOICES.iter().any(|choice| argument.contains(choice))
}

/// Reads line by line and not as TOML: a line that resembles a choice counts as one.
fn is_silent(path: &Path) -> bool {
    match fs::read_to_string(path) {
        Ok(text) => !text.lines().any(|line| {
            let key = line.split(['=', '#']).next().unwrap_or_default().trim().trim_matches(['"', '\'']);
            CHOICES.contains(&key)
        }),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::spec::AgentSpec;

    fn usual(config: Option<&str>, argv: &[&str], more: &[(&str, &str)]) -> bool {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".codex")).unwrap();
        if let Some(text) = config {
            fs::write(home.path().join(".codex/config.toml"), text).unwrap();
        }
        let mut env = vec![("HOME".to_owned(), home.path().display().to_string())];
        env.extend(more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let agent = AgentSpec { argv: argv.iter().map(|a| (*a).to_owned()).collect(), ..AgentSpec::default() };
        is_usual(&Order {
            agent: &agent,
            prompt: "",
            prompt_file: Path::new(""),
            resume: None,
            left_microusd: None,
            left_tokens: None,
            ours: Path::new(""),
            state_dir: Path::new(""),
            env: &env,
            answer_within: std::time::Duration::ZERO,
            telemetry: None,
        })
    }

    #[test]
    fn whoever_chose_a_provider_keeps_it() {
        assert!(usual(None, &["codex"], &[]));
        assert!(usual(
            Some("model = \"x\"\n# model_provider = \"azure\"\n[mcp_servers.a]\ncommand = \"b\"\n"),
            &["codex"],
            &[]
        ));
        for config in ["model_provider = \"azure\"", "  profile=\"work\"", "\"openai_base_url\" = \"https://gate\""] {
            assert!(!usual(Some(config), &["codex"], &[]), "{config}");
        }
        for argv in [["codex", "--oss"], ["codex", "-p"], ["codex", "--profile=x"], ["codex", "model_provider=azure"]] {
            assert!(!usual(None, &argv, &[]), "{argv:?}");
        }
        assert!(!usual(None, &["codex"], &[("OPENAI_BASE_URL", "http://x")]));
        // Unreadable settings may contain a choice.
        assert!(!usual(None, &["codex"], &[("CODEX_HOME", "/dev/null")]));
    }
}
