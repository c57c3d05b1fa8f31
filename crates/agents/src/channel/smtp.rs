//! Hands a mail to a server with `lettre`. Owns what the library leaves open: which encryption is
//! demanded, a deadline for the whole delivery, and a cap on what a server may send. A password
//! never travels unencrypted beyond this machine.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use everloop_core::outbound::{Delivery, Refusal, Undelivered};
use everloop_core::time::human;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt, Starttls};
use lettre::transport::smtp::extension::ClientId;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::mail::{Mail, address};
use super::secret::{SecretSource, without};
use crate::http_client::{is_loopback, trusted};

mod stream;

use stream::CappedStream;

/// All of it; a server that is slower is tried again later.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that has the mail gets this long to answer QUIT.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);
/// A name with more addresses than these is no mail server.
const MAX_ADDRESSES: usize = 4;
/// What is shown of an answer.
const SHOWN_CHARS: usize = 200;

/// A server that takes mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: u16,
    /// How the connection is encrypted.
    pub encryption: Encryption,
    /// User name and password.
    pub login: Option<(String, SecretSource)>,
}

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// From the beginning.
    Whole,
    /// After STARTTLS, which has to be offered; a server on this machine need not.
    Start,
}

pub(super) fn hand_over(
    server: &Server,
    ca: Option<&Path>,
    mail: &Mail,
    message: &Delivery,
) -> Result<(), Undelivered> {
    let password = server.login.as_ref().map(|(_, secret)| secret.value()).transpose()?;
    let login = server.login.as_ref().map(|(user, _)| (user.as_str(), password.as_deref().unwrap_or_default()));
    let done = in_time(&Attempt { server, ca, login, mail, message }, DELIVERY_TIMEOUT);
    // A server may repeat what was sent to it, in the form in which it was sent.
    let forms = |(user, password): (&str, &str)| {
        [BASE64.encode(password), BASE64.encode(format!("\0{user}\0{password}")), password.to_owned()]
    };
    let hidden: Vec<String> = login.into_iter().flat_map(forms).collect();
    done.map_err(|e| without(&hidden, e))
}

/// One attempt with all it needs.
struct Attempt<'a> {
    server: &'a Server,
    ca: Option<&'a Path>,
    /// User and password.
    login: Option<(&'a str, &'a str)>,
    mail: &'a Mail,
    message: &'a Delivery,
}

/// Waits in this thread, but not longer than the deadline; a name that is still being resolved then
/// does not hold it up.
fn in_time(attempt: &Attempt<'_>, within: Duration) -> Result<(), Undelivered> {
    let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = built.map_err(|e| Undelivered::away(format!("no runtime could be started: {e}")))?;
    let done = runtime.block_on(async { timeout(within, attempt.run()).await });
    runtime.shutdown_background();
    done.unwrap_or_else(|_| Err(Undelivered::away(format!("it took longer than {}", human(within)))))
}

impl Attempt<'_> {
    async fn run(&self) -> Result<(), Undelivered> {
        let mail = self.mail.render(self.message)?.formatted();
        let mut server = self.connect().await?;
        if let Some((user, password)) = self.login {
            let login = Credentials::new(user.to_owned(), password.to_owned());
            server.auth(&[Mechanism::Plain, Mechanism::Login], &login).await.map_err(|e| failed("the login", &e))?;
        }
        // Not `send`: after a refusal it waits for an answer to QUIT, which may never come.
        let from = MailFrom::new(Some(address(&self.mail.from)?), Vec::new());
        server.command(from).await.map_err(|e| failed("MAIL", &e))?;
        for to in &self.mail.to {
            server.command(Rcpt::new(address(to)?, Vec::new())).await.map_err(|e| failed("RCPT", &e))?;
        }
        server.command(Data).await.map_err(|e| failed("DATA", &e))?;
        server.message(&mail).await.map_err(|e| failed("the mail", &e))?;
        // It has the mail; how it ends the connection does not matter.
        timeout(QUIT_TIMEOUT, server.quit()).await.ok();
        Ok(())
    }

    /// A connection over which a password may travel.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Undelivered> {
        let socket = self.dial().await?;
        if self.server.encryption == Encryption::Whole {
            return greet(CappedStream::new(self.seal(socket).await?)).await;
        }
        // Two handles of one socket: the first is dropped at STARTTLS, with the client that read
        // from it and with all that was received unencrypted. What is injected there answers
        // nothing.
        let (socket, open) = doubled(socket).map_err(|e| lost(&e))?;
        let mut server = greet(CappedStream::new(open)).await?;
        if server.can_starttls() {
            server.command(Starttls).await.map_err(|e| failed("STARTTLS", &e))?;
            drop(server);
            return greet(CappedStream::after_starttls(self.seal(socket).await?)).await;
        }
        if is_loopback(&self.server.host) {
            return Ok(server);
        }
        Err(refused("it offers no encryption (STARTTLS)".to_owned()))
    }

    async fn seal(&self, socket: TcpStream) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Undelivered> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted(self.ca).map_err(refused)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| refused(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(self.server.host.clone()).map_err(|e| refused(e.to_string()))?;
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.map_err(|e| lost(&e))
    }

    async fn dial(&self) -> Result<TcpStream, Undelivered> {
        let found = lookup_host((self.server.host.as_str(), self.server.port)).await;
        let addresses = found.map_err(|e| Undelivered::away(format!("its name cannot be resolved: {e}")))?;
        let mut last = "its name has no address".to_owned();
        for address in addresses.take(MAX_ADDRESSES) {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => last = e.to_string(),
                Err(_) => last = format!("no connection within {}s", CONNECT_TIMEOUT.as_secs()),
            }
        }
        Err(Undelivered::away(format!("it cannot be reached: {last}")))
    }
}

/// Reads the greeting and sends EHLO.
async fn greet(stream: impl AsyncTokioStream + 'static) -> Result<AsyncSmtpConnection, Undelivered> {
    let hello = ClientId::Domain("everloop.invalid".to_owned());
    let greeted = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello).await;
    greeted.map_err(|e| failed("EHLO", &e))
}

fn doubled(socket: TcpStream) -> io::Result<(TcpStream, TcpStream)> {
    let socket = socket.into_std()?;
    let other = socket.try_clone()?;
    Ok((TcpStream::from_std(socket)?, TcpStream::from_std(other)?))
}

/// What the library's error means for another attempt.
fn failed(what: &str, error: &Error) -> Undelivered {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let cause: String = cause.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
    match error.status() {
        Some(code) => {
            let why = format!("it answered {code} to {what}: {cause}");
            if error.is_permanent() { refused(why) } else { Undelivered::away(why) }
        }
        // Nothing that both sides know, such as a way to log in.
        None if error.is_client() => refused(format!("{what} is not possible: {cause}")),
        None if error.is_response() => Undelivered::away(format!("this is no SMTP: {cause}")),
        None => Undelivered::away(format!("the connection broke: {cause}")),
    }
}

fn lost(error: &io::Error) -> Undelivered {
    Undelivered::away(format!("the connection broke: {error}"))
}

/// Login, address or text: the code does not distinguish them.
fn refused(why: String) -> Undelivered {
    Undelivered::refused(why, Refusal::Access)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::super::mail::Via;
    use super::*;

    #[test]
    fn a_server_that_sends_a_letter_at_a_time_does_not_get_more_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let slow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client comes");
            // Until the client hangs up.
            while stream.write_all(b"2").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let server = Server { host: "127.0.0.1".to_owned(), port, encryption: Encryption::Start, login: None };
        let via = Via::Server(server.clone());
        let mail = Mail { to: vec!["a@b".to_owned()], from: "c@d".to_owned(), via };
        let message = Delivery { key: "k".to_owned(), ..Delivery::default() };
        let attempt = Attempt { server: &server, ca: None, login: None, mail: &mail, message: &message };
        let late = in_time(&attempt, Duration::from_millis(300)).expect_err("it never greets");
        assert!(late.refused.is_none() && late.why.contains("took longer"), "{}", late.why);
        slow.join().expect("it sees the end");
    }
}
