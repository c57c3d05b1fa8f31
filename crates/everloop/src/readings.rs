//! Verbs that read, for programs: the JSON that `--json` prints. A line here makes a verb a tool of
//! MCP (`mcp/tools.rs`) and a path of HTTP (`http/read.rs`).

use everloop_engine::error::Failure;
use everloop_engine::services::diff::{self, DiffDetail};
use everloop_engine::services::{ServiceContext, status, why};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::ui::paint::Paint;
use crate::ui::status::StatusStyle;
use crate::ui::{answers, to_json};

/// Lines are joined or cut nowhere in an answer to a program.
const WIDTH: usize = usize::MAX;

/// What a verb reads when a call names no loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    All,
    /// The loop of the session or the folder.
    Nearest,
}

/// A verb that reads.
pub struct Reading {
    pub name: &'static str,
    pub about: &'static str,
    pub unnamed: Unnamed,
    /// Calls the service; the word means a loop.
    pub read: fn(&ServiceContext, Option<&str>) -> Result<String, Failure>,
}

/// All of them.
pub const READINGS: &[Reading] = &[
    Reading {
        name: "status",
        about: "Loops, what they are doing, open tickets, and whether a supervisor runs.",
        unnamed: Unnamed::All,
        read: |context, word| json(&answers::status(&status::status(context, word)?, context.now())),
    },
    Reading {
        name: "why",
        about: "Why a loop is as it is: the rule that decided, what it looked at, and when that will change.",
        unnamed: Unnamed::Nearest,
        read: |context, word| json(&answers::why(&why::why(context, word)?, &plain(context))),
    },
    Reading {
        name: "diff",
        about: "What the work of a loop changes: its start, the last work that was kept, and the lines by file.",
        unnamed: Unnamed::Nearest,
        read: |context, word| json(&diff::diff(context, word, DiffDetail::Files)?),
    },
];

/// The same text that `--json` prints.
fn json(content: &impl Serialize) -> Result<String, Failure> {
    to_json(content, false)
}

fn plain(context: &ServiceContext) -> StatusStyle {
    StatusStyle { now: context.now(), zone: TimeZone::system(), paint: Paint::Off, width: WIDTH }
}
