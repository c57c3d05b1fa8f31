//! The git settings of a loop: which filters and merge drivers run, which attributes hold, which
//! files are ignored. Taken once from the person's configuration, when the loop is made; its digest
//! is part of the loop's first event. What is configured later, by whatever program, has no effect
//! on the loop.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use everloop_core::hex::hex;
use everloop_core::planted::{self, Bug};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::WorkspaceError;
use super::project_folder::Repository;
use crate::git::{self, Git};

/// A file of patterns that is longer than this is not written by a person.
const PATTERNS_CAP_BYTES: u64 = 1 << 20;

/// Settings that change what is in a file, and are no command.
const PLAIN: &[&str] = &[
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.checkroundtripencoding",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.loosecompression",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.symlinks",
    "merge.default",
    "merge.directoryrenames",
    "merge.renamelimit",
    "merge.renames",
];

/// Settings of an agent's own clone, besides the plain ones.
const FOR_AGENTS: &[&str] = &["user.name", "user.email"];

/// The settings of a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    /// Name (in lower case, but for the middle part) and value.
    settings: Vec<(String, String)>,
    /// `sha256` in such a repository.
    object_format: Option<String>,
    /// The person's own patterns, and those of the repository.
    excludes: [String; 2],
    attributes: [String; 2],
}

impl Rules {
    /// The settings in force now.
    pub async fn take(place: &Repository) -> Result<Self, WorkspaceError> {
        let listed = Git::operators(&place.root).bytes(&["config", "--list", "-z"]).await?;
        let mut rules = Self::default();
        let (mut excludes, mut attributes) = (None, None);
        for record in git::records(&listed) {
            let text = String::from_utf8_lossy(record);
            // A name without a value means true.
            let (name, value) = text.split_once('\n').unwrap_or((&text, "true"));
            match name {
                "core.excludesfile" => excludes = Some(expand(value, &place.root)),
                "core.attributesfile" => attributes = Some(expand(value, &place.root)),
                "extensions.objectformat" => rules.object_format = Some(value.to_owned()),
                _ if is_kept(name) => rules.settings.push((name.to_owned(), value.to_owned())),
                _ => {}
            }
        }
        if rules.drivers().any(|(name, _)| name.starts_with("filter.lfs.")) && rules.value("lfs.storage").is_none() {
            let storage = place.common.join("lfs").display().to_string();
            rules.settings.push(("lfs.storage".to_owned(), storage));
        }
        let info = place.common.join("info");
        rules.excludes = [patterns(&excludes.unwrap_or_else(|| own("ignore")))?, patterns(&info.join("exclude"))?];
        rules.attributes =
            [patterns(&attributes.unwrap_or_else(|| own("attributes")))?, patterns(&info.join("attributes"))?];
        Ok(rules)
    }

    /// A text that differs when anything here differs.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("texts always have a JSON form");
        hex(&Sha256::digest(bytes))
    }

    /// The files of everloop's own git folder that hold the settings.
    pub fn files(&self, git_dir: &Path) -> Vec<(PathBuf, String)> {
        let (excludes, attributes) = (git_dir.join("excludes"), git_dir.join("attributes"));
        let mut config = self.core();
        for (name, path) in [("excludesFile", &excludes), ("attributesFile", &attributes)] {
            config.push_str(&setting(&format!("core.{name}"), &path.display().to_string()));
        }
        for (name, value) in &self.settings {
            config.push_str(&setting(name, value));
        }
        vec![
            (excludes, self.excludes[0].clone()),
            (git_dir.join("info/exclude"), self.excludes[1].clone()),
            (attributes, self.attributes[0].clone()),
            (git_dir.join("info/attributes"), self.attributes[1].clone()),
            (git_dir.join("config"), config),
        ]
    }

    /// The configuration of a clone for an agent.
    pub fn for_agent(&self) -> String {
        let plain = |name: &str| PLAIN.contains(&name) || FOR_AGENTS.contains(&name) || is_remote(name);
        let kept = self.settings.iter().filter(|(name, _)| plain(name));
        kept.fold(self.core(), |config, (name, value)| config + &setting(name, value))
    }

    /// Patterns of ignored files in the repository.
    pub fn exclude(&self) -> &str {
        &self.excludes[1]
    }

    /// Commands that a landing would run in the person's checkout and that were not configured when
    /// the loop was made.
    pub async fn new_drivers(&self, git: &Git) -> Result<Vec<String>, WorkspaceError> {
        if planted::is(Bug::RunsNewDrivers) {
            return Ok(Vec::new());
        }
        let listed = git.bytes(&["config", "--list", "-z"]).await?;
        let is_new = |record: &[u8]| {
            let text = String::from_utf8_lossy(record);
            let (name, value) = text.split_once('\n')?;
            let known = self.drivers().any(|(n, v)| (n, v) == (name, value));
            (is_driver(name) && !known).then(|| name.to_owned())
        };
        Ok(git::records(&listed).filter_map(is_new).collect())
    }

    /// Whether files are stored as they are: nothing changes content, names or modes between a
    /// folder and the repository. A `.gitattributes` in the folder is another matter.
    pub fn stores_plainly(&self) -> bool {
        let usual = [
            ("core.autocrlf", "false"),
            ("core.filemode", "true"),
            ("core.ignorecase", "false"),
            ("core.precomposeunicode", "false"),
            ("core.symlinks", "true"),
        ];
        let is_usual = |(name, usual): (&str, &str)| self.values(name).all(|value| value == usual);
        usual.into_iter().all(is_usual) && self.attributes.iter().all(|text| text.trim().is_empty())
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.settings.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn drivers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).filter(|(name, _)| is_driver(name))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn core(&self) -> String {
        let version = if self.object_format.is_some() { "1" } else { "0" };
        let mut config = setting("core.repositoryformatversion", version) + &setting("core.bare", "false");
        if let Some(format) = &self.object_format {
            config.push_str(&setting("extensions.objectFormat", format));
        }
        config
    }
}

fn is_kept(name: &str) -> bool {
    PLAIN.contains(&name)
        || FOR_AGENTS.contains(&name)
        || is_remote(name)
        || ["filter.", "lfs.", "url."].iter().any(|section| name.starts_with(section))
        || name.starts_with("merge.") && [".driver", ".name", ".recursive"].iter().any(|key| name.ends_with(key))
}

/// Where a remote is: large files and submodules with relative addresses need it.
fn is_remote(name: &str) -> bool {
    name.starts_with("remote.") && [".url", ".lfsurl"].iter().any(|key| name.ends_with(key))
}

/// A setting whose value git runs as a command over files.
fn is_driver(name: &str) -> bool {
    name.starts_with("filter.") && [".clean", ".smudge", ".process"].iter().any(|key| name.ends_with(key))
        || name.starts_with("merge.") && name.ends_with(".driver")
}

/// A line of a configuration file.
fn setting(name: &str, value: &str) -> String {
    let (first, last) = (name.find('.'), name.rfind('.'));
    let (Some(first), Some(last)) = (first, last) else { return String::new() };
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let (section, key) = (&name[..first], &name[last + 1..]);
    let middle = if first == last { String::new() } else { format!(" \"{}\"", quoted(&name[first + 1..last])) };
    format!("[{section}{middle}]\n\t{key} = \"{}\"\n", quoted(value))
}

/// A path as git's configuration writes it.
fn expand(value: &str, root: &Path) -> PathBuf {
    match (value.strip_prefix("~/"), home()) {
        (Some(below), Some(home)) => home.join(below),
        _ => root.join(value),
    }
}

/// A file of the person's git folder.
fn own(name: &str) -> PathBuf {
    let configured = std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = configured.or_else(|| Some(home()?.join(".config")));
    folder.map(|folder| folder.join("git").join(name)).unwrap_or_default()
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The content of a file of patterns; empty without one.
fn patterns(path: &Path) -> Result<String, WorkspaceError> {
    let mut text = Vec::new();
    let opened = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(String::new());
        }
        Err(e) => return Err(WorkspaceError::files("read", path)(e)),
    };
    let read = opened.take(PATTERNS_CAP_BYTES).read_to_end(&mut text);
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
        // A folder in its place: git does not read it either.
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => Ok(String::new()),
        Err(e) => Err(WorkspaceError::files("read", path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_quoted() {
        assert_eq!(setting("core.eol", "lf"), "[core]\n\teol = \"lf\"\n");
        assert_eq!(setting("filter.a.b.clean", "x \"y\" \\z"), "[filter \"a.b\"]\n\tclean = \"x \\\"y\\\" \\\\z\"\n");
    }

    #[test]
    fn only_what_changes_the_content_of_files_is_kept() {
        for name in ["filter.lfs.clean", "merge.union-x.driver", "core.autocrlf", "remote.origin.url"] {
            assert!(is_kept(name), "{name}");
        }
        for name in ["core.fsmonitor", "core.hookspath", "alias.x", "remote.origin.uploadpack", "diff.x.textconv"] {
            assert!(!is_kept(name), "{name}");
        }
        assert!(is_driver("filter.a.process") && !is_driver("filter.a.required"));
    }
}
