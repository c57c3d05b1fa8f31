//! The text of a commit, as git writes it.

use everloop_core::spec::CommitAuthor;

/// The committer of all commits that everloop makes.
const EVERLOOP: &str = "everloop <everloop@localhost>";

/// The text of a commit that is made now; `None` when git has to decide how an author is written, or
/// to look it up.
pub(super) fn text(author: &CommitAuthor, tree: &str, parents: &[&str], message: &str) -> Option<String> {
    let author = match author {
        CommitAuthor::Everloop => EVERLOOP.to_owned(),
        CommitAuthor::Named { name, email } if is_plain(name) && is_plain(email) => format!("{name} <{email}>"),
        CommitAuthor::Named { .. } | CommitAuthor::Person => return None,
    };
    if message.contains('\0') {
        return None;
    }
    let parents = parents.iter().fold(String::new(), |text, parent| text + "parent " + parent + "\n");
    let date = jiff::Zoned::now().strftime("%s %z").to_string();
    let end = if message.ends_with('\n') { "" } else { "\n" };
    Some(format!("tree {tree}\n{parents}author {author} {date}\ncommitter {EVERLOOP} {date}\n\n{message}{end}"))
}

/// Letters and what stands between them: git takes other characters away at the ends, or everywhere.
fn is_plain(text: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || " ._-+@".contains(c);
    let end = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.chars().all(inside) && end(text.chars().next()) && end(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Git;

    #[tokio::test]
    async fn git_makes_the_same_commit() {
        let temp = tempfile::tempdir().unwrap();
        let git = Git::operators(temp.path());
        git.bytes(&["init", "-q"]).await.unwrap();
        let tree = git.line(&["mktree"]).await.unwrap();
        let parent = git.line(&["commit-tree", &tree, "-m", "x"]).await.unwrap();
        let named = CommitAuthor::Named { name: "Zo\u{eb} A. B".to_owned(), email: "z@example.org".to_owned() };
        for author in [CommitAuthor::Everloop, named] {
            let text = text(&author, &tree, &[&parent], "a subject\n\nTask-Id: 1").unwrap();
            let date = text.lines().find_map(|line| line.rsplit_once("> ").map(|(_, date)| date)).unwrap();
            let git = git.clone().with("GIT_AUTHOR_DATE", date).with("GIT_COMMITTER_DATE", date);
            let git = match &author {
                CommitAuthor::Named { name, email } => {
                    git.with("GIT_AUTHOR_NAME", name).with("GIT_AUTHOR_EMAIL", email)
                }
                _ => git,
            };
            let args = ["commit-tree", &tree, "-p", &parent, "-m", "a subject\n\nTask-Id: 1"];
            let theirs = git.line(&args).await.unwrap();
            assert_eq!(git.line(&["cat-file", "commit", &theirs]).await.unwrap(), text.trim_end_matches('\n'));
        }
    }

    #[test]
    fn unusual_authors_are_left_to_git() {
        for (name, email) in [("a <b>", "c"), ("", "c"), ("a.", "c"), ("a\nb", "c"), ("a", " c")] {
            let author = CommitAuthor::Named { name: name.to_owned(), email: email.to_owned() };
            assert_eq!(text(&author, "t", &[], "m"), None, "{name:?} {email:?}");
        }
        assert_eq!(text(&CommitAuthor::Everloop, "t", &[], "a\0b"), None);
    }
}
