//! Login links, which work once and for a minute, and the browsers that used one. Only digests of the
//! secrets are kept, in memory: after a restart a person logs in again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everloop_core::hex::hex;
use sha2::{Digest, Sha256};

/// A link is used at once or not at all.
const LINK_LIFE: Duration = Duration::from_secs(60);
/// Links that were requested and not used; an older one ends.
const MAX_LINKS: usize = 8;
/// A browser that was not seen for so long logs in again.
pub const IDLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Browsers of one person; of more the one that was not seen for longest logs in again.
const MAX_VISITORS: usize = 32;
/// Wrong codes in a minute. A code has 256 bits, so this is only for quiet logs.
const MAX_REFUSALS: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Links and visitors.
#[derive(Debug, Default)]
pub struct Logins(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    links: Vec<(String, Duration)>,
    visitors: Vec<Seen>,
    /// The beginning of a minute, and the wrong codes in it.
    refusals: (Duration, u32),
}

#[derive(Debug)]
struct Seen {
    visitor: Visitor,
    at: Duration,
    notice: Option<Notice>,
}

/// A browser that logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    digest: String,
    /// Stands in every form.
    pub csrf: String,
}

impl Visitor {
    /// Whether this is the secret of its forms.
    pub fn knows(&self, shown: &str) -> bool {
        digest(shown) == digest(&self.csrf)
    }
}

/// What the last form did, for the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub good: bool,
    pub text: String,
}

/// Why a link was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Unknown,
    TooMany,
}

impl Logins {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing is left half done under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The code of a new link.
    pub fn link(&self, now: Duration) -> Result<String, String> {
        let code = secret()?;
        let mut known = self.known();
        known.links.retain(|(_, made)| now.saturating_sub(*made) < LINK_LIFE);
        if known.links.len() >= MAX_LINKS {
            known.links.remove(0);
        }
        known.links.push((digest(&code), now));
        Ok(code)
    }

    /// Takes a link; the secret of the new visitor's cookie.
    pub fn enter(&self, code: &str, now: Duration) -> Result<String, Refused> {
        let mut known = self.known();
        if now.saturating_sub(known.refusals.0) >= MINUTE {
            known.refusals = (now, 0);
        }
        if known.refusals.1 >= MAX_REFUSALS {
            return Err(Refused::TooMany);
        }
        let code = digest(code);
        let found = known.links.iter().position(|(link, _)| *link == code);
        let made = found.map(|at| known.links.remove(at).1);
        if made.is_none_or(|made| now.saturating_sub(made) >= LINK_LIFE) {
            known.refusals.1 += 1;
            return Err(Refused::Unknown);
        }
        let (Ok(secret), Ok(csrf)) = (secret(), secret()) else { return Err(Refused::Unknown) };
        known.visitors.retain(|seen| now.saturating_sub(seen.at) < IDLE);
        if known.visitors.len() >= MAX_VISITORS
            && let Some((oldest, _)) = known.visitors.iter().enumerate().min_by_key(|(_, seen)| seen.at)
        {
            known.visitors.remove(oldest);
        }
        known.visitors.push(Seen { visitor: Visitor { digest: digest(&secret), csrf }, at: now, notice: None });
        Ok(secret)
    }

    /// The visitor with this cookie.
    pub fn visitor(&self, secret: &str, now: Duration) -> Option<Visitor> {
        let wanted = digest(secret);
        let mut known = self.known();
        let seen = known.visitors.iter_mut().find(|seen| seen.visitor.digest == wanted)?;
        if now.saturating_sub(seen.at) >= IDLE {
            return None;
        }
        seen.at = now;
        Some(seen.visitor.clone())
    }

    /// Ends a login.
    pub fn leave(&self, visitor: &Visitor) {
        self.known().visitors.retain(|seen| seen.visitor != *visitor);
    }

    /// Leaves a notice for the visitor's next page.
    pub fn notify(&self, visitor: &Visitor, notice: Notice) {
        if let Some(seen) = self.known().visitors.iter_mut().find(|seen| seen.visitor == *visitor) {
            seen.notice = Some(notice);
        }
    }

    /// Takes the notice.
    pub fn notice(&self, visitor: &Visitor) -> Option<Notice> {
        self.known().visitors.iter_mut().find(|seen| seen.visitor == *visitor)?.notice.take()
    }
}

/// 256 random bits.
fn secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| format!("no randomness: {e}"))?;
    Ok(hex(&bytes))
}

fn digest(secret: &str) -> String {
    hex(&Sha256::digest(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn a_link_works_once_and_for_a_minute() {
        let logins = Logins::default();
        let code = logins.link(NOW).expect("there is randomness");
        let secret = logins.enter(&code, NOW).expect("it is new");
        assert_eq!(logins.enter(&code, NOW), Err(Refused::Unknown), "it was used");
        let visitor = logins.visitor(&secret, NOW).expect("it logged in");
        assert!(visitor.knows(&visitor.csrf) && !visitor.knows("") && !visitor.knows(&secret));
        let late = logins.link(NOW).expect("there is randomness");
        assert_eq!(logins.enter(&late, NOW + LINK_LIFE), Err(Refused::Unknown), "it is over");
        logins.leave(&visitor);
        assert_eq!(logins.visitor(&secret, NOW), None);
    }

    #[test]
    fn links_visitors_and_guesses_are_bounded() {
        let logins = Logins::default();
        let first = logins.link(NOW).expect("there is randomness");
        for _ in 0..MAX_LINKS {
            logins.link(NOW).expect("there is randomness");
        }
        assert_eq!(logins.enter(&first, NOW), Err(Refused::Unknown));
        let mut secrets = Vec::new();
        for nth in 0..=MAX_VISITORS {
            let at = NOW + Duration::from_secs(nth as u64);
            let code = logins.link(at).expect("there is randomness");
            secrets.push(logins.enter(&code, at).expect("it is new"));
        }
        let later = NOW + MINUTE;
        assert!(logins.visitor(&secrets[0], later).is_none() && logins.visitor(&secrets[1], later).is_some());
        assert_eq!(logins.visitor(&secrets[1], later + IDLE), None, "it was not seen for long");
        for _ in 0..MAX_REFUSALS {
            assert_eq!(logins.enter("x", later), Err(Refused::Unknown));
        }
        let good = logins.link(later).expect("there is randomness");
        assert_eq!(logins.enter(&good, later), Err(Refused::TooMany));
        assert!(logins.enter(&logins.link(later + MINUTE).expect("randomness"), later + MINUTE).is_ok());
    }
}
