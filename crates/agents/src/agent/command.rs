//! Any command. Its words mean nothing to us, unless it speaks our own format from its first line on.

use everloop_core::stream::Said;

use super::native;
use super::reader::{End, Parse, Sink};
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
pub(super) enum Parser {
    /// Nothing was said yet.
    #[default]
    Silent,
    /// It speaks our format.
    Native,
    /// It does not.
    Plain,
}

impl Parse for Parser {
    fn out(&mut self, line: &str, sink: &mut Sink<'_>) {
        if matches!(self, Parser::Silent) {
            let ours = line.starts_with('{') && serde_json::from_str::<Said>(line).is_ok();
            *self = if ours { Parser::Native } else { Parser::Plain };
        }
        match self {
            Parser::Native => native::Parser.out(line, sink),
            Parser::Silent | Parser::Plain => {}
        }
    }

    fn end(&mut self, end: &End<'_>, sink: &mut Sink<'_>) {
        match self {
            Parser::Native => native::Parser.end(end, sink),
            Parser::Silent | Parser::Plain => {}
        }
    }
}
