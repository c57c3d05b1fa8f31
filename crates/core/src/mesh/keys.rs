//! Signatures in the mesh: what is signed, how a signature travels, and whether a node accepts what
//! it covers. Pure; keys and the arithmetic are behind [`Keyring`].
//!
//! - A loop carries two signatures: of the key that made it, over its commands ([`Made`]), and of
//!   the key that wrote the document last, over all of it ([`Seal`] at its end). A node needs both
//!   keys in its [`TrustList`].
//! - A report carries the signature of its node, over task, fence and all of its text.
//! - A [`Listing`] is a node's key in the hub, for people to compare and trust.
//!
//! A signature covers the exact text; the parts of what is signed come with their lengths, so that
//! no two documents give the same bytes. Not covered: an older document in place of a newer one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{KIND as LOOP, MeshLoop, TaskReport};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::time::Time;

/// Kind of the documents in which nodes list their keys.
pub const KIND: &str = "key";
/// Version of a listing and of a trust list. A newer one is refused, never guessed at.
pub const VERSION: u32 = 1;
/// The first bytes of everything that is signed.
const PREFIX: &str = "everloop mesh 1";
/// What stands between a document and its seal.
const JOINT: &str = ",\"seal\":";
/// Hexadecimal digits of a key.
const KEY_DIGITS: usize = 64;
/// Hexadecimal digits of a fingerprint: 128 bits, so a second key with the same cannot be found.
const SHOWN_DIGITS: usize = 32;

/// A public key (Ed25519), as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(String);

impl PublicKey {
    /// A key from its digits; `None` when they are none.
    pub fn new(digits: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (digits.len() == KEY_DIGITS && digits.chars().all(plain)).then(|| Self(digits.to_owned()))
    }

    /// All of its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first half of it, in groups, for people to compare.
    pub fn fingerprint(&self) -> String {
        let groups = (0..SHOWN_DIGITS).step_by(4).map(|at| &self.0[at..at + 4]);
        groups.collect::<Vec<_>>().join("-")
    }

    /// Whether a person means this key: by all of it, or by its fingerprint.
    pub fn is_named(&self, text: &str) -> bool {
        let plain: String = text.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
        [KEY_DIGITS, SHOWN_DIGITS].contains(&plain.len()) && self.0.starts_with(&plain)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text).ok_or("this is no key")
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.0
    }
}

/// A signature and the key that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub key: PublicKey,
    /// As hexadecimal digits.
    pub signature: String,
}

/// The commands of a loop as the key that made it signed them. The text is what counts: another
/// version of everloop may write the same loop in other words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The loop's [`super::MeshSpec`], as JSON.
    pub spec: String,
    pub seal: Seal,
}

/// The keys of a node.
pub trait Keyring {
    /// Signs with the node's own key.
    fn sign(&self, bytes: &[u8]) -> Seal;
    /// Whether the key of a seal signed these bytes.
    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool;
    /// The keys that this node trusts.
    fn trust(&self) -> &TrustList;
}

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub enum Statement<'a> {
    /// The commands of a loop.
    Spec { id: &'a str, text: &'a str },
    /// The document of a loop.
    Loop { id: &'a str, text: &'a str },
    /// The report about a task.
    Report { task: &'a TaskId, fence: Fence, text: &'a str },
    /// That a key is the key of a node.
    Listing { node: &'a NodeId, key: &'a PublicKey },
}

impl Statement<'_> {
    /// The bytes that a signature covers.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Statement::Spec { id, text } => bytes(&["spec", id, text]),
            Statement::Loop { id, text } => bytes(&["loop", id, text]),
            Statement::Report { task, fence, text } => bytes(&["report", task.as_str(), &fence.to_string(), text]),
            Statement::Listing { node, key } => bytes(&["key", node.as_str(), key.as_str()]),
        }
    }
}

fn bytes(parts: &[&str]) -> Vec<u8> {
    let mut all = PREFIX.as_bytes().to_vec();
    for part in parts {
        all.extend((part.len() as u64).to_le_bytes());
        all.extend(part.as_bytes());
    }
    all
}

/// A document with its seal as the last field, so that a reader that knows no seals reads it too.
fn with_seal(text: &str, seal: &Seal) -> String {
    let seal = serde_json::to_string(seal).expect("a seal is plain data and always has a JSON form");
    let open = text.strip_suffix('}').unwrap_or(text);
    format!("{open}{JOINT}{seal}}}")
}

/// The text that was signed, and its seal; `None` when there is none. The joint cannot occur inside
/// of a text of JSON, where quotes are escaped.
pub fn unsealed(body: &str) -> Option<(String, Seal)> {
    let (text, rest) = body.rsplit_once(JOINT)?;
    let seal = serde_json::from_str(rest.strip_suffix('}')?).ok()?;
    Some((format!("{text}}}"), seal))
}

/// The same operations, with the node's signature on every loop and every report.
pub fn sealed(ops: impl IntoIterator<Item = Op>, keyring: &impl Keyring) -> Vec<Op> {
    let sign = |text: &str, statement: Statement<'_>| with_seal(text, &keyring.sign(&statement.bytes()));
    let seal = |op| match op {
        Op::SaveDoc { kind, key, version, body } if kind == LOOP => {
            let body = sign(&body, Statement::Loop { id: &key, text: &body });
            Op::SaveDoc { kind, key, version, body }
        }
        Op::Finish { task, fence, state, result } => {
            let result = sign(&result, Statement::Report { task: &task, fence, text: &result });
            Op::Finish { task, fence, state, result }
        }
        Op::Shelve { task, fence, result } => {
            let result = sign(&result, Statement::Report { task: &task, fence, text: &result });
            Op::Shelve { task, fence, result }
        }
        other => other,
    };
    ops.into_iter().map(seal).collect()
}

impl MeshLoop {
    /// Signs the commands of the loop, as its maker.
    pub fn sign(&mut self, keyring: &impl Keyring) {
        let spec = serde_json::to_string(&self.spec).expect("a spec is plain data and always has a JSON form");
        let seal = keyring.sign(&Statement::Spec { id: self.id.as_str(), text: &spec }.bytes());
        self.signed = Some(Made { spec, seal });
    }
}

/// Why a node does not accept a document of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocFault {
    /// A newer everloop wrote it, or it is damaged.
    Unreadable(String),
    /// It is readable, and this node runs nothing of it. `over`: by its text the loop is over, so
    /// there is nothing to run anyway.
    Distrusted { why: Distrust, over: bool },
}

/// Why a node runs nothing of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// It was made before signatures, or written by something else.
    Unsigned { id: LoopId },
    /// It is not what was signed.
    Changed { id: LoopId, key: PublicKey },
    /// The key that made it is not trusted.
    Maker(PublicKey),
    /// The key that wrote it last is not trusted.
    Writer(PublicKey),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distrust::Unsigned { id } => write!(
                f,
                "it is not signed (made before signatures, or not by everloop); `everloop mesh sign {id}` shows and \
                 signs it"
            ),
            Distrust::Changed { id, key } => write!(
                f,
                "it was changed in the hub: it is not what key {} signed; `everloop mesh sign {id}` shows and signs \
                 it, `everloop mesh stop {id}` ends it",
                key.fingerprint()
            ),
            Distrust::Maker(key) => {
                write!(f, "its commands are signed by key {0}, {UNTRUSTED} {0}`", key.fingerprint())
            }
            Distrust::Writer(key) => write!(f, "its state is signed by key {0}, {UNTRUSTED} {0}`", key.fingerprint()),
        }
    }
}

const UNTRUSTED: &str = "which this node does not trust; compare it, then `everloop mesh trust";

impl fmt::Display for DocFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocFault::Unreadable(why) => f.write_str(why),
            DocFault::Distrusted { why, .. } => why.fmt(f),
        }
    }
}

/// Reads the document of a loop, if this node may run it. Its commands are those that its maker
/// signed.
pub fn read_loop(id: &LoopId, body: &str, keyring: &impl Keyring) -> Result<MeshLoop, DocFault> {
    let found = MeshLoop::read(body).map_err(DocFault::Unreadable)?;
    if planted::is(Bug::BelievesChangedLoops) {
        return Ok(found);
    }
    let over = found.ended.is_some();
    let refuse = |why: Distrust| Err(DocFault::Distrusted { why, over });
    let Some((text, seal)) = unsealed(body) else { return refuse(Distrust::Unsigned { id: id.clone() }) };
    let changed = |key: &PublicKey| refuse(Distrust::Changed { id: id.clone(), key: key.clone() });
    if !keyring.fits(&seal, &Statement::Loop { id: id.as_str(), text: &text }.bytes()) {
        return changed(&seal.key);
    }
    let mut state = MeshLoop::read(&text).map_err(DocFault::Unreadable)?;
    let Some(made) = &state.signed else { return refuse(Distrust::Unsigned { id: id.clone() }) };
    let fits = keyring.fits(&made.seal, &Statement::Spec { id: id.as_str(), text: &made.spec }.bytes());
    if state.id != *id || !fits {
        return changed(&made.seal.key);
    }
    let trust = keyring.trust();
    if !trust.has(&made.seal.key) {
        return refuse(Distrust::Maker(made.seal.key.clone()));
    }
    if !trust.has(&seal.key) {
        return refuse(Distrust::Writer(seal.key));
    }
    state.spec = serde_json::from_str(&made.spec).map_err(|e| DocFault::Unreadable(e.to_string()))?;
    Ok(state)
}

/// Why a leader does not accept a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportFault {
    /// The node that it names did not write it.
    Forged(String),
    /// The leader knows no key of the node that it names.
    Stranger { node: NodeId, key: PublicKey },
}

impl fmt::Display for ReportFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportFault::Forged(why) => f.write_str(why),
            ReportFault::Stranger { node, key } => write!(
                f,
                "it is signed by key {0} of node {node}, which the leader does not trust; compare it, then on the \
                 leader `everloop mesh trust {0}`",
                key.fingerprint()
            ),
        }
    }
}

/// Whether a report is of the node that it names. What is no report is nothing to verify.
pub fn verify_report((task, fence): (&TaskId, Fence), result: &str, keyring: &impl Keyring) -> Result<(), ReportFault> {
    let Some(report) = TaskReport::read(result).filter(|_| !planted::is(Bug::BelievesForgedReports)) else {
        return Ok(());
    };
    let node = &report.node;
    let forged = |why: String| Err(ReportFault::Forged(why));
    let Some((text, seal)) = unsealed(result) else { return forged(format!("it names node {node} and is not signed")) };
    if !keyring.fits(&seal, &Statement::Report { task, fence, text: &text }.bytes()) {
        return forged(format!("it is not what key {} signed, and names node {node}", seal.key.fingerprint()));
    }
    let trust = keyring.trust();
    match trust.node_of(&seal.key) {
        Some(signer) if signer == node => Ok(()),
        Some(signer) => forged(format!("it names node {node} and is signed by the key of node {signer}")),
        None if planted::is(Bug::TrustListIgnored) => Ok(()),
        None if trust.keys.iter().any(|known| known.node == *node) => {
            let shown = seal.key.fingerprint();
            forged(format!("it is signed by key {shown}, which is not the trusted key of node {node}"))
        }
        None => Err(ReportFault::Stranger { node: node.clone(), key: seal.key }),
    }
}

/// The keys that a node trusts: it runs what they signed, and merges what they report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustList {
    version: u32,
    pub keys: Vec<TrustedKey>,
}

/// A key that a node trusts, and the node that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedKey {
    pub key: PublicKey,
    pub node: NodeId,
    pub at: Time,
}

impl Default for TrustList {
    fn default() -> Self {
        Self { version: VERSION, keys: Vec::new() }
    }
}

impl TrustList {
    /// Reads one, refusing what a newer everloop wrote.
    pub fn read(text: &str) -> Result<Self, String> {
        let list: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        newer(list.version).map_or(Ok(list), Err)
    }

    /// Whether a key is trusted.
    pub fn has(&self, key: &PublicKey) -> bool {
        planted::is(Bug::TrustListIgnored) || self.node_of(key).is_some()
    }

    /// The node of a trusted key.
    pub fn node_of(&self, key: &PublicKey) -> Option<&NodeId> {
        self.keys.iter().find(|known| known.key == *key).map(|known| &known.node)
    }

    /// Trusts a key, which takes the place of the node's former one.
    pub fn add(&mut self, trusted: TrustedKey) {
        self.keys.retain(|known| known.node != trusted.node && known.key != trusted.key);
        self.keys.push(trusted);
        self.keys.sort_by(|a, b| a.node.cmp(&b.node));
    }

    /// Does not trust the keys any more that a person means by a node, a key or a fingerprint.
    /// Returns them.
    pub fn revoke(&mut self, named: &str) -> Vec<TrustedKey> {
        let (gone, kept) = self.keys.drain(..).partition(|known| known.is_named(named));
        self.keys = kept;
        gone
    }
}

impl TrustedKey {
    fn is_named(&self, named: &str) -> bool {
        self.node.as_str() == named || self.key.is_named(named)
    }
}

/// A node's key as it stands in the hub, signed by that key. Anything with access to the hub can
/// write another one: only a comparison of fingerprints shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    version: u32,
    pub node: NodeId,
    pub seal: Seal,
}

impl Listing {
    /// The listing of a node with these keys.
    pub fn new(node: &NodeId, key: &PublicKey, keyring: &impl Keyring) -> Self {
        let seal = keyring.sign(&Statement::Listing { node, key }.bytes());
        Self { version: VERSION, node: node.clone(), seal }
    }

    /// Reads the listing of `node`; refuses one that its key did not sign for this node.
    pub fn read(node: &NodeId, body: &str, keyring: &impl Keyring) -> Result<Self, String> {
        let listing: Self = serde_json::from_str(body).map_err(|e| e.to_string())?;
        if let Some(error) = newer(listing.version) {
            return Err(error);
        }
        let bytes = Statement::Listing { node, key: &listing.seal.key }.bytes();
        let fits = listing.node == *node && keyring.fits(&listing.seal, &bytes);
        if fits { Ok(listing) } else { Err(format!("the key that is listed for node {node} did not sign that")) }
    }

    /// The operation that writes it.
    pub fn save(&self, version: u64) -> Op {
        let body = serde_json::to_string(self).expect("a listing is plain data and always has a JSON form");
        Op::SaveDoc { kind: KIND.to_owned(), key: self.node.to_string(), version, body }
    }

    /// Whether a person means it: by its node, its key or its fingerprint.
    pub fn is_named(&self, named: &str) -> bool {
        self.node.as_str() == named || self.seal.key.is_named(named)
    }
}

fn newer(version: u32) -> Option<String> {
    (version > VERSION).then(|| format!("format {version} is newer than this everloop understands ({VERSION})"))
}

#[cfg(test)]
mod tests;
