//! Interactive agents in tmux panes, on a private server: start, capture, type, respawn, kill.
//!
//! Text for tmux is code: formats run shells, a trailing `;` ends a command, control characters
//! press keys. So no external text reaches tmux's command line; see [`SafeText`] for what may be
//! typed and `call` for how tmux is called. The result of a turn is not decided here.
//!
//! - `server`: the private server and its folder; `pane`: identity of a pane and its record on disk
//! - `start`, `end`: panes of everloop; `adopt`: panes that a person lends; `ready`: a pane's state
//!   before a turn
//! - `limit`: a vendor's limit on the screen, and when it is over
//! - `activity`: what its program does between turns; `usage`: what its session has used
//! - `typing`: the only way in; `screen`, [`detect`]: the screen and its meaning; `turn`: one
//!   prompt and its end

mod activity;
mod adopt;
mod call;
mod end;
mod error;
mod files;
mod group;
mod hint;
mod key;
mod limit;
mod pane;
mod quiet;
mod ready;
mod screen;
mod server;
mod session;
mod snapshot;
mod start;
mod state;
mod text;
mod turn;
mod typing;
mod usage;

pub use activity::PaneSample;
pub use adopt::PaneSelector;
pub use error::PaneError;
pub use key::PaneKey;
pub use pane::{Pane, PaneName, PaneOrigin, PaneProgram, PaneVariable, Program};
pub use quiet::ScreenQuiet;
pub use ready::PaneTarget;
pub use screen::{Colours, ScreenCapture};
pub use server::TmuxServer;
pub use session::{PaneSession, Status};
pub use state::{PaneView, State, composer, detect};
pub use text::SafeText;
pub use turn::{PaneNews, PaneTurn, PaneTurnEnd};
pub use typing::{Finish, Typed};
