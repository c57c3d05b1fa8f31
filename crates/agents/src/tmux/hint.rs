//! Hints for errors with panes: the next command.

use super::{PaneError, State};

impl PaneError {
    /// The next step, for errors that have one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PaneError::NoTmux => {
                "install it: `apt-get install tmux`, `dnf install tmux` or `brew install tmux`".to_owned()
            }
            PaneError::NoPane { others, .. } if others.is_empty() => {
                "there are none; start one: everloop pane start NAME -- COMMAND".to_owned()
            }
            PaneError::BadTarget { others, .. } if others.is_empty() => "that server has no panes".to_owned(),
            PaneError::NoPane { others, .. } | PaneError::BadTarget { others, .. } => {
                format!("there are: {}", others.join(", "))
            }
            PaneError::Taken { name } => {
                format!("take another name, `everloop pane respawn {name}`, or `everloop pane kill {name}` first")
            }
            PaneError::NotOurs { name, .. } => format!(
                "if it is to be used again: `everloop pane respawn {name}`; for a pane of your own tmux: \
                 `everloop pane kill {name}`, then `everloop pane adopt`"
            ),
            PaneError::NotIdle { name, state: State::Working } => {
                format!("type again when it is idle; `everloop pane key {name} escape` interrupts it")
            }
            PaneError::NotIdle { name, state: State::Limited { .. } } => {
                format!("`everloop pane read {name}` shows it; type again after the reset")
            }
            PaneError::NotIdle { name, .. } | PaneError::Unsent { name, .. } => format!(
                "`everloop pane read {name}` shows it; `everloop pane key {name} KEY…` or \
                 `everloop pane attach {name}` answers it"
            ),
            PaneError::BadKey { .. } => super::key::NAMES.to_owned(),
            PaneError::Dead { name } => {
                format!(
                    "`everloop pane read {name}` shows its last output, `everloop pane respawn {name}` starts it again"
                )
            }
            PaneError::Adopted { name } => {
                format!("start it again yourself, then `everloop pane kill {name}` and adopt it anew")
            }
            PaneError::InsideJob => "start or adopt panes from your own terminal or from the supervisor".to_owned(),
            PaneError::LongPath { .. } => "choose a shorter folder with --state-dir or EVERLOOP_STATE_DIR".to_owned(),
            PaneError::Damaged { path, .. } => format!("remove `{}` and start the pane again", path.display()),
            PaneError::Elsewhere { name, .. } => format!(
                "use --in-place in that folder, or let everloop start the program: `everloop pane kill {name}`, then \
                 `everloop pane start {name} -- COMMAND`"
            ),
            PaneError::Occupied { name, .. } => {
                format!("`everloop pane attach {name}` shows it; when it is idle the next turn moves it")
            }
            PaneError::TooOften { name, .. } => format!(
                "`everloop pane read {name}` shows its last output; `everloop pane respawn {name}` starts it and forgets the count"
            ),
            PaneError::Busy { .. } => "try again when it is done".to_owned(),
            PaneError::BadName { .. }
            | PaneError::BadProgram { .. }
            | PaneError::Io { .. }
            | PaneError::Refused { .. }
            | PaneError::Silent { .. } => return None,
        })
    }
}
