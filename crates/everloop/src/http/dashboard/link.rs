//! How `everloop ui` gets a login link: a request to the supervisor's port, with the token of the
//! state folder.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use everloop_engine::error::Failure;
use everloop_engine::state_folder::StateFolder;
use serde_json::Value;

use super::LINK_PATH;

/// A supervisor on this machine answers at once, unless it is not there any more.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The answer is one line.
const MAX_BYTES: u64 = 64 << 10;

/// The address of a fresh login link.
pub fn login_link(home: &StateFolder) -> Result<String, Failure> {
    let away = || {
        Failure::away("no supervisor serves a dashboard for this state folder")
            .hint("start one: everloop up (and not with `--listen off`)")
    };
    let note: Option<Value> = std::fs::read(home.http()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let address = note.as_ref().and_then(|note| note["address"].as_str()).and_then(|text| text.parse().ok());
    let (Some(address), true) = (address, home.is_owned()) else { return Err(away()) };
    let token = std::fs::read_to_string(home.token()).map_err(|_| away())?;
    let answer = post(address, token.trim()).map_err(|e| away().because(&e))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let path = serde_json::from_str::<Value>(body).ok().and_then(|body| body["path"].as_str().map(str::to_owned));
    if let Some(path) = path {
        return Ok(format!("http://{address}{path}"));
    }
    let status = answer.lines().next().unwrap_or("nothing").to_owned();
    Err(Failure::failed(format!("the program on {address} gave no login link: {status}"))
        .hint("restart the supervisor: everloop down, everloop up"))
}

fn post(address: SocketAddr, token: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = format!(
        "POST {LINK_PATH} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}
