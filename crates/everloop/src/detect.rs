//! Looks at a folder and proposes checks for it. Proposes only: `init` writes them down, a person
//! decides.
//!
//! [`render_toml`] makes an everloop.toml of the proposals, [`agent`] puts an agent into it,
//! [`guess`] makes a command line.

use std::path::Path;

use serde::Serialize;
use toml::Value;

pub mod agent;
pub mod guess;

/// A larger file is not read to detect the kind of a project.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Folders looked into below the first when the first holds no project itself.
const FOLDERS_MAX: usize = 50;

/// A command that could check the project, and why it is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    pub name: String,
    pub run: String,
    /// The evidence in the folder.
    pub reason: String,
    /// A command that must have run in a fresh checkout before it.
    pub setup: Option<String>,
    /// Existing files that decide over it, and that a turn must not change.
    pub protect: Vec<String>,
    /// Whether it is only written as a comment.
    pub optional: bool,
}

impl Proposal {
    fn new(name: &str, run: impl Into<String>, reason: impl Into<String>) -> Self {
        let (name, run, reason) = (name.to_owned(), run.into(), reason.into());
        Self { name, run, reason, setup: None, protect: Vec::new(), optional: false }
    }

    fn protect(mut self, globs: &[&str]) -> Self {
        self.protect = globs.iter().map(|glob| (*glob).to_owned()).collect();
        self
    }

    fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// Proposes checks for `dir`, or for the folders directly below it when it is a collection of
/// projects.
pub fn detect(dir: &Path) -> Vec<Proposal> {
    let here = project(dir);
    if !here.is_empty() {
        return here;
    }
    let mut below: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    below.sort();
    below.retain(|path| path.is_dir() && !is_hidden(path));
    below.iter().take(FOLDERS_MAX).flat_map(|folder| inside(folder)).collect()
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.starts_with('.') || matches!(name.as_str(), "node_modules" | "target" | "vendor" | "venv" | "dist")
}

/// The proposals of a folder below, as seen from above.
fn inside(folder: &Path) -> Vec<Proposal> {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    // A folder with a name that needs escaping in patterns is left to a person.
    let plain = !name.chars().any(|c| c.is_control() || "*?[]{}!\\".contains(c));
    let Some(quoted) = shlex::try_quote(&name).ok().filter(|_| plain) else { return Vec::new() };
    let enter = |command: &str| format!("cd {quoted} && {command}");
    let from_above = |p: Proposal| Proposal {
        name: format!("{name} {}", p.name),
        run: enter(&p.run),
        reason: format!("{name}: {}", p.reason),
        setup: p.setup.map(|setup| format!("({})", enter(&setup))),
        protect: p.protect.iter().map(|glob| format!("{name}/{glob}")).collect(),
        optional: p.optional,
    };
    project(folder).into_iter().map(from_above).collect()
}

fn project(dir: &Path) -> Vec<Proposal> {
    let mut found = rust(dir);
    found.extend(node(dir));
    found.extend(python(dir));
    found.extend(go(dir));
    // A Makefile beside another kind often only wraps it; then a person chooses.
    let wraps = !found.is_empty();
    found.extend(make(dir).into_iter().map(|p| if wraps { p.optional() } else { p }));
    found
}

fn has(dir: &Path, name: &str) -> bool {
    dir.join(name).exists()
}

fn text(dir: &Path, name: &str) -> Option<String> {
    let path = dir.join(name);
    let small = path.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= FILE_MAX_BYTES);
    small.and_then(|_| std::fs::read_to_string(path).ok())
}

fn rust(dir: &Path) -> Vec<Proposal> {
    let Some(manifest) = text(dir, "Cargo.toml") else { return Vec::new() };
    let manifest: toml::Table = manifest.parse().unwrap_or_default();
    let workspace = manifest.contains_key("workspace");
    let all = if workspace { " --workspace" } else { "" };
    let what = if workspace { "Cargo.toml has a workspace" } else { "there is a Cargo.toml" };
    let test = Proposal::new("cargo test", format!("cargo test{all}"), what).protect(&["clippy.toml", ".cargo/**"]);
    let run = format!("cargo clippy{all} --all-targets -- -D warnings");
    let lints = manifest.contains_key("lints")
        || manifest.get("workspace").and_then(|w| w.get("lints")).is_some()
        || has(dir, "clippy.toml")
        || has(dir, ".clippy.toml");
    let clippy = if lints {
        Proposal::new("cargo clippy", run, "the project sets lints")
    } else {
        Proposal::new("cargo clippy", run, "there is a Cargo.toml").optional()
    };
    vec![test, clippy]
}

fn node(dir: &Path) -> Vec<Proposal> {
    let Some(package) = text(dir, "package.json") else { return Vec::new() };
    let package: serde_json::Value = serde_json::from_str(&package).unwrap_or_default();
    let (tool, setup) = if has(dir, "pnpm-lock.yaml") {
        ("pnpm", Some("pnpm install --frozen-lockfile"))
    } else if has(dir, "yarn.lock") {
        ("yarn", Some("yarn install --frozen-lockfile"))
    } else if has(dir, "package-lock.json") || has(dir, "npm-shrinkwrap.json") {
        ("npm", Some("npm ci"))
    } else {
        let needs = ["dependencies", "devDependencies"].iter().any(|key| package.get(key).is_some());
        ("npm", needs.then_some("npm install"))
    };
    let script = |name: &str| package.get("scripts").and_then(|s| s.get(name)).and_then(|s| s.as_str());
    let mut found = Vec::new();
    for name in ["test", "lint", "build", "typecheck"] {
        // The placeholder of `npm init` for projects without tests fails on purpose.
        let Some(_) = script(name).filter(|body| !body.contains("no test specified")) else { continue };
        let run = if name == "test" { format!("{tool} test") } else { format!("{tool} run {name}") };
        let mut proposal = Proposal::new(&format!("{tool} {name}"), run, format!("package.json has a script `{name}`"));
        proposal.setup = setup.map(str::to_owned);
        let config = ["jest.config.*", "vitest.config.*", ".eslintrc*", "eslint.config.*", "tsconfig.json"];
        found.push(proposal.protect(&config));
    }
    found
}

fn python(dir: &Path) -> Vec<Proposal> {
    let project = text(dir, "pyproject.toml");
    let setup_cfg = text(dir, "setup.cfg");
    let marks = ["requirements.txt", "setup.py", "pytest.ini", "tox.ini"];
    let is_python = project.is_some() || setup_cfg.is_some() || marks.iter().any(|name| has(dir, name));
    let tests = ["tests", "test"].into_iter().find(|name| dir.join(name).is_dir() && holds_python(&dir.join(name)));
    if !is_python && tests.is_none() {
        return Vec::new();
    }
    let named = |text: &Option<String>| text.as_ref().is_some_and(|t| t.contains("pytest"));
    let requirements = ["requirements.txt", "requirements-dev.txt"].map(|name| text(dir, name));
    let pytest = has(dir, "pytest.ini")
        || has(dir, "conftest.py")
        || named(&project)
        || named(&setup_cfg)
        || requirements.iter().any(named)
        || tests.is_some_and(|tests| has(dir, &format!("{tests}/conftest.py")));
    let setup = if has(dir, "uv.lock") {
        Some("uv sync".to_owned())
    } else if has(dir, "poetry.lock") {
        Some("poetry install".to_owned())
    } else {
        None
    };
    let runner = match setup.as_deref() {
        Some("uv sync") => "uv run ",
        Some(_) => "poetry run ",
        None => "",
    };
    let mut test = match (pytest, tests) {
        (true, _) => Proposal::new("pytest", format!("{runner}python -m pytest -q"), "the project mentions pytest"),
        (false, Some(folder)) => {
            let run = format!("{runner}python -m unittest discover -s {folder}");
            Proposal::new("unittest", run, format!("there are tests in `{folder}`"))
        }
        (false, None) => return Vec::new(),
    };
    test.setup = setup;
    vec![test.protect(&["pytest.ini", "conftest.py", "tox.ini"])]
}

fn holds_python(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.take(1000).any(|entry| entry.path().extension().is_some_and(|ext| ext == "py"))
}

fn go(dir: &Path) -> Vec<Proposal> {
    if !has(dir, "go.mod") {
        return Vec::new();
    }
    vec![
        Proposal::new("go test", "go test ./...", "there is a go.mod"),
        Proposal::new("go vet", "go vet ./...", "there is a go.mod").optional(),
    ]
}

fn make(dir: &Path) -> Vec<Proposal> {
    let files = ["GNUmakefile", "makefile", "Makefile"];
    let Some((file, body)) = files.iter().find_map(|name| Some((name, text(dir, name)?))) else { return Vec::new() };
    let has_target = |target: &str| {
        let rule = |line: &str| {
            line.split_once(':').is_some_and(|(names, rest)| {
                !rest.starts_with('=') && names.split_whitespace().any(|name| name == target)
            })
        };
        body.lines().filter(|line| !line.starts_with(['\t', '#', ' ', '.'])).any(rule)
    };
    let targets = ["test", "check", "lint"].into_iter().filter(|target| has_target(target));
    let proposal = |target: &str| {
        let reason = format!("{file} has a target `{target}`");
        Proposal::new(&format!("make {target}"), format!("make {target}"), reason).protect(&[file])
    };
    targets.map(proposal).collect()
}

/// An annotated everloop.toml from proposals. Without any, it has a check that fails until a person
/// writes one.
pub fn render_toml(proposals: &[Proposal], goal: &str) -> String {
    let text = |value: &str| Value::from(value).to_string();
    let mut out = vec![
        "# Loops for everloop. `everloop config schema` describes every key, `everloop config check` finds mistakes,".to_owned(),
        "# `everloop run` works on the loop.".to_owned(),
        String::new(),
        "[agent.default]".to_owned(),
        "# Any command that takes a prompt and works in the current folder. {prompt} is replaced by the prompt; without it".to_owned(),
        "# the prompt arrives on stdin.".to_owned(),
        agent::PLACEHOLDER.to_owned(),
        "# usd_per_turn = 0.10      # what a turn is taken to cost, for max_usd".to_owned(),
        "# pass_env = [\"MY_API_KEY\"]".to_owned(),
        String::new(),
        "[loop.main]".to_owned(),
        format!("goal = {}", text(goal)),
        "agent = \"default\"".to_owned(),
    ];
    let mut setups: Vec<&str> = Vec::new();
    for setup in proposals.iter().filter(|p| !p.optional).filter_map(|p| p.setup.as_deref()) {
        if !setups.contains(&setup) {
            setups.push(setup);
        }
    }
    if !setups.is_empty() {
        out.push(
            "# Runs once where the agent works, and before the checks unless `check_cache` names what it makes."
                .to_owned(),
        );
        out.push(format!("setup = {}", text(&setups.join(" && "))));
    }
    let mut globs: Vec<&String> = proposals.iter().filter(|p| !p.optional).flat_map(|p| &p.protect).collect();
    globs.sort();
    globs.dedup();
    if !globs.is_empty() {
        out.push("# Existing files that no turn may change, besides tests and CI.".to_owned());
        let globs: Vec<Value> = globs.into_iter().map(|glob| Value::from(glob.as_str())).collect();
        out.push(format!("protect = {}", Value::from(globs)));
    }
    for bound in ["# max_turns = 30", "# max_time = \"8h\"", "# max_usd = 5.0"] {
        out.push(bound.to_owned());
    }
    out.extend(proposals.iter().flat_map(|p| check_lines(p, &text)));
    if proposals.iter().all(|p| p.optional) {
        out.push(String::new());
        out.push(
            "# Nothing that could be a check was found. The goal is reached when this command exits with 0.".to_owned(),
        );
        out.push(
            "[[loop.main.check]]\nname = \"todo\"\nrun = \"echo 'write a check in everloop.toml'; exit 1\"".to_owned(),
        );
    }
    out.push(String::new());
    out.join("\n")
}

fn check_lines(proposal: &Proposal, text: &dyn Fn(&str) -> String) -> Vec<String> {
    let comment = if proposal.optional { "# " } else { "" };
    let reason: String = proposal.reason.chars().filter(|c| !c.is_control()).collect();
    vec![
        String::new(),
        format!("# Because {reason}.{}", if proposal.optional { " Remove the `#` to use it." } else { "" }),
        format!("{comment}[[loop.main.check]]"),
        format!("{comment}name = {}", text(&proposal.name)),
        format!("{comment}run = {}", text(&proposal.run)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, ResolveContext, ResolvedLoop, load};

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tests can make folders");
        for (name, body) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("files are in folders")).expect("tests can make folders");
            std::fs::write(path, body).expect("tests can write files");
        }
        dir
    }

    fn runs(files: &[(&str, &str)]) -> Vec<String> {
        let used = detect(folder(files).path()).into_iter().filter(|p| !p.optional);
        used.map(|p| p.run).collect()
    }

    /// Writes the file for a folder and reads it with our own loader.
    fn round_trip(proposals: &[Proposal], goal: &str) -> ResolvedLoop {
        let toml = render_toml(proposals, goal);
        let dir = folder(&[("everloop.toml", &toml)]);
        let moment = ResolveContext::at(everloop_core::time::Time(0));
        let config = load(dir.path(), None, &Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{toml}"));
        config.resolve("main", &moment).unwrap_or_else(|e| panic!("{e}\n{toml}"))
    }

    #[test]
    fn rust_projects() {
        assert_eq!(runs(&[("Cargo.toml", "[package]\nname = \"x\"")]), ["cargo test"]);
        let workspace = [("Cargo.toml", "[workspace]\nmembers = []\n[workspace.lints.rust]\n")];
        assert_eq!(
            runs(&workspace),
            ["cargo test --workspace", "cargo clippy --workspace --all-targets -- -D warnings"]
        );
        assert_eq!(runs(&[("Cargo.toml", "not toml [")]), ["cargo test"]);
    }

    #[test]
    fn node_projects() {
        let scripts = r#"{"scripts": {"test": "jest", "lint": "eslint .", "build": "tsc", "start": "x"}}"#;
        let npm = [("package.json", scripts), ("package-lock.json", "{}")];
        assert_eq!(runs(&npm), ["npm test", "npm run lint", "npm run build"]);
        assert_eq!(detect(folder(&npm).path())[0].setup.as_deref(), Some("npm ci"));
        assert_eq!(runs(&[("package.json", scripts), ("pnpm-lock.yaml", "")])[0], "pnpm test");
        assert_eq!(runs(&[("package.json", scripts), ("yarn.lock", "")])[1], "yarn run lint");
        let placeholder = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        assert_eq!(runs(&[("package.json", placeholder)]), Vec::<String>::new());
        assert_eq!(runs(&[("package.json", "{ broken")]), Vec::<String>::new());
    }

    #[test]
    fn python_projects() {
        assert_eq!(runs(&[("pyproject.toml", "[tool.pytest.ini_options]\n")]), ["python -m pytest -q"]);
        assert_eq!(runs(&[("tests/test_a.py", "")]), ["python -m unittest discover -s tests"]);
        assert_eq!(runs(&[("tests/conftest.py", "")]), ["python -m pytest -q"]);
        assert_eq!(runs(&[("pyproject.toml", "pytest"), ("uv.lock", "")]), ["uv run python -m pytest -q"]);
        assert_eq!(runs(&[("requirements.txt", "flask\n")]), Vec::<String>::new());
        assert_eq!(runs(&[("tests/unit.rs", "")]), Vec::<String>::new());
    }

    #[test]
    fn go_and_make_projects() {
        assert_eq!(runs(&[("go.mod", "module x")]), ["go test ./..."]);
        assert_eq!(runs(&[("Makefile", "all: x\nbuild test: x\n\tcheck: no\n# lint:\n.PHONY: lint\n")]), ["make test"]);
        assert_eq!(runs(&[("Makefile", "test := yes\ncheck: x\n")]), ["make check"]);
    }

    #[test]
    fn several_kinds_at_once_and_folders_below() {
        let both = [("Cargo.toml", ""), ("go.mod", ""), ("Makefile", "test:\n")];
        assert_eq!(runs(&both), ["cargo test", "go test ./..."]);
        let below =
            [("api/go.mod", ""), ("web app/package.json", r#"{"scripts": {"test": "x"}}"#), (".git/go.mod", "")];
        assert_eq!(runs(&below), ["cd api && go test ./...", "cd 'web app' && npm test"]);
        assert_eq!(detect(Path::new("/nonexistent")), Vec::new());
    }

    #[test]
    fn what_is_written_is_what_our_loader_reads() {
        let scripts = r#"{"scripts": {"test": "jest", "lint": "x"}}"#;
        let files = [("Cargo.toml", "[workspace]"), ("package.json", scripts), ("package-lock.json", "")];
        let found = detect(folder(&files).path());
        let resolved = round_trip(&found, "say \"hi\"\nand \\ more # 'quoted'");
        assert_eq!(resolved.goal, "say \"hi\"\nand \\ more # 'quoted'");
        let runs: Vec<&str> = resolved.checks.iter().map(|c| c.run.as_str()).collect();
        assert_eq!(runs, ["cargo test --workspace", "npm test", "npm run lint"]);
        assert_eq!(resolved.workspace.setup.as_deref(), Some("npm ci"));
        assert!(resolved.workspace.protect.contains(&"jest.config.*".to_owned()));
        insta::assert_snapshot!(render_toml(&found, "make the tests pass"));
    }

    #[test]
    fn without_a_find_the_goal_cannot_be_reached_by_accident() {
        let resolved = round_trip(&[], "g");
        assert!(resolved.checks[0].run.ends_with("exit 1"));
        let odd = detect(folder(&[("it's \"odd\"/go.mod", ""), ("line\nbreak/go.mod", "")]).path());
        assert_eq!(odd.len(), 2);
        assert_eq!(round_trip(&odd, "g").checks[0].run, "cd \"it's \\\"odd\\\"\" && go test ./...");
    }
}
