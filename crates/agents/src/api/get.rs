//! One GET without any credential, for monitors that only compare.

use std::time::Duration;

use crate::http_client::{Access, Address, BadAddress, HttpClient, Timeouts, header_of, read_body};

/// More of a body is not read.
const BODY: u64 = 1 << 20;

/// The response of an address.
pub struct Got {
    pub status: u16,
    /// The server's name for this version; empty without one.
    pub etag: String,
    /// The beginning of its body.
    pub body: Vec<u8>,
}

/// Sends one request. A redirect is an answer like any other: it is not followed.
pub fn get(url: &str, within: Duration) -> Result<Got, String> {
    let bad = |why: &str| format!("the address `{}` {why}", super::clip(url));
    let address = Address::parse(url, Access::Public).map_err(|e| match e {
        BadAddress::Unreadable => bad("cannot be read"),
        BadAddress::NoHost | BadAddress::Password => bad("must name a host and no password"),
        BadAddress::Unencrypted | BadAddress::Scheme => bad("is neither https nor http"),
    })?;
    let client = HttpClient::new(&address, None, Timeouts::Whole(within))?;
    let cannot = |e: &dyn std::fmt::Display| bad(&format!("gives no answer: {e}"));
    let (head, body) = client.get(&address).map_err(|e| cannot(&e))?.into_parts();
    let etag = header_of(&head.headers, "etag").to_owned();
    let mut bytes = Vec::new();
    read_body(body, BODY, &mut bytes).map_err(|e| cannot(&e))?;
    Ok(Got { status: head.status.as_u16(), etag, body: bytes })
}
