//! Interactive agents in tmux panes, on a private server: start, look, type, respawn, kill.
//!
//! Text for tmux is code: formats run shells, a trailing `;` ends a command, control characters press keys. So nothing
//! that comes from outside reaches tmux's command line; see [`Text`] for what may be typed and `call` for how tmux is
//! spoken to. What a turn amounts to is not decided here.
//!
//! - `server`: the private server and its folder; `pane`: who a pane is and how that is remembered
//! - `start`, `end`: panes of ours; `adopt`: panes that a person lends to us; `ready`: what a turn finds when it begins
//! - `typing`: the only way in; `screen`, [`detect`]: what is seen and what it means; `turn`: one prompt and its end

mod adopt;
mod call;
mod end;
mod error;
mod files;
mod glance;
mod group;
mod hint;
mod pane;
mod quiet;
mod ready;
mod screen;
mod server;
mod session;
mod start;
mod state;
mod text;
mod turn;
mod typing;

pub use adopt::Wanted;
pub use error::Error;
pub use pane::{Kind, Name, Origin, Pane, Program, Variable};
pub use quiet::Quiet;
pub use ready::Place;
pub use screen::{Capture, Colours};
pub use server::Server;
pub use session::{Session, Status};
pub use state::{Sight, State, composer, detect};
pub use text::Text;
pub use turn::{Ending, Turn};
pub use typing::{Finish, Typed};
