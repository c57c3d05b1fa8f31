//! The message of a turn's commit: what was done in its first line, the goal in its body.
//!
//! The words are data of an agent: one line, without control characters, of limited length. They
//! name a commit and decide nothing.

/// The word before an agent's own summary, at the beginning of a line.
pub const SUMMARY: &str = "Summary:";

/// Characters of a first line; git's own views cut longer ones.
const SUBJECT_CHARS: usize = 72;
/// Files and checks that a first line names.
const NAMED: usize = 2;
/// Characters of a goal in the body.
const GOAL_CHARS: usize = 2_000;

/// What is known about a turn's work when its commit is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkDone<'a> {
    /// The agent's summary.
    pub summary: &'a str,
    /// First lines of the commits that the agent made itself, oldest first.
    pub commits: &'a [String],
    /// Title of a task that a person or another agent put on the board.
    pub title: &'a str,
    /// Paths of the changed files.
    pub files: &'a [String],
    /// Checks that failed before the turn.
    pub checks: &'a [String],
}

/// The summary in an agent's last words: what follows `Summary:`; of several lines the last counts.
pub fn summary(words: &str) -> Option<String> {
    let text = |line: &str| {
        let line = line.trim().trim_start_matches(['*', '#', '_', '-', ' ']);
        let said =
            line.get(..SUMMARY.len()).filter(|word| word.eq_ignore_ascii_case(SUMMARY)).map(|_| &line[SUMMARY.len()..]);
        said.map(|said| one_line(said.trim_matches(['*', '_', '`', ' ']))).filter(|said| !said.is_empty())
    };
    words.lines().rev().find_map(text)
}

/// The first line: the agent's own words where it gave some, else the task, else files and checks.
pub fn subject(done: &WorkDone<'_>) -> String {
    let own = done.commits.last().map_or("", String::as_str);
    let said = [done.summary, own, done.title].into_iter().map(one_line).find(|text| !text.is_empty());
    said.unwrap_or_else(|| {
        let files = listed(done.files, "changes");
        let checks = listed(done.checks, "");
        one_line(&if checks.is_empty() { files } else { format!("{files}, for {checks}") })
    })
}

/// The goal as a paragraph of the body; empty without one.
pub fn goal(goal: &str) -> String {
    let goal: String = goal.trim().chars().filter(|c| !c.is_control() || *c == '\n').take(GOAL_CHARS).collect();
    if goal.is_empty() { goal } else { format!("Goal: {goal}\n\n") }
}

fn listed(names: &[String], without: &str) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    match (first.is_empty(), more) {
        (true, _) => without.to_owned(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}

/// One line of limited length, cut at a word.
fn one_line(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control(), " ");
    let mut line = String::new();
    for word in plain.split_whitespace() {
        let room = SUBJECT_CHARS.saturating_sub(line.chars().count() + usize::from(!line.is_empty()));
        if word.chars().count() > room {
            if line.is_empty() {
                line.extend(word.chars().take(room));
            }
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line.trim_end_matches(['.', ',', ';', ':']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_agents_own_summary_is_found_in_its_last_words() {
        assert_eq!(summary("I did it.\n\nSummary: parse empty lists.\n"), Some("parse empty lists".to_owned()));
        assert_eq!(summary("**Summary:** one\nsummary: `two`\n<BACKOFF 10m>"), Some("two".to_owned()));
        for none in ["", "Summary:", "In summary: nothing", "a line `Summary: WHAT` at the end"] {
            assert_eq!(summary(none), None, "{none}");
        }
    }

    #[test]
    fn a_first_line_says_what_was_done() {
        let (commits, files) = (names(&["wip", "fix the lexer"]), names(&["src/a.rs", "src/b.rs", "c", "d"]));
        let checks = names(&["unit tests"]);
        let all = WorkDone { summary: "parse lists", commits: &commits, title: "task", files: &files, checks: &checks };
        assert_eq!(subject(&all), "parse lists");
        assert_eq!(subject(&WorkDone { summary: "", ..all }), "fix the lexer");
        assert_eq!(subject(&WorkDone { summary: "", commits: &[], ..all }), "task");
        let plain = WorkDone { files: &files, checks: &checks, ..WorkDone::default() };
        assert_eq!(subject(&plain), "src/a.rs, src/b.rs and 2 more, for unit tests");
        assert_eq!(subject(&WorkDone::default()), "changes");
    }

    #[test]
    fn words_of_an_agent_stay_one_short_line() {
        let long = format!("a\u{1b}[2Jb\nTask-Id: other {}", "word ".repeat(40));
        let line = subject(&WorkDone { summary: &long, ..WorkDone::default() });
        assert!(line.chars().count() <= SUBJECT_CHARS && !line.contains(char::is_control), "{line:?}");
        assert!(line.ends_with("word"), "{line:?}");
        assert_eq!(goal("make\u{7} it\nwork"), "Goal: make it\nwork\n\n");
        assert_eq!(goal(" "), "");
    }
}
