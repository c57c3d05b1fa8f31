//! What a makefile says about some of its targets: their recipes, those of what they depend on, the
//! variables in them, and what concerns every target. The recipes of other targets are left out.

use std::collections::{BTreeMap, BTreeSet};

/// Variables that change how every recipe runs.
const SPECIAL: &[&str] = &[
    "SHELL",
    ".SHELLFLAGS",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "MAKE",
    "MAKEFILES",
    "MAKECMDGOALS",
    "PATH",
    "VPATH",
    ".RECIPEPREFIX",
    ".DEFAULT_GOAL",
    ".EXTRA_PREREQS",
];

/// Functions of make that run a command or make new rules where they stand.
const ACTING: &[&str] = &["$(shell", "${shell", "$(eval", "${eval", "$(file", "${file"];

/// Names of makefiles, the preferred one first. They are remade before any other target.
pub(super) const NAMES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];

/// Words that begin a line which concerns every target.
const DIRECTIVES: &[&str] = &[
    "include", "-include", "sinclude", "export", "unexport", "override", "ifeq", "ifneq", "ifdef", "ifndef", "else",
    "endif", "load", "vpath",
];

/// Files that a compiler takes or makes: a list of them belongs to the work.
const SOURCES: &[&str] = &[
    ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".o", ".obj", ".a", ".s", ".S", ".m", ".rs", ".go", ".java",
    ".f90", ".cu", ".y", ".l",
];

/// References to variables in variables are followed this far.
const DEEPEST: u32 = 8;

#[derive(Debug, Default)]
struct Rule {
    targets: Vec<String>,
    needs: Vec<String>,
    /// The recipe, or a variable of the targets alone.
    lines: Vec<String>,
}

/// A parsed makefile.
#[derive(Debug, Default)]
pub(super) struct Makefile {
    rules: Vec<Rule>,
    variables: BTreeMap<String, Vec<String>>,
    directives: Vec<String>,
    pub includes: Vec<String>,
}

impl Makefile {
    /// Reads rules and variables; lines that are neither are passed over.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let mut lines = logical_lines(text).into_iter();
        while let Some(line) = lines.next() {
            if let Some(recipe) = line.strip_prefix('\t') {
                if let Some(rule) = file.rules.last_mut() {
                    rule.lines.push(recipe.trim().to_owned());
                }
                continue;
            }
            let line = line.split_once(" #").map_or(line.as_str(), |(code, _)| code).trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let first = line.split_whitespace().next().unwrap_or_default();
            if first == "define" {
                let name = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
                let body: Vec<String> = lines.by_ref().take_while(|line| line.trim() != "endef").collect();
                file.variables.entry(name).or_default().push(body.join("\n"));
            } else if DIRECTIVES.contains(&first) || line.starts_with("$(") || line.starts_with("${") {
                if first.ends_with("include") {
                    file.includes.extend(line.split_whitespace().skip(1).map(str::to_owned));
                }
                file.directives.push(line.to_owned());
            } else if let Some((name, value)) = assignment(line) {
                // Other variables may be expanded while the file is read, and this one with them.
                if acts(&value) || line[name.len()..].trim_start().starts_with('!') {
                    file.directives.push(line.to_owned());
                }
                file.variables.entry(name).or_default().push(value);
            } else if let Some((targets, rest)) = rule_line(line) {
                // Such a rule can be one for any target, or run a command while it is read.
                if targets.contains('$') || acts(rest.split(';').next().unwrap_or_default()) {
                    file.directives.push(line.to_owned());
                }
                file.rule(targets, rest);
            }
        }
        file
    }

    fn rule(&mut self, targets: &str, rest: &str) {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let mut rule = Rule { targets: words(targets), ..Rule::default() };
        let rest = rest.trim_start_matches(':');
        let (needs, recipe) = rest.split_once(';').unwrap_or((rest, ""));
        if assignment(needs.trim()).is_some() {
            rule.lines.push(format!("set {}", rest.trim()));
        } else {
            rule.needs = words(&needs.replace('|', " "));
            rule.lines.extend(Some(recipe.trim()).filter(|r| !r.is_empty()).map(str::to_owned));
        }
        self.rules.push(rule);
    }

    /// The goal of a call that names none.
    pub fn first_goal(&self) -> Option<&str> {
        let goal = |target: &&String| !target.starts_with('.') && !target.contains('%');
        self.rules.iter().flat_map(|rule| &rule.targets).find(goal).map(String::as_str)
    }

    fn of(&self, target: &str) -> impl Iterator<Item = &Rule> {
        let target = target.to_owned();
        self.rules.iter().filter(move |rule| rule.targets.contains(&target))
    }

    /// Whether the target is run although a file of its name is there.
    pub fn is_phony(&self, target: &str) -> bool {
        self.of(".PHONY").count() > 0
            && self.of(".PHONY").any(|rule| rule.needs.iter().flat_map(|n| self.words(n, DEEPEST)).any(|n| n == target))
    }

    /// The words of a prerequisite, with variables in place of their names.
    fn words(&self, text: &str, depth: u32) -> Vec<String> {
        let Some(name) = text.strip_prefix("$(").or_else(|| text.strip_prefix("${")) else {
            return vec![text.to_owned()];
        };
        let name = name.trim_end_matches([')', '}']);
        let values = self.variables.get(name).filter(|_| depth > 0);
        let words = values.into_iter().flatten().flat_map(|value| value.split_whitespace());
        words.flat_map(|word| self.words(word, depth.saturating_sub(1))).collect()
    }

    /// The targets with a rule that `goals` need, and themselves.
    pub fn reached(&self, goals: &[String]) -> BTreeSet<String> {
        let (mut reached, mut todo) = (BTreeSet::new(), goals.to_vec());
        while let Some(target) = todo.pop() {
            if reached.insert(target.clone()) {
                todo.extend(self.needs(&target));
            }
        }
        reached
    }

    /// What a target needs and what has a rule.
    fn needs(&self, target: &str) -> BTreeSet<String> {
        let words = self.of(target).flat_map(|rule| &rule.needs).flat_map(|need| self.words(need, DEEPEST));
        words.filter(|word| self.of(word).next().is_some()).collect()
    }

    /// The recipes of `targets`, one command a line.
    pub fn recipes(&self, targets: &BTreeSet<String>) -> String {
        let lines = targets.iter().flat_map(|target| self.of(target)).flat_map(|rule| &rule.lines);
        let plain = lines.map(|line| self.expanded(line.trim_start_matches(['@', '-', '+']), DEEPEST));
        plain.collect::<Vec<_>>().join("\n")
    }

    /// The text with the values of plain variables.
    fn expanded(&self, text: &str, depth: u32) -> String {
        let mut out = text.to_owned();
        for name in references(text) {
            if let Some(values) = self.variables.get(&name).filter(|_| depth > 0) {
                let value = self.expanded(&values.join(" "), depth - 1);
                out = out.replace(&format!("$({name})"), &value).replace(&format!("${{{name}}}"), &value);
            }
        }
        out
    }

    /// Facts about `targets`; one with a `+` may be added, but not be taken away.
    pub fn facts(&self, targets: &[String]) -> Vec<String> {
        let own = NAMES.iter().map(|&name| name.to_owned()).chain(self.includes.iter().cloned());
        let reached = self.reached(&targets.iter().cloned().chain(own).collect::<Vec<_>>());
        let mut facts: Vec<String> = self.directives.iter().map(|line| format!("directive {line}")).collect();
        let mut used: Vec<String> = SPECIAL.iter().map(|&name| name.to_owned()).collect();
        for target in &reached {
            let lines: Vec<&String> = self.of(target).flat_map(|rule| &rule.lines).collect();
            used.extend(lines.iter().flat_map(|line| references(line)));
            facts.push(format!("recipe {target}: {lines:?}"));
            facts.extend(self.needs(target).iter().map(|need| format!("need {target}: {need}")));
            facts.extend(self.is_phony(target).then(|| format!("+phony {target}")));
        }
        for rule in &self.rules {
            let pattern = rule.targets.iter().find(|target| target.contains('%'));
            let concerned = |pattern: &String| reached.iter().any(|target| covers(pattern, target));
            let free = if pattern.is_none() || rule.targets.iter().any(concerned) { "" } else { "+" };
            let special =
                rule.targets.iter().any(|t| t.starts_with('.') && t[1..].chars().all(|c| c.is_ascii_uppercase()));
            let known = [".PHONY", ".SUFFIXES", ".PRECIOUS", ".SECONDARY", ".INTERMEDIATE"];
            if pattern.is_some() || special && !rule.targets.iter().any(|t| known.contains(&t.as_str())) {
                facts.push(format!("{free}rule {:?}: {:?} {:?}", rule.targets, rule.needs, rule.lines));
            }
        }
        facts.extend(self.values(used));
        facts
    }

    /// The values of variables and of those in them, except lists of sources.
    fn values(&self, mut todo: Vec<String>) -> Vec<String> {
        let (mut seen, mut facts) = (BTreeSet::new(), Vec::new());
        while let Some(name) = todo.pop() {
            let Some(values) = self.variables.get(&name).filter(|_| seen.insert(name.clone())) else { continue };
            let values: Vec<&String> = values.iter().filter(|value| !is_sources(value)).collect();
            todo.extend(values.iter().flat_map(|value| references(value)));
            if !values.is_empty() {
                facts.push(format!("variable {name}: {values:?}"));
            }
        }
        facts
    }
}

/// Lines, with those joined that end with a backslash.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let (line, goes_on) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match lines.last_mut().filter(|_| open) {
            Some(last) => *last = format!("{} {}", last.trim_end(), line.trim()),
            None => lines.push(line.to_owned()),
        }
        open = goes_on;
    }
    lines
}

/// Name and value of `NAME = value` with any of make's operators.
fn assignment(line: &str) -> Option<(String, String)> {
    let at = line.find('=')?;
    let (left, value) = (line[..at].trim_end_matches([':', '?', '+', '!']).trim(), line[at + 1..].trim());
    let plain = !left.is_empty() && !left.contains(|c: char| c.is_whitespace() || c == ':' || c == '$');
    plain.then(|| (left.to_owned(), value.to_owned()))
}

/// Targets and the rest of a rule's line.
fn rule_line(line: &str) -> Option<(&str, &str)> {
    let mut depth = 0_u32;
    for (at, c) in line.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return Some((&line[..at], &line[at + 1..])),
            _ => {}
        }
    }
    None
}

fn acts(text: &str) -> bool {
    ACTING.iter().any(|function| text.contains(function))
}

/// Whether a pattern of make stands for a target, too.
fn covers(pattern: &str, target: &str) -> bool {
    let Some((begin, end)) = pattern.split_once('%') else { return pattern == target };
    target.len() >= begin.len() + end.len() && target.starts_with(begin) && target.ends_with(end)
}

/// Names of the variables in a text.
fn references(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices('$') {
        let rest = &text[at + 1..];
        let close = match rest.chars().next() {
            Some('(') => ')',
            Some('{') => '}',
            _ => continue,
        };
        let inside = rest[1..].split(close).next().unwrap_or_default();
        names.push(inside.split([':', ' ']).next().unwrap_or_default().to_owned());
    }
    names
}

fn is_sources(value: &str) -> bool {
    value.split_whitespace().all(|word| SOURCES.iter().any(|ending| word.ends_with(ending)))
}
