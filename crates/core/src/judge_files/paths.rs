//! Patterns of paths: `*` stands for a part of a name, `**` for any folders, and a backslash takes
//! the meaning of the next character away. Paths are relative to the root of a repository, with `/`.

/// Whether `path` matches `pattern`.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    // Most patterns are plain names, and there are hundreds of them for every file.
    if !pattern.contains(['*', '\\']) {
        return pattern == path;
    }
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    parts(&pattern, &path)
}

fn parts(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        // At the end it stands for everything inside, not for the folder's own name.
        (["**"], rest) => !rest.is_empty(),
        (["**", after @ ..], rest) => (0..=rest.len()).any(|skipped| parts(after, &rest[skipped..])),
        ([first, after @ ..], [name, rest @ ..]) => name_matches(first, name) && parts(after, rest),
        _ => false,
    }
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| name_matches(rest, &name[at..]))
        }
        Some(c) => {
            let wanted = if c == '\\' { chars.next().unwrap_or(c) } else { c };
            name.strip_prefix(wanted).is_some_and(|rest| name_matches(chars.as_str(), rest))
        }
    }
}

/// A pattern that matches only `path`.
pub(super) fn literal(path: &str) -> String {
    path.chars().flat_map(|c| (c == '*' || c == '\\').then_some('\\').into_iter().chain([c])).collect()
}

/// `folder` and `name` as one path without `.` and `..`; `None` when it leaves the root.
pub(super) fn join(folder: &str, name: &str) -> Option<String> {
    let mut out: Vec<&str> = Vec::new();
    if name.starts_with('/') {
        return None;
    }
    for part in folder.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(out.pop()?),
            part => out.push(part),
        }
    }
    Some(out.join("/"))
}

/// The folders above `folder`, the root last and as an empty text.
pub(super) fn above(folder: &str) -> impl Iterator<Item = &str> {
    let mut at = Some(folder).filter(|folder| !folder.is_empty());
    std::iter::from_fn(move || {
        let up = at?.rsplit_once('/').map_or("", |(up, _)| up);
        at = Some(up).filter(|up| !up.is_empty());
        Some(up)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_folders() {
        for (pattern, path, expected) in [
            ("a/b.c", "a/b.c", true),
            ("**/conftest.py", "conftest.py", true),
            ("**/conftest.py", "a/b/conftest.py", true),
            ("**/conftest.py", "a/conftest.pyc", false),
            (".cargo/**", ".cargo/config.toml", true),
            (".cargo/**", ".cargo", false),
            ("sub/**/*.pth", "sub/x/y/z.pth", true),
            ("jest.config.*", "jest.config.js", true),
            ("jest.config.*", "a/jest.config.js", false),
            ("**/*.egg-info/**", "x.egg-info/entry_points.txt", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        assert!(matches(&literal(r"odd*\name"), r"odd*\name"));
        assert_eq!(join("a/b", "../c.sh").as_deref(), Some("a/c.sh"));
        assert_eq!(join("a", "../../c.sh"), None);
        assert_eq!(above("a/b/c").collect::<Vec<_>>(), ["a/b", "a", ""]);
    }
}
