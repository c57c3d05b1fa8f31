//! Which key of its section opens what a failed command of a monitor, notifier, mailbox or tracker
//! seems to have needed. A guess from its words and from its last line; a wrong one costs a look at
//! the documentation.

use std::path::{Path, PathBuf};

use super::{Isolation, IsolationMode, at_home};

/// Where programs keep their logins, of what is hidden by default.
const LOGINS: &[(&[&str], &str)] = &[
    (&["gh"], "~/.config/gh"),
    (&["glab"], "~/.config/glab-cli"),
    (&["hub"], "~/.config/hub"),
    (&["ssh", "scp", "sftp", "rsync", "git"], "~/.ssh"),
    (&["gpg", "gpg2"], "~/.gnupg"),
    (&["aws"], "~/.aws"),
    (&["az"], "~/.azure"),
    (&["gcloud", "gsutil", "bq"], "~/.config/gcloud"),
    (&["doctl"], "~/.config/doctl"),
    (&["rclone"], "~/.config/rclone"),
    (&["op"], "~/.config/op"),
    (&["kubectl", "helm"], "~/.kube"),
    (&["docker", "podman"], "~/.docker/config.json"),
    (&["fly", "flyctl"], "~/.fly"),
    (&["curl", "wget", "ftp"], "~/.netrc"),
    (&["npm"], "~/.npmrc"),
    (&["psql"], "~/.pgpass"),
    (&["mysql", "mariadb"], "~/.my.cnf"),
    (&["vault"], "~/.vault-token"),
    (&["pass"], "~/.password-store"),
    (&["secret-tool"], "~/.local/share/keyrings"),
];

/// Programs that work with rights which an isolated command cannot get.
const RAISED: &[&str] = &["sendmail", "mail", "mailx", "postdrop", "exim", "exim4", "sudo", "doas", "su", "ping"];

/// How programs report a path that is closed to them.
const REFUSALS: &[&str] = &["ermission denied", "ead-only file system", "peration not permitted"];

/// A command that failed, and the machine that it failed on.
pub struct FailedCommand<'a> {
    /// All of its words.
    pub words: &'a str,
    /// The end of what it printed.
    pub said: &'a str,
    pub isolation: &'a Isolation,
    pub home: &'a Path,
    pub exists: &'a dyn Fn(&Path) -> bool,
}

impl FailedCommand<'_> {
    /// The keys that open what it seems to have needed; empty where nothing points to isolation.
    pub fn keys(&self) -> Vec<String> {
        if matches!(self.isolation.mode, IsolationMode::None | IsolationMode::Container) {
            return Vec::new();
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let words: Vec<&str> = self.words.split(|c: char| !is_word(c)).collect();
        let mut readable: Vec<PathBuf> = Vec::new();
        let of_programs = LOGINS.iter().filter(|(programs, _)| programs.iter().any(|program| words.contains(program)));
        readable.extend(of_programs.map(|(_, path)| at_home(path, self.home)).filter(|path| self.is_hidden(path)));
        let refused = REFUSALS.iter().any(|refusal| self.said.contains(refusal));
        let mut writable: Vec<PathBuf> = Vec::new();
        for path in self.paths() {
            match self.isolation.unreadable.iter().find(|hidden| path.starts_with(hidden)) {
                Some(hidden) if self.is_hidden(hidden) => readable.push(hidden.clone()),
                None if refused && self.said.contains(&*path.to_string_lossy()) => {
                    writable.extend(path.parent().map(Path::to_owned));
                }
                _ => {}
            }
        }
        let mut keys = Vec::new();
        keys.extend(self.key("readable", readable));
        keys.extend(self.key("writable", writable));
        if words.iter().any(|word| RAISED.contains(word)) {
            keys.push("`isolation = \"none\"` (for programs with more rights than yours, like sendmail)".to_owned());
        }
        keys
    }

    /// The keys as an end of a sentence, or none.
    pub fn hint(&self) -> String {
        let keys = self.keys();
        if keys.is_empty() {
            return String::new();
        }
        format!("; it runs isolated, and in its section this opens what it may need: {}", keys.join(", "))
    }

    fn is_hidden(&self, path: &Path) -> bool {
        let closed = self.isolation.unreadable.iter().any(|hidden| path.starts_with(hidden));
        let opened = self.isolation.readable.iter().chain(&self.isolation.writable).any(|open| path.starts_with(open));
        closed && !opened && (self.exists)(path)
    }

    /// Whole paths in its words and in what it printed.
    fn paths(&self) -> Vec<PathBuf> {
        let around = |c: char| c.is_whitespace() || "'\"`:;,()<>|&=".contains(c);
        let parts = self.words.split(around).chain(self.said.split(around));
        let whole = parts.filter(|part| part.len() > 1 && (part.starts_with('/') || part.starts_with("~/")));
        whole.map(|part| at_home(part, self.home)).collect()
    }

    fn key(&self, name: &str, mut paths: Vec<PathBuf>) -> Option<String> {
        paths.sort();
        paths.dedup();
        let short = |path: &PathBuf| match path.strip_prefix(self.home) {
            Ok(inside) => format!("\"~/{}\"", inside.display()),
            Err(_) => format!("\"{}\"", path.display()),
        };
        let list: Vec<String> = paths.iter().map(short).collect();
        (!list.is_empty()).then(|| format!("`{name} = [{}]`", list.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CommandAccess, CommandKind, IsolationSpec, Places};
    use super::*;

    fn keys(words: &str, said: &str, access: &CommandAccess) -> String {
        let home = Path::new("/home/me");
        let places = Places {
            home,
            state: Path::new("/home/me/.local/state/everloop"),
            folder: home,
            env: &|_| None,
            secret_files: Vec::new(),
            own: Vec::new(),
            own_writable: Vec::new(),
        };
        let isolation = Isolation::of(&CommandKind::Delivery, &access.spec(&IsolationSpec::default()), &places);
        let exists = |path: &Path| !path.ends_with(".netrc");
        FailedCommand { words, said, isolation: &isolation, home, exists: &exists }.keys().join(" ")
    }

    #[test]
    fn it_names_the_key_that_opens_what_was_refused() {
        let usual = CommandAccess::default();
        assert_eq!(keys("gh issue comment 1", "", &usual), "`readable = [\"~/.config/gh\"]`");
        assert_eq!(
            keys("sh -c 'cat ~/.aws/credentials'", "cat: Permission denied", &usual),
            "`readable = [\"~/.aws\"]`"
        );
        assert_eq!(
            keys("my-notifier", "my-notifier: /home/me/.ssh/id: Permission denied", &usual),
            "`readable = [\"~/.ssh\"]`"
        );
        assert_eq!(
            keys("sh -c 'cat >> /var/log/mine'", "sh: cannot create /var/log/mine: Permission denied", &usual),
            "`writable = [\"/var/log\"]`"
        );
        assert!(
            keys("/usr/sbin/sendmail -t", "postdrop: mail_queue_enter: Permission denied", &usual).contains("none")
        );
    }

    #[test]
    fn it_is_silent_where_isolation_is_not_the_cause() {
        let usual = CommandAccess::default();
        assert_eq!(keys("curl https://example.org", "curl: (6) Could not resolve host", &usual), "");
        assert_eq!(keys("my-notifier /etc/mine.toml", "no such user", &usual), "");
        let opened = CommandAccess { readable: vec!["~/.config/gh".to_owned()], ..CommandAccess::default() };
        assert_eq!(keys("gh issue list", "HTTP 401", &opened), "");
        let open = CommandAccess { mode: Some(IsolationMode::None), ..CommandAccess::default() };
        assert_eq!(keys("gh issue list", "HTTP 401", &open), "");
    }
}
