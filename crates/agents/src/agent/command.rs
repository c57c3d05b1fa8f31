//! Any command. Its words mean nothing to us, unless it speaks our own format from its first line on.

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

/// Believes a stream that begins with a record of ours. A command whose output merely contains one somewhere, because
/// an agent printed it, is not believed.
#[derive(Default)]
pub(super) enum CommandParser {
    /// Nothing was said yet.
    #[default]
    Silent,
    /// It speaks our format.
    Native,
    /// It does not.
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
