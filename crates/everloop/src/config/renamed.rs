//! Keys that had another name before. An old name is a mistake with a hint that names the new one,
//! never a second way to write it.

/// The section, the name that a key had in it, and the name that it has now.
const RENAMED: [(&str, &str, &str); 24] = [
    ("guard", "gap", "min_gap"),
    ("guard", "slots", "max_parallel_turns"),
    ("guard", "turn_wall", "turn_timeout"),
    ("guard", "turn_silence", "turn_idle_timeout"),
    ("guard", "frosty_deaths", "cooldown_deaths"),
    ("guard", "frosty_window", "cooldown_window"),
    ("guard", "frosty_cooldown", "cooldown_first"),
    ("guard", "frosty_cap", "cooldown_cap"),
    ("guard", "frosty_young", "cooldown_young"),
    ("guard", "willy_cooldowns", "freeze_cooldowns"),
    ("guard", "willy_window", "freeze_window"),
    ("guard", "willy_freeze", "freeze_time"),
    ("guard", "willy_canary", "freeze_canary"),
    ("guard", "willy_relapse", "freeze_relapse"),
    ("guard", "willy_relapse_canary", "freeze_relapse_canary"),
    ("agent", "cheap", "free"),
    ("agent", "wire", "api_format"),
    ("hook", "holds", "max_holds"),
    ("hook", "patience", "check_timeout"),
    ("hook", "window", "context_tokens"),
    ("guardian", "shrink", "max_shrink_percent"),
    ("notify", "min", "min_severity"),
    ("notify", "quiet", "quiet_hours"),
    ("completion", "appears", "file"),
];

/// The name that a key of the section at `place` (`loop.NAME.guard`, `agent.NAME`, `[notify]`) has
/// now.
pub fn new_name(place: &str, key: &str) -> Option<&'static str> {
    let parts: Vec<&str> = place.trim_matches(['[', ']']).split('.').collect();
    let section = match parts.as_slice() {
        ["loop", _, "guard"] | ["defaults", "guard"] => "guard",
        [outer, ..] => outer,
        [] => return None,
    };
    let row = RENAMED.iter().find(|(of, old, _)| *of == section && *old == key)?;
    Some(row.2)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::read::{FileOwner, read};
    use super::*;
    use everloop_engine::diagnostic::SourceText;

    #[test]
    fn every_old_key_is_refused_with_its_new_name_and_its_line() {
        for (section, old, new) in RENAMED {
            let head = match section {
                "guard" => "[loop.a.guard]",
                "agent" => "[agent.bot]",
                "completion" => "[completion.x]",
                "notify" => "[[notify]]",
                whole => &format!("[{whole}]"),
            };
            let text = format!("# a file of an earlier version\n{head}\n{old} = 1\n");
            let (_, wrong) = read(&Arc::new(SourceText { name: "everloop.toml".to_owned(), text }), FileOwner::Project);
            let told = wrong.iter().find(|one| one.message.starts_with("unknown key")).expect(old);
            assert_eq!(told.place.as_ref().map(|place| (place.line, place.column)), Some((3, 1)), "{old}");
            assert_eq!(told.hint, Some(format!("this key is called `{new}` now")), "{old}");

            let text = format!("{head}\n{new} = []\n");
            let (_, wrong) = read(&Arc::new(SourceText { name: "everloop.toml".to_owned(), text }), FileOwner::Project);
            assert!(!wrong.iter().any(|one| one.message.starts_with("unknown key")), "{new} is a key: {wrong:?}");
        }
    }

    #[test]
    fn a_key_of_another_section_keeps_its_name() {
        assert_eq!(new_name("loop.guard", "gap"), None, "a loop may be called `guard`");
        assert_eq!(new_name("loop.guard.guard", "gap"), Some("min_gap"));
        assert_eq!(new_name("agent.guard", "window"), None);
        assert_eq!(new_name("[loop.a.monitor]", "window"), None);
    }
}
