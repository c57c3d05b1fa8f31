//! Any command. Its output has no meaning to everloop, unless it is in the native format from its
//! first line on.

use everloop_core::stream::AgentEvent;

use super::native;
use super::reader::{EventSink, Parse, ProcessEnd};
use super::{Invocation, Order};

/// `{prompt}` and `{prompt_file}` are replaced; with neither, the prompt arrives on standard input.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let file = order.prompt_file.display().to_string();
    let argv = &order.agent.argv;
    let by_argument = argv.iter().any(|a| a.contains("{prompt}") || a.contains("{prompt_file}"));
    Invocation {
        argv: argv.iter().map(|a| a.replace("{prompt_file}", &file).replace("{prompt}", order.prompt)).collect(),
        env: Vec::new(),
        stdin: (!by_argument).then(|| order.prompt_file.to_owned()),
    }
}

/// Accepts the native format only when the stream begins with such a record. A record further down
/// may have been printed by the agent itself and is ignored.
#[derive(Default)]
pub(super) enum CommandParser {
    /// No line was read yet.
    #[default]
    Silent,
    /// The first line was a native record.
    Native,
    /// The first line was anything else.
    Plain,
}

impl Parse for CommandParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        if matches!(self, CommandParser::Silent) {
            let ours = line.starts_with('{') && serde_json::from_str::<AgentEvent>(line).is_ok();
            *self = if ours { CommandParser::Native } else { CommandParser::Plain };
        }
        match self {
            CommandParser::Native => native::NativeParser.out(line, sink),
            CommandParser::Silent | CommandParser::Plain => {}
        }
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        match self {
            CommandParser::Native => native::NativeParser.end(end, sink),
            CommandParser::Silent | CommandParser::Plain => {}
        }
    }
}
