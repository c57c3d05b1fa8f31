//! One turn of everloop's own agent, in the process that the supervisor starts for it.

use std::io::{self, Read, Write};
use std::path::Path;

use everloop_agents::api::{self, ApiTurnEnd, ApiTurnOptions};

use crate::error::Failure;

/// A longer prompt was not written for a turn.
const LONGEST_PROMPT: u64 = 4 << 20;

/// Takes the turn with the prompt of a file, or of standard input; its records go to `out`.
pub fn turn(options: &ApiTurnOptions, prompt: Option<&Path>, out: &mut dyn Write) -> Result<ApiTurnEnd, Failure> {
    let prompt = read_prompt(prompt)?;
    let key = options.key_env.as_ref().and_then(|name| std::env::var(name).ok());
    Ok(api::run(options, key.as_deref(), &prompt, out))
}

fn read_prompt(file: Option<&Path>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let name = file.map_or("standard input".to_owned(), |f| f.display().to_string());
    let read = match file {
        Some(file) => std::fs::File::open(file).and_then(|f| f.take(LONGEST_PROMPT + 1).read_to_end(&mut bytes)),
        None => io::stdin().take(LONGEST_PROMPT + 1).read_to_end(&mut bytes),
    };
    read.map_err(|e| Failure::failed(format!("cannot read the prompt from `{name}`")).because(&e))?;
    if bytes.len() as u64 > LONGEST_PROMPT {
        return Err(Failure::failed(format!("the prompt in `{name}` is longer than {LONGEST_PROMPT} bytes")));
    }
    if bytes.trim_ascii().is_empty() {
        return Err(Failure::usage(format!("the prompt in `{name}` is empty")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
