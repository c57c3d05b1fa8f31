//! The hidden part `everloop __api`: everloop's own agent, started as a job by the supervisor.
//! Reads its command line; the rest is in `everloop_agents::api`.
//!
//! Not a verb, so that it stays out of the help, the manual and the completions; like the shim it
//! is recognised by its first argument.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use everloop_agents::api::{API_ARG, ApiFormat, ApiTurnEnd, ApiTurnOptions, Timeouts, usual_prices};
use everloop_core::prices::Prices;
use everloop_core::spec::Permission;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::api as service;

use crate::ui::{Format, Ui};

/// everloop's own agent: one turn with a model, reported as JSON lines.
#[derive(Debug, Parser)]
#[command(name = API_ARG, disable_version_flag = true)]
struct Args {
    /// The API format of the other side; journals of earlier versions name the flag `--wire`
    #[arg(long, alias = "wire", value_enum, default_value_t = WireName::Messages)]
    api_format: WireName,

    /// Address of the API [default: its vendor]
    #[arg(long, value_name = "URL")]
    base: Option<String>,

    /// Name of the model
    #[arg(long, value_name = "NAME")]
    model: String,

    /// The variable that holds the key; empty for servers that want none [default: the vendor's own
    /// name for it]
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,

    /// A PEM file of certificates that are trusted besides those of this machine
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// File with the prompt [default: standard input]
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,

    /// The session to continue
    #[arg(long, value_name = "ID", requires = "state_dir")]
    resume: Option<String>,

    /// Folder in which sessions are kept
    #[arg(long, alias = "state", value_name = "DIR")]
    state_dir: PathBuf,

    /// Requests after which the turn is ended
    #[arg(long, value_name = "N", default_value_t = ApiTurnOptions::MAX_REQUESTS)]
    max_requests: u32,

    /// Most tokens of a single answer
    #[arg(long, value_name = "N", default_value_t = ApiTurnOptions::MAX_OUTPUT_TOKENS)]
    max_output_tokens: u32,

    /// Tokens that fit into the model's context [default: as known of the model]
    #[arg(long, value_name = "N")]
    context_window: Option<u64>,

    /// Spending limit of the turn, in millionths of a dollar
    #[arg(long, value_name = "N")]
    left_microusd: Option<u64>,

    /// Tokens that this turn may use
    #[arg(long, value_name = "N")]
    left_tokens: Option<u64>,

    /// Dollars for a million tokens read
    #[arg(long, value_name = "USD", value_parser = microusd, requires = "price_out")]
    price_in: Option<u64>,

    /// Dollars for a million tokens written
    #[arg(long, value_name = "USD", value_parser = microusd, requires = "price_in")]
    price_out: Option<u64>,

    /// Dollars for a million tokens read from a cache [default: as usual with the vendor]
    #[arg(long, value_name = "USD", value_parser = microusd, requires = "price_in")]
    price_cached: Option<u64>,

    /// Dollars for a million tokens put into a cache [default: as usual with the vendor]
    #[arg(long, value_name = "USD", value_parser = microusd, requires = "price_in")]
    price_cache_write: Option<u64>,

    /// Permissions of the model
    #[arg(long, value_enum, default_value_t = PermissionName::Edits)]
    permission: PermissionName,

    /// Prefix of a command that it may run although it may only edit; can be given several times
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    allow: Vec<String>,

    /// Milliseconds to wait for the head of an answer
    #[arg(long, value_name = "MS", default_value_t = millis(Timeouts::default().first_byte))]
    first_byte_ms: u64,

    /// Milliseconds to wait for the next piece of an answer
    #[arg(long, value_name = "MS", default_value_t = millis(Timeouts::default().idle))]
    idle_ms: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WireName {
    Messages,
    Responses,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PermissionName {
    Edits,
    Full,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Parses dollars, as price lists write them.
fn microusd(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    // A million dollars for a million tokens: anything above is another unit.
    if !(0.0..=1e6).contains(&dollars) {
        return Err("not between 0 and 1000000".to_owned());
    }
    Ok((dollars * 1e6).round() as u64)
}

impl Args {
    fn into_options(self, workspace: PathBuf) -> ApiTurnOptions {
        let wire = match self.api_format {
            WireName::Messages => ApiFormat::Messages,
            WireName::Responses => ApiFormat::Responses,
        };
        let defaults = ApiTurnOptions::new(wire, self.model, workspace, self.state_dir);
        let prices = self.price_in.zip(self.price_out).map(|(input, output)| {
            let usual = usual_prices(wire, input, output);
            Prices {
                cache_read: self.price_cached.unwrap_or(usual.cache_read),
                cache_write: self.price_cache_write.unwrap_or(usual.cache_write),
                ..usual
            }
        });
        ApiTurnOptions {
            base: self.base.unwrap_or(defaults.base),
            key_env: match self.key_env {
                Some(name) => Some(name).filter(|n| !n.is_empty()),
                None => defaults.key_env,
            },
            ca_file: self.ca_file.map(at_home),
            resume: self.resume,
            max_requests: self.max_requests,
            max_output_tokens: self.max_output_tokens,
            context_window: self.context_window.unwrap_or(defaults.context_window),
            left_microusd: self.left_microusd,
            left_tokens: self.left_tokens,
            prices,
            permission: match self.permission {
                PermissionName::Edits => Permission::Edits,
                PermissionName::Full => Permission::Full,
            },
            allow: self.allow,
            timeouts: Timeouts {
                first_byte: Duration::from_millis(self.first_byte_ms),
                idle: Duration::from_millis(self.idle_ms),
                ..defaults.timeouts
            },
            wire,
            model: defaults.model,
            workspace: defaults.workspace,
            state_dir: defaults.state_dir,
        }
    }
}

/// Expands `~/x`, as everywhere in everloop's files.
fn at_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    }
}

/// Takes one turn in the current folder; `args` is everything after the name of this part.
pub fn api(args: impl Iterator<Item = OsString>) -> Code {
    let args = match Args::try_parse_from(std::iter::once(OsString::from(API_ARG)).chain(args)) {
        Ok(args) => args,
        Err(error) => {
            // There is no other way to report that stderr is gone.
            error.print().ok();
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    match turn(args, &mut io::stdout().lock()) {
        Ok(ApiTurnEnd::Finished) => Code::Ok,
        Ok(ApiTurnEnd::Short) => Code::Failed,
        Err(failure) => {
            Ui::new(Format::Text).failure(&failure);
            failure.code
        }
    }
}

fn turn(args: Args, out: &mut dyn Write) -> Result<ApiTurnEnd, Failure> {
    let prompt_file = args.prompt_file.clone();
    let options = args.into_options(std::env::current_dir()?);
    service::turn(&options, prompt_file.as_deref(), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(flags: &[&str]) -> Result<ApiTurnOptions, clap::Error> {
        let args = Args::try_parse_from(std::iter::once(API_ARG).chain(flags.iter().copied()))?;
        Ok(args.into_options(PathBuf::from("/workspace")))
    }

    #[test]
    fn the_least_that_must_be_said_is_model_and_place() {
        let least = options(&["--state", "/state", "--model", "m"]).expect("the supervisor gives this much");
        assert_eq!(least, ApiTurnOptions::new(ApiFormat::Messages, "m", "/workspace".into(), "/state".into()));
        assert!(options(&["--model", "m"]).is_err() && options(&["--state-dir", "/s"]).is_err());
    }

    #[test]
    fn every_flag_arrives() {
        let flags = "--wire responses --base http://localhost:1 --model m --key-env K --state-dir /s --resume r \
            --max-requests 1 --max-output-tokens 2 --context-window 3 --left-microusd 4 --left-tokens 7 --price-in 2.5 --price-out 10 \
            --price-cached 0.25 --permission full --allow make --allow --version --first-byte-ms 5 --idle-ms 6 \
            --ca-file /etc/own.pem";
        let all = options(&flags.split_whitespace().collect::<Vec<_>>()).expect("all flags go together");
        assert_eq!(
            (all.wire, all.base.as_str(), all.key_env.as_deref()),
            (ApiFormat::Responses, "http://localhost:1", Some("K"))
        );
        let prices = Prices { input: 2_500_000, output: 10_000_000, cache_read: 250_000, cache_write: 2_500_000 };
        assert_eq!((all.prices, all.left_microusd, all.left_tokens), (Some(prices), Some(4), Some(7)));
        assert_eq!((all.max_requests, all.max_output_tokens, all.context_window), (1, 2, 3));
        assert_eq!(
            (all.permission, all.allow.as_slice()),
            (Permission::Full, &["make".to_owned(), "--version".to_owned()][..])
        );
        assert_eq!((all.timeouts.first_byte, all.timeouts.idle), (Duration::from_millis(5), Duration::from_millis(6)));
        assert_eq!(all.resume.as_deref(), Some("r"));
        assert_eq!(all.ca_file, Some(PathBuf::from("/etc/own.pem")));
        assert_eq!(options(&["--state", "/s", "--model", "m", "--key-env", ""]).expect("no key").key_env, None);
        for wrong in ["--price-in=1", "--price-in=x", "--wire=fax", "--permission=all"] {
            assert!(options(&["--state", "/s", "--model", "m", wrong]).is_err(), "{wrong}");
        }
    }
}
