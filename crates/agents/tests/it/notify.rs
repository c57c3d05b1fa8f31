//! Mail against servers on this machine: a real one (aiosmtpd) for encryption, logins and what
//! arrives, and one of our own for all that a good server does not do: refusals, odd answers,
//! injections, floods.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use everloop_agents::channel::{Channel, Encryption, Mail, Receiver, ReceiverAccess, SecretSource, Server, Via};
use everloop_core::isolation::{CommandKind, Isolation, IsolationSpec, Places};
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Delivery, Undelivered};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

mod mail_server;

use mail_server::{MailServer, Security, TakenMail};

/// `\0me\0hunter-22-secret`, as AUTH PLAIN sends it.
const LOGIN: &str = "AG1lAGh1bnRlci0yMi1zZWNyZXQ=";
const PASSWORD: &str = "hunter-22-secret";

/// How the server behaves.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// TLS from the beginning.
    sealed: bool,
    /// It offers STARTTLS.
    starts: bool,
    /// It knows AUTH LOGIN only.
    old_login: bool,
    /// Its answer to DATA instead of taking the mail.
    refuses: Option<&'static str>,
    /// It sends one more line in the open, after STARTTLS.
    injects: bool,
    /// It answers EHLO with a line that never ends.
    floods: bool,
    /// Its greeting is no UTF-8.
    latin: bool,
}

/// Commands and mails of clients.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    mails: Vec<String>,
}

struct Mailroom {
    port: u16,
    heard: Arc<Mutex<Heard>>,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/api/certificates").join(name)
}

impl Mailroom {
    fn open(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let taken = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that does not trust the certificate hangs up; some tests are about that.
                serve(stream, manners, &taken).ok();
            }
        });
        Self { port, heard }
    }

    fn lines(&self) -> Vec<String> {
        self.heard.lock().expect("no test panics while it holds this").lines.clone()
    }

    fn mails(&self) -> Vec<String> {
        self.heard.lock().expect("no test panics while it holds this").mails.clone()
    }
}

fn sealed(stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(file("good.pem"))
        .and_then(Iterator::collect::<Result<_, _>>)
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).expect("they fit"));
    StreamOwned::new(ServerConnection::new(config).expect("a connection"), stream)
}

fn serve(stream: TcpStream, manners: Manners, heard: &Mutex<Heard>) -> std::io::Result<()> {
    if manners.sealed {
        return talk(&mut BufReader::new(sealed(stream)), manners, heard).map(drop);
    }
    let mut open = BufReader::new(stream);
    if talk(&mut open, manners, heard)? {
        let manners = Manners { starts: false, sealed: true, ..manners };
        talk(&mut BufReader::new(sealed(open.into_inner())), manners, heard)?;
    }
    Ok(())
}

/// One session; true when the client wants to go on encrypted.
fn talk<S: Read + Write>(line: &mut BufReader<S>, manners: Manners, heard: &Mutex<Heard>) -> std::io::Result<bool> {
    let say = |line: &mut BufReader<S>, text: &str| line.get_mut().write_all(format!("{text}\r\n").as_bytes());
    if !manners.starts || manners.sealed {
        // After STARTTLS there is no second greeting.
        let again = !heard.lock().expect("alive").lines.is_empty();
        if !again && manners.latin {
            line.get_mut().write_all(b"220 gr\xfc\xdfe\r\n")?;
        } else if !again {
            say(line, "220-mail.example\r\n220 hello")?;
        }
    } else {
        say(line, "220 mail.example")?;
    }
    loop {
        let mut text = String::new();
        if line.read_line(&mut text)? == 0 {
            return Ok(false);
        }
        let text = text.trim_end().to_owned();
        heard.lock().expect("alive").lines.push(text.clone());
        let word = text.split(' ').next().unwrap_or_default().to_owned();
        match word.as_str() {
            "EHLO" if manners.floods => loop {
                line.get_mut().write_all(&[b'2'; 4096])?;
            },
            "EHLO" => {
                let starts = if manners.starts { "250-STARTTLS\r\n" } else { "" };
                let ways = if manners.old_login { "LOGIN" } else { "PLAIN LOGIN" };
                say(line, &format!("250-mail.example\r\n{starts}250-AUTH {ways}\r\n250 8BITMIME"))?;
            }
            "STARTTLS" => {
                let more = if manners.injects { "\r\n250 injected" } else { "" };
                say(line, &format!("220 go on{more}"))?;
                return Ok(true);
            }
            "AUTH" if text == "AUTH LOGIN" => say(line, "334 VXNlcm5hbWU6")?,
            "bWU=" => say(line, "334 UGFzc3dvcmQ6")?,
            "AUTH" if text.ends_with(LOGIN) => say(line, "235 welcome")?,
            "aHVudGVyLTIyLXNlY3JldA==" => say(line, "235 welcome")?,
            "AUTH" => say(line, &format!("535 I do not know {text}"))?,
            "MAIL" | "RCPT" => say(line, "250 ok")?,
            "DATA" => {
                if let Some(no) = manners.refuses {
                    say(line, no)?;
                    continue;
                }
                say(line, "354 go ahead")?;
                let mut mail = String::new();
                loop {
                    let mut part = String::new();
                    line.read_line(&mut part)?;
                    if part == ".\r\n" {
                        break;
                    }
                    mail.push_str(part.strip_prefix('.').unwrap_or(&part));
                }
                heard.lock().expect("alive").mails.push(mail);
                say(line, "250 taken")?;
            }
            "QUIT" => return Ok(false),
            _ => say(line, "500 what?")?,
        }
    }
}

fn message() -> Delivery {
    Delivery {
        key: "1f-17-1".to_owned(),
        severity: Severity::Warning,
        title: "everloop #17: warning".to_owned(),
        text: "may I?\n.\n.hidden\nRCPT TO:<x@y>".to_owned(),
        tickets: vec![17],
        ..Delivery::default()
    }
}

struct Sender {
    encryption: Encryption,
    login: bool,
    ca: Option<&'static str>,
    password: &'static str,
}

impl Default for Sender {
    fn default() -> Self {
        Self { encryption: Encryption::Start, login: false, ca: Some("root.pem"), password: PASSWORD }
    }
}

impl Sender {
    fn send(&self, room: &Mailroom) -> Result<(), Undelivered> {
        self.send_to(room.port)
    }

    fn send_to(&self, port: u16) -> Result<(), Undelivered> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("password");
        std::fs::write(&path, self.password).expect("it can be written");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
        let login = self.login.then(|| ("me".to_owned(), SecretSource::File(path)));
        let server = Server { host: "localhost".to_owned(), port, encryption: self.encryption, login };
        let to = vec!["ops@example.com".to_owned(), "me@example.com".to_owned()];
        let mail = Mail { to, from: "loop@example.com".to_owned(), via: Via::Server(server) };
        let (channel, ca_file) = (Channel::Mail(mail), self.ca.map(file));
        let access = ReceiverAccess::default();
        let receiver = Receiver { name: "mail".to_owned(), channel, ca_file, dir: None, access };
        let places = Places {
            home: dir.path(),
            state: dir.path(),
            folder: dir.path(),
            env: &|_| None,
            secret_files: Vec::new(),
            own: Vec::new(),
            own_writable: Vec::new(),
        };
        let isolation = Isolation::of(&CommandKind::Delivery, &IsolationSpec::default(), &places);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(receiver.deliver(&message(), &isolation))
    }
}

#[test]
fn a_mail_arrives_as_it_was_written() {
    let room = Mailroom::open(Manners::default());
    Sender::default().send(&room).expect("it takes the mail");
    let mails = room.mails();
    assert_eq!(mails.len(), 1);
    let (head, body) = mails[0].split_once("\r\n\r\n").expect("a mail has a head");
    assert!(body.starts_with("may I?\r\n.\r\n.hidden\r\nRCPT TO:<x@y>\r\n"), "{body}");
    assert!(head.contains("Subject: everloop #17: warning\r\n") && head.contains("Message-ID: <1f-17-1@example.com>"));
    let said = room.lines();
    assert!(said.contains(&"MAIL FROM:<loop@example.com>".to_owned()), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.starts_with("RCPT")).count(), 2, "{said:?}");
}

#[test]
fn the_password_travels_encrypted_and_in_both_ways_of_old() {
    for manners in [
        Manners { starts: true, ..Manners::default() },
        Manners { starts: true, old_login: true, ..Manners::default() },
        Manners { sealed: true, ..Manners::default() },
    ] {
        let room = Mailroom::open(manners);
        let encryption = if manners.sealed { Encryption::Whole } else { Encryption::Start };
        Sender { encryption, login: true, ..Sender::default() }.send(&room).expect("it takes the mail");
        assert_eq!(room.mails().len(), 1);
        if manners.starts {
            let lines = room.lines();
            let sealed = lines.iter().position(|line| line == "STARTTLS").expect("it was sent");
            let login = lines.iter().position(|line| line.starts_with("AUTH")).expect("it was sent");
            assert!(sealed < login, "{lines:?}");
        }
    }
}

#[test]
fn whoever_is_not_trusted_gets_neither_mail_nor_password() {
    for (encryption, manners) in [
        (Encryption::Start, Manners { starts: true, ..Manners::default() }),
        (Encryption::Whole, Manners { sealed: true, ..Manners::default() }),
    ] {
        let room = Mailroom::open(manners);
        let stranger = Sender { encryption, login: true, ca: Some("stranger.pem"), ..Sender::default() };
        stranger.send(&room).expect_err("its certificate is not trusted");
        assert!(room.mails().is_empty() && !room.lines().iter().any(|line| line.starts_with("AUTH")));
    }
}

#[test]
fn what_was_said_before_the_encryption_is_forgotten() {
    let room = Mailroom::open(Manners { starts: true, injects: true, ..Manners::default() });
    Sender { login: true, ..Sender::default() }.send(&room).expect("the injected line answers nothing");
    assert_eq!(room.mails().len(), 1);
}

#[test]
fn a_refusal_for_now_is_another_than_one_for_good() {
    for (said, for_good) in [("451 come back later", false), ("554 no spam", true)] {
        let room = Mailroom::open(Manners { refuses: Some(said), ..Manners::default() });
        let refused = Sender::default().send(&room).expect_err("it refuses");
        assert_eq!(refused.refused.is_some(), for_good, "{said}");
        assert!(refused.why.contains(&said[4..]), "{}", refused.why);
    }
}

#[test]
fn a_wrong_password_is_told_without_it() {
    let room = Mailroom::open(Manners { starts: true, ..Manners::default() });
    let wrong = Sender { login: true, password: "another-secret-word", ..Sender::default() };
    let refused = wrong.send(&room).expect_err("it does not know us");
    assert!(refused.refused.is_some() && refused.why.contains("535"), "{}", refused.why);
    assert!(!refused.why.contains("another-secret") && !refused.why.contains("AG1lAGFub3RoZXI"), "{}", refused.why);
}

#[test]
fn a_flood_is_cut_off_and_odd_letters_lose_no_mail() {
    let room = Mailroom::open(Manners { floods: true, ..Manners::default() });
    let lost = Sender::default().send(&room).expect_err("no answer is that long");
    assert!(lost.refused.is_none() && lost.why.contains("more than 262144 bytes"), "{}", lost.why);
    let room = Mailroom::open(Manners { latin: true, ..Manners::default() });
    Sender::default().send(&room).expect("it takes the mail");
    assert_eq!(room.mails().len(), 1);
}

/// What a real server took when it was sent to so.
fn taken(security: Security, without: &[&str], sender: &Sender) -> TakenMail {
    let server = MailServer::start(security, &file("good.pem"), &file("server.key"), without);
    sender.send_to(server.port()).expect("it takes the mail");
    server.mail()
}

#[test]
fn a_real_server_takes_a_mail_as_it_was_written() {
    let mail = taken(Security::Plain, &[], &Sender::default());
    assert_eq!((mail.tls, mail.user, mail.from.as_str()), (None, None, "loop@example.com"));
    assert_eq!(mail.to, ["ops@example.com", "me@example.com"]);
    let (head, body) = mail.mail.split_once("\r\n\r\n").expect("a mail has a head");
    assert!(body.starts_with("may I?\r\n.\r\n.hidden\r\nRCPT TO:<x@y>\r\n"), "{body}");
    for line in [
        "Subject: everloop #17: warning",
        "Message-ID: <1f-17-1@example.com>",
        "To: ops@example.com, me@example.com",
        "Auto-Submitted: auto-generated",
        "X-Priority: 3",
    ] {
        assert!(head.lines().any(|l| l == line), "{line} is not in {head}");
    }
}

#[test]
fn a_real_server_sees_tls_and_a_login() {
    for (security, encryption) in [(Security::StartTls, Encryption::Start), (Security::Tls, Encryption::Whole)] {
        for without in [&[][..], &["PLAIN"], &["LOGIN"]] {
            let sender = Sender { encryption, login: true, ..Sender::default() };
            let mail = taken(security, without, &sender);
            assert_eq!((mail.tls.as_deref(), mail.user.as_deref()), (Some("TLSv1.3"), Some("me")), "{security:?}");
        }
    }
}

#[test]
fn a_real_server_gets_nothing_it_should_not_have() {
    for (security, encryption) in [(Security::StartTls, Encryption::Start), (Security::Tls, Encryption::Whole)] {
        let good = || Sender { encryption, login: true, ..Sender::default() };
        for (sender, refused) in [
            (Sender { ca: Some("stranger.pem"), ..good() }, false),
            (Sender { password: "another-secret-word", ..good() }, true),
            (Sender { login: false, ..good() }, true),
        ] {
            let server = MailServer::start(security, &file("good.pem"), &file("server.key"), &[]);
            let failed = sender.send_to(server.port()).expect_err("it must not take this");
            assert_eq!(failed.refused.is_some(), refused, "{}", failed.why);
            assert!(!failed.why.contains("another-secret"), "{}", failed.why);
            assert_eq!(server.rest(), Vec::<String>::new());
        }
        let other = MailServer::start(security, &file("elsewhere.pem"), &file("server.key"), &[]);
        good().send_to(other.port()).expect_err("its certificate is for another host");
        assert_eq!(other.rest(), Vec::<String>::new());
    }
}
