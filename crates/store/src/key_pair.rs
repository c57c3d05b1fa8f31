//! The key pair of a node of the mesh (Ed25519), in a file for its owner alone. What is signed is
//! decided in [`everloop_core::mesh::keys`].

use std::io::ErrorKind;
use std::path::Path;

use everloop_core::hex::hex;
use everloop_core::mesh::keys::{PublicKey, Seal};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::Error;
use crate::key_file::{bytes, create_once, draw};

/// The key pair of a node.
pub struct KeyPair {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// The key pair in this file; `None` when there is no file.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::Open { path: path.to_owned(), source: e.into() }),
        };
        parse(&text).map(Some).ok_or_else(|| {
            let why = "it is not what everloop wrote".to_owned();
            Error::Unreadable { what: format!("the key `{}`", path.display()), why }
        })
    }

    /// The same; draws one when there is none.
    pub fn read_or_draw(path: &Path) -> Result<Self, Error> {
        if let Some(pair) = Self::read(path)? {
            return Ok(pair);
        }
        let failed = |source: std::io::Error| Error::Open { path: path.to_owned(), source: source.into() };
        let text = json!({ "version": 1, "seed": hex(&draw().map_err(failed)?) }).to_string();
        create_once(path, &text).map_err(failed)?;
        Self::read(path)?.ok_or_else(|| Error::Missing { path: path.to_owned() })
    }

    /// The key that others know.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of these bytes.
    pub fn sign(&self, bytes: &[u8]) -> Seal {
        Seal { key: self.public.clone(), signature: hex(self.pair.sign(bytes).as_ref()) }
    }
}

fn parse(text: &str) -> Option<KeyPair> {
    let value: Value = serde_json::from_str(text).ok().filter(|value: &Value| value["version"] == 1)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&bytes::<32>(value["seed"].as_str()?)?).ok()?;
    let public = PublicKey::new(&hex(pair.public_key().as_ref()))?;
    Some(KeyPair { pair, public })
}

/// Whether the key of a seal signed these bytes.
pub fn is_signed(seal: &Seal, signed: &[u8]) -> bool {
    let Some((key, signature)) = bytes::<32>(seal.key.as_str()).zip(bytes::<64>(&seal.signature)) else { return false };
    UnparsedPublicKey::new(&ED25519, key).verify(signed, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A key file of version 1 and its public key, from RFC 8032, section 7.1, test 1.
    const OLD: &str = r#"{"version":1,"seed":"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"}"#;
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    /// The signature of the empty text there.
    const SIGNATURE: &str = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
                             d25bf5f0595bbe24655141438e7a100b";

    #[test]
    fn a_key_is_drawn_once_for_its_owner_and_signs_what_it_signed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mesh-key.json");
        assert!(KeyPair::read(&path).unwrap().is_none());
        let one = KeyPair::read_or_draw(&path).unwrap();
        let two = KeyPair::read_or_draw(&path).unwrap();
        assert_eq!(one.public(), two.public());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        let seal = one.sign(b"this");
        assert!(is_signed(&seal, b"this") && !is_signed(&seal, b"that"));
        let other = KeyPair::read_or_draw(&dir.path().join("other")).unwrap();
        assert!(!is_signed(&Seal { key: other.public().clone(), ..seal.clone() }, b"this"));
        assert!(!is_signed(&Seal { signature: "zz".to_owned(), ..seal }, b"this"));
        let shown = format!("{one:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        let seed = text.split('"').find(|part| part.len() == 64).unwrap();
        assert!(!shown.contains(seed), "{shown}");
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(KeyPair::read_or_draw(&path), Err(Error::Unreadable { .. })), "never drawn over");
    }

    #[test]
    fn a_file_of_version_1_stays_readable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mesh-key.json");
        std::fs::write(&path, OLD).unwrap();
        let pair = KeyPair::read(&path).unwrap().unwrap();
        assert_eq!(pair.public().as_str(), PUBLIC);
        assert_eq!(pair.sign(b"").signature, SIGNATURE);
    }
}
