//! The secret of a state folder, and the secrets of turns that are derived from it. A program that
//! can read the folder has all rights at the port.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;

use everloop_core::hex::hex;
use everloop_core::ids::TurnId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::state_folder::StateFolder;

/// Size of the secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// The token of a state folder.
pub struct Token(String);

impl Token {
    /// The one of this folder; drawn if there is none.
    pub fn of(home: &StateFolder) -> Result<Self, String> {
        let path = home.token();
        let failed = |e: &std::io::Error| format!("`{}`: {e}", path.display());
        match std::fs::read_to_string(&path) {
            Ok(text) if is_token(text.trim()) => return Ok(Self(text.trim().to_owned())),
            // Torn or edited: no program can have learned it.
            Ok(_) => std::fs::remove_file(&path).map_err(|e| failed(&e))?,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(failed(&e)),
        }
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| format!("no randomness: {e}"))?;
        let token = hex(&bytes);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| writeln!(file, "{token}")).map_err(|e| failed(&e))?;
        Ok(Self(token))
    }

    /// Whether `shown` is this token.
    pub fn is(&self, shown: &str) -> bool {
        same(shown, &self.0)
    }

    /// A secret that only the agent of this turn gets; the same again after a restart.
    pub fn sign(&self, turn: &TurnId) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("a key may have any length");
        mac.update(turn.as_str().as_bytes());
        hex(&mac.finalize().into_bytes())
    }

    /// The turn that a shown `TURN.SECRET` proves.
    pub fn turn_of(&self, shown: &str) -> Option<TurnId> {
        let (turn, proof) = shown.rsplit_once('.')?;
        let turn: TurnId = turn.parse().ok()?;
        same(proof, &self.sign(&turn)).then_some(turn)
    }
}

fn is_token(text: &str) -> bool {
    text.len() == 2 * SECRET_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Compares in a time that does not depend on where two secrets differ.
fn same(shown: &str, secret: &str) -> bool {
    let differ = shown.bytes().zip(secret.bytes()).fold(0, |differ, (a, b)| std::hint::black_box(differ | (a ^ b)));
    shown.len() == secret.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(same("abc", "abc"));
        for other in ["", "ab", "abd", "abcd", "Abc"] {
            assert!(!same(other, "abc"), "{other}");
        }
        let token = Token("t".repeat(64));
        let [turn, next] = ["k3f9-1.1", "k3f9-1.2"].map(|id| id.parse::<TurnId>().expect("the id of a turn"));
        assert_eq!(token.sign(&turn), token.sign(&turn));
        assert_ne!(token.sign(&turn), token.sign(&next));
        assert_ne!(token.sign(&turn), Token("u".repeat(64)).sign(&turn));
        assert_eq!(token.turn_of(&format!("{turn}.{}", token.sign(&turn))), Some(turn.clone()));
        assert_eq!(token.turn_of(&format!("k3f9-1.2.{}", token.sign(&turn))), None);
    }

    #[test]
    fn a_torn_token_is_drawn_again_and_a_whole_one_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = StateFolder::open(Some(dir.path())).expect("a state folder");
        std::fs::write(home.token(), "abc").expect("it is ours");
        let drawn = Token::of(&home).expect("it is drawn");
        assert!(is_token(&drawn.0));
        assert_eq!(Token::of(&home).expect("it is read").0, drawn.0);
    }
}
