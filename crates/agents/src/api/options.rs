//! Configuration of the API agent. Owns the defaults and the reasons for them; the command line is
//! parsed elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use everloop_core::prices::Prices;
use everloop_core::spec::Permission;
use everloop_core::time::millis;
use serde::{Deserialize, Serialize};

use crate::prices;
use crate::redact::Secret;

/// The API format of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiFormat {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}

impl ApiFormat {
    /// The vendor's address.
    pub fn default_base(self) -> &'static str {
        match self {
            ApiFormat::Messages => "https://api.anthropic.com",
            ApiFormat::Responses => "https://api.openai.com",
        }
    }

    /// The variable from which the vendor's own tools read the key.
    pub fn default_key_env(self) -> &'static str {
        match self {
            ApiFormat::Messages => "ANTHROPIC_API_KEY",
            ApiFormat::Responses => "OPENAI_API_KEY",
        }
    }

    /// The last part of the address.
    pub(super) fn path(self) -> &'static str {
        match self {
            ApiFormat::Messages => "messages",
            ApiFormat::Responses => "responses",
        }
    }
}

/// Prices from the two published ones; the others as the vendor of this format derives them, rounded
/// up.
pub fn usual_prices(wire: ApiFormat, input: u64, output: u64) -> Prices {
    let (read_percent, write_percent) = match wire {
        ApiFormat::Messages => (10, 125),
        // Between 10 and 50 percent, by model: the highest, so that a budget is never overdrawn.
        ApiFormat::Responses => (50, 100),
    };
    let part = |percent: u64| input.saturating_mul(percent).div_ceil(100);
    Prices { input, output, cache_read: part(read_percent), cache_write: part(write_percent) }
}

/// How long each part of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the DNS lookup to the end of the TLS handshake.
    #[serde(with = "millis")]
    pub connect: Duration,
    /// From the request to the head of the response.
    #[serde(with = "millis")]
    pub first_byte: Duration,
    /// Between two chunks of the response.
    #[serde(with = "millis")]
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            // Both vendors respond to a streamed request at once, unless they are in trouble.
            first_byte: Duration::from_secs(120),
            // One vendor sends nothing while its models think; its own tool waits for as long.
            idle: Duration::from_secs(300),
        }
    }
}

/// One turn of the API agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiTurnOptions {
    pub wire: ApiFormat,
    /// Base URL of the vendor or of a compatible server.
    pub base: String,
    pub model: String,
    /// The variable that holds the key; `None` for servers without one.
    pub key_env: Option<String>,
    /// Certificates trusted in addition to those of this machine: a company's own root, for
    /// example.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The folder that the tools work in.
    pub workspace: PathBuf,
    /// Where sessions are kept.
    pub state_dir: PathBuf,
    /// The session to resume.
    pub resume: Option<String>,
    /// Requests after which a turn is ended.
    pub max_requests: u32,
    /// Bound of a single answer.
    pub max_output_tokens: u32,
    /// Tokens that fit into the model's context.
    pub context_window: u64,
    /// What the turn may cost, in millionths of a dollar, by its prices or else the list's.
    pub left_microusd: Option<u64>,
    /// Tokens that the turn may use.
    #[serde(default)]
    pub left_tokens: Option<u64>,
    /// Configured prices: with them dollars are reported.
    pub prices: Option<Prices>,
    pub permission: Permission,
    /// Prefixes of commands that the model may run under [`Permission::Edits`].
    pub allow: Vec<String>,
    pub timeouts: Timeouts,
}

impl ApiTurnOptions {
    /// Enough for a long turn of work, few enough that a model in a loop is noticed the same day.
    pub const MAX_REQUESTS: u32 = 50;
    /// Every current model can write this much at once; a whole file fits.
    pub const MAX_OUTPUT_TOKENS: u32 = 16_000;
    /// The smallest window among current models of both vendors, for models that the list lacks.
    pub const CONTEXT_WINDOW: u64 = 200_000;

    /// Options with every default.
    pub fn new(wire: ApiFormat, model: impl Into<String>, workspace: PathBuf, state_dir: PathBuf) -> Self {
        let model = model.into();
        Self {
            wire,
            base: wire.default_base().to_owned(),
            context_window: prices::context_of(&model).unwrap_or(Self::CONTEXT_WINDOW),
            model,
            key_env: Some(wire.default_key_env().to_owned()),
            ca_file: None,
            workspace,
            state_dir,
            resume: None,
            max_requests: Self::MAX_REQUESTS,
            max_output_tokens: Self::MAX_OUTPUT_TOKENS,
            left_microusd: None,
            left_tokens: None,
            prices: None,
            permission: Permission::default(),
            allow: Vec::new(),
            timeouts: Timeouts::default(),
        }
    }

    /// Secrets to remove from the output.
    pub(super) fn secret(&self, key: Option<&str>) -> Vec<Secret> {
        let name = self.key_env.as_deref().unwrap_or("key");
        // The name appears inside of JSON strings.
        let name = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(64).collect();
        key.map(|key| Secret { name, value: key.trim().as_bytes().to_vec() }).into_iter().collect()
    }
}
