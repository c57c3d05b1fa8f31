//! One GET without any credential, for those who only want to know whether something changed.

use std::io::Read;
use std::time::Duration;

use ureq::http::Uri;

use crate::web::{quiet, tls};

/// More of a body is not read.
const BODY: u64 = 1 << 20;

/// What an address answers.
pub struct Got {
    /// The status.
    pub status: u16,
    /// What the server calls this version of it; empty if it does not say.
    pub etag: String,
    /// The beginning of its body.
    pub body: Vec<u8>,
}

/// Asks once. A redirect is an answer like any other: nobody is followed to where no one pointed.
pub fn get(url: &str, within: Duration) -> Result<Got, String> {
    let bad = |why: &str| format!("the address `{}` {why}", super::clip(url));
    let uri: Uri = url.trim().parse().map_err(|_| bad("cannot be read"))?;
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(bad("must name a host and no password"));
    }
    let config = quiet().max_redirects_will_error(false).timeout_global(Some(within));
    let config = match uri.scheme_str() {
        Some("https") => config.tls_config(tls(None)?),
        Some("http") => config,
        _ => return Err(bad("is neither https nor http")),
    };
    let cannot = |e: &dyn std::fmt::Display| bad(&format!("gives no answer: {e}"));
    let agent = config.build().new_agent();
    let (head, body) = agent.get(uri).call().map_err(|e| cannot(&e))?.into_parts();
    let etag = head.headers.get("etag").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut bytes = Vec::new();
    body.into_reader().take(BODY).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    Ok(Got { status: head.status.as_u16(), etag, body: bytes })
}
