//! The address of a hub: its settings of TLS, which kind of door it is, and how it is shown without
//! its secrets.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};

use crate::Error;

/// The address of a hub. Shown (`Display`, `Debug`) without password.
#[derive(Clone)]
pub struct Url {
    pub(super) config: Config,
    pub(super) trust: TlsMode,
    /// The person accepts a server whose identity is not verified.
    unverified: bool,
    shown: String,
}

/// Whether the connection is encrypted and which certificate the server needs; the names are those
/// of libpq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// The connection is never encrypted.
    Disable,
    /// Encrypted if the server can, with any certificate.
    Prefer,
    /// Encrypted, with any certificate.
    Require,
    /// Encrypted, and its certificate is of an authority that we trust.
    VerifyCa(Roots),
    /// The same, and the certificate is for this host.
    VerifyFull(Roots),
}

/// Which authorities are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// Those of this machine.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// Which door to the database an address leads to, as far as its text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Supabase's pooler in transaction mode (port 6543).
    SupabaseTransaction,
    /// Supabase's pooler in session mode (port 5432 of the pooler's host).
    SupabaseSession,
    /// Supabase's database itself.
    SupabaseDirect,
    /// Nothing that everloop knows by name.
    Plain,
}

impl Door {
    /// In words; `None` for what is not known by name.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Door::SupabaseTransaction => Some("Supabase, transaction pooler (port 6543)"),
            Door::SupabaseSession => Some("Supabase, session pooler (port 5432 of the pooler)"),
            Door::SupabaseDirect => Some("Supabase, direct connection (port 5432)"),
            Door::Plain => None,
        }
    }
}

impl Url {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`.
    ///
    /// `sslmode` and `sslrootcert` mean what they mean to libpq; `sslrootcert=system` names the
    /// roots of this machine, which is also what `verify-ca` and `verify-full` use without one.
    /// `channel_binding` is `disable`, `prefer` (without one) or `require`; `require` needs TLS, so
    /// `sslmode=prefer` then means `sslmode=require`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::BadUrl { why: why.to_owned() };
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(bad("it does not begin with `postgres://`"));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut kept = Vec::new();
        let (mut mode, mut roots, mut binding) = ("prefer".to_owned(), None, ChannelBinding::Prefer);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sslmode", value) => value.clone_into(&mut mode),
                ("channel_binding", value) => {
                    binding = channel_binding(value)
                        .ok_or_else(|| bad("`channel_binding` is none of `disable`, `prefer`, `require`"))?;
                }
                ("sslrootcert", value) => roots = Some(decoded(value).ok_or_else(|| bad("`sslrootcert` is no text"))?),
                // Keys that other programs put there for themselves.
                ("pgbouncer" | "connection_limit" | "pool_timeout" | "supa", _) => {}
                _ => kept.push(pair),
            }
        }
        let bare = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        // The parser's message names the key that it does not know, never a value.
        let mut config: Config = bare.parse().map_err(|e| bad(&chain(&e)))?;
        if config.get_hosts().is_empty() {
            return Err(bad("it names no host"));
        }
        let trust = TlsMode::named(&mode, roots)
            .ok_or_else(|| bad("`sslmode` is none of `disable`, `prefer`, `require`, `verify-ca`, `verify-full`"))?;
        let bound = binding == ChannelBinding::Require;
        config.channel_binding(binding).ssl_mode(match trust {
            TlsMode::Disable if bound => {
                return Err(bad("`channel_binding=require` needs TLS, and `sslmode=disable` forbids it"));
            }
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer if !bound => SslMode::Prefer,
            TlsMode::Prefer | TlsMode::Require | TlsMode::VerifyCa(_) | TlsMode::VerifyFull(_) => SslMode::Require,
        });
        let shown = shown(&config);
        Ok(Self { config, trust, unverified: false, shown })
    }

    /// Which door it leads to.
    pub fn door(&self) -> Door {
        let hosts = self.config.get_hosts().iter().zip(self.config.get_ports().iter().chain(std::iter::repeat(&5432)));
        let tcp = hosts.filter_map(|(host, port)| match host {
            Host::Tcp(name) => Some((name.as_str(), *port)),
            Host::Unix(_) => None,
        });
        for (name, port) in tcp {
            match (name.ends_with(".pooler.supabase.com"), port) {
                (true, 6543) => return Door::SupabaseTransaction,
                (true, _) => return Door::SupabaseSession,
                (false, 6543) if name.ends_with(".supabase.co") => return Door::SupabaseTransaction,
                (false, _) if name.ends_with(".supabase.co") => return Door::SupabaseDirect,
                (false, _) => {}
            }
        }
        Door::Plain
    }

    /// Whether everything stays on this machine.
    pub fn is_local(&self) -> bool {
        self.config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
        })
    }

    /// Accepts a server beyond this machine whose identity is not verified, as the person said.
    #[must_use]
    pub fn accept_unverified(self) -> Self {
        Self { unverified: true, ..self }
    }

    /// Refuses a server that anything between it and this machine could pose as.
    pub(super) fn safe(&self) -> Result<(), Error> {
        let safe = self.is_local() || self.is_verified() || self.unverified;
        if safe { Ok(()) } else { Err(Error::Unverified { url: self.shown.clone() }) }
    }

    /// Whether the certificate has to be for this host.
    pub fn is_verified(&self) -> bool {
        matches!(self.trust, TlsMode::VerifyFull(_))
    }
}

impl TlsMode {
    fn named(mode: &str, roots: Option<String>) -> Option<Self> {
        let given = roots.map(|path| if path == "system" { Roots::System } else { Roots::File(path.into()) });
        Some(match (mode, given) {
            ("disable", _) => TlsMode::Disable,
            ("prefer" | "allow", _) => TlsMode::Prefer,
            // As libpq does it: a named root is to be checked.
            ("require", Some(roots @ Roots::File(_))) => TlsMode::VerifyCa(roots),
            ("require", Some(Roots::System)) => TlsMode::VerifyFull(Roots::System),
            ("require", None) => TlsMode::Require,
            ("verify-ca", given) => TlsMode::VerifyCa(given.unwrap_or(Roots::System)),
            ("verify-full", given) => TlsMode::VerifyFull(given.unwrap_or(Roots::System)),
            _ => return None,
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({})", self.shown)
    }
}

fn channel_binding(value: &str) -> Option<ChannelBinding> {
    match value {
        "disable" => Some(ChannelBinding::Disable),
        "prefer" => Some(ChannelBinding::Prefer),
        "require" => Some(ChannelBinding::Require),
        _ => None,
    }
}

/// Put together anew from what may be seen, so that nothing else can slip through.
fn shown(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
    format!("postgres://{user}{}:{port}{database}", hosts.join(","))
}

/// A value of the query as text; `None` for bytes that are no UTF-8.
fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// An error and what lies behind it, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn no_form_shows_the_password() {
        let texts = [
            "postgres://ann:s3cret@db.example.com:5433/loops?sslmode=require",
            "postgresql://ann:s3cret@db.example.com/loops?password=s3cret",
            "postgres://ann@db.example.com/loops?password=s3cret&pgbouncer=true",
            "postgres:///loops?host=db.example.com&user=ann&password=s3cret",
        ];
        for text in texts {
            let url = parse(text);
            let seen = format!("{url} {url:?}");
            assert!(!seen.contains("s3cret"), "{seen}");
            assert!(seen.contains("ann@db.example.com") && seen.contains("/loops"), "{seen}");
        }
        for text in ["mysql://u:s3cret@h/d", "postgres://u:s3cret@h/d?nonsense=s3cret", "postgres://u:s3cret@h:port/d"]
        {
            let error = Url::parse(text).unwrap_err();
            assert!(!chain(&error).contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_mode_means_what_it_means_to_libpq() {
        let trust = |query: &str| parse(&format!("postgres://h/d{query}")).trust;
        let file = || Roots::File("/a b.pem".into());
        assert_eq!(trust(""), TlsMode::Prefer);
        assert_eq!(trust("?sslmode=disable"), TlsMode::Disable);
        assert_eq!(trust("?sslmode=require"), TlsMode::Require);
        assert_eq!(trust("?sslmode=require&sslrootcert=/a%20b.pem"), TlsMode::VerifyCa(file()));
        assert_eq!(trust("?sslmode=verify-ca"), TlsMode::VerifyCa(Roots::System));
        assert_eq!(trust("?sslrootcert=%2Fa%20b.pem&sslmode=verify-full"), TlsMode::VerifyFull(file()));
        assert_eq!(trust("?sslmode=verify-full&sslrootcert=system"), TlsMode::VerifyFull(Roots::System));
        assert!(Url::parse("postgres://h/d?sslmode=maybe").is_err());
        assert!(Url::parse("postgres:///d").is_err(), "no host");
    }

    #[test]
    fn channel_binding_means_what_it_means_to_libpq() {
        let config = |query: &str| parse(&format!("postgres://h/d{query}")).config;
        let both = |query: &str| (config(query).get_channel_binding(), config(query).get_ssl_mode());
        assert_eq!(both(""), (ChannelBinding::Prefer, SslMode::Prefer));
        assert_eq!(both("?channel_binding=prefer&sslmode=disable"), (ChannelBinding::Prefer, SslMode::Disable));
        assert_eq!(both("?channel_binding=disable&sslmode=require"), (ChannelBinding::Disable, SslMode::Require));
        assert_eq!(both("?channel_binding=require"), (ChannelBinding::Require, SslMode::Require), "it needs TLS");
        for bad in ["?channel_binding=require&sslmode=disable", "?channel_binding=maybe", "?channel_binding"] {
            let error = Url::parse(&format!("postgres://h/d{bad}")).unwrap_err();
            assert!(error.to_string().contains("channel_binding"), "{error}");
        }
    }

    #[test]
    fn doors_of_supabase_are_known() {
        let door = |host: &str| parse(&format!("postgres://u:p@{host}/postgres")).door();
        assert_eq!(door("db.abcdefgh.supabase.co"), Door::SupabaseDirect);
        assert_eq!(door("db.abcdefgh.supabase.co:6543"), Door::SupabaseTransaction);
        assert_eq!(door("aws-0-eu-central-1.pooler.supabase.com:6543"), Door::SupabaseTransaction);
        assert_eq!(door("aws-0-eu-central-1.pooler.supabase.com:5432"), Door::SupabaseSession);
        assert_eq!(door("localhost:6543"), Door::Plain);
        assert!(parse("postgres://127.0.0.1/d").is_local() && parse("postgres://[::1]/d").is_local());
        assert!(!parse("postgres://db.example.com/d").is_local());
        assert!(!parse("postgres://127.0.0.1,db.example.com/d").is_local(), "one of two is beyond");
    }

    #[test]
    fn a_hub_beyond_this_machine_has_to_be_verified_unless_the_person_says_otherwise() {
        let safe = |text: &str| parse(text).safe().is_ok();
        for mode in ["", "?sslmode=require", "?sslmode=verify-ca", "?sslmode=disable", "?channel_binding=require"] {
            let url = format!("postgres://u:s3cret@db.example.com/d{mode}");
            let error = parse(&url).safe().unwrap_err().to_string();
            assert!(error.contains("db.example.com") && !error.contains("s3cret"), "{error}");
            assert!(parse(&url).accept_unverified().safe().is_ok());
        }
        assert!(safe("postgres://db.example.com/d?sslmode=verify-full") && safe("postgres://localhost/d"));
        assert!(safe("postgres:///d?host=/run/postgresql"));
    }
}
