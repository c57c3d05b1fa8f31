//! The chain of keyed hashes (HMAC-SHA256) over the journal: an edit of the file by anything that
//! does not have the key is found.
//!
//! Each hash covers its record and the hash of the end before it, which is kept apart: removed
//! records at the end are found too, also after others were written. The first hash covers the
//! unsigned records of older formats. The key is drawn once and stays in `ledger.key` beside the
//! ledger: isolated turns and checks cannot read it, a program that runs as the person can. A
//! ledger in memory has no key and no chain.
//!
//! Not covered: an older copy of ledger *and* key in place of the newer one.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use everloop_core::hex::hex;
use everloop_core::ids::LoopId;
use everloop_core::journal::{Damage, Stored};
use hmac::{Hmac, KeyInit, Mac};
use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::read::Query;
use super::{Sqlite, read, sql};
use crate::{Error, key_file};

/// A keyed hash.
pub type MacBytes = [u8; 32];

/// Rows held in memory at once.
const CHUNK_ROWS: usize = 512;

/// The key of a ledger's chain.
#[derive(Clone)]
pub(super) struct ChainKey {
    key: MacBytes,
    /// The first record that has to be signed.
    from: u64,
}

impl std::fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainKey").field("from", &self.from).finish_non_exhaustive()
    }
}

fn path_of(ledger: &Path) -> PathBuf {
    ledger.with_extension("key")
}

impl ChainKey {
    /// The key of this ledger, if it was drawn already.
    pub(super) fn read(ledger: &Path) -> Result<Option<Self>, Error> {
        let path = path_of(ledger);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::Open { path, source: e.into() }),
        };
        let parsed = parse(&text).ok_or_else(|| {
            let why = "it is not what everloop wrote; without it the journal cannot be verified".to_owned();
            Error::Unreadable { what: format!("the key `{}`", path.display()), why }
        });
        parsed.map(Some)
    }

    /// The same; draws one when there is none. The file appears whole, and of two processes at once
    /// one draws.
    pub(super) fn read_or_draw(ledger: &Path, conn: &Connection) -> Result<Self, Error> {
        if let Some(key) = Self::read(ledger)? {
            return Ok(key);
        }
        let path = path_of(ledger);
        let failed = |source: std::io::Error| Error::Open { path: path.clone(), source: source.into() };
        let key = key_file::draw().map_err(failed)?;
        let text = json!({ "version": 1, "from": read::last_seq(conn)? + 1, "key": hex(&key) }).to_string();
        key_file::create_once(&path, &text).map_err(failed)?;
        Self::read(ledger)?.ok_or(Error::Missing { path })
    }

    fn hmac(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.key).expect("a key may have any length")
    }

    /// The hash of a record; `previous` is the hash of the end before it.
    fn sign(&self, stored: &Stored, previous: &MacBytes) -> MacBytes {
        let mut mac = self.hmac();
        mac.update(previous);
        each_part(stored, |part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    /// The hash of the end of the journal.
    fn sign_head(&self, seq: u64, last: &MacBytes) -> MacBytes {
        let mut mac = self.hmac();
        mac.update(b"head");
        mac.update(&seq.to_le_bytes());
        mac.update(last);
        mac.finalize().into_bytes().into()
    }
}

fn parse(text: &str) -> Option<ChainKey> {
    let value: Value = serde_json::from_str(text).ok()?;
    let key = key_file::bytes(value["key"].as_str()?)?;
    (value["version"] == 1).then_some(ChainKey { key, from: value["from"].as_u64()? })
}

/// What a hash covers of a record. Lengths come first, so that no two records give the same bytes.
fn each_part(stored: &Stored, mut part: impl FnMut(&[u8])) {
    let owner = stored.owner.as_ref().map(LoopId::as_str);
    part(&stored.seq.to_le_bytes());
    part(&stored.at.0.to_le_bytes());
    part(&stored.version.to_le_bytes());
    part(&owner.map_or(u64::MAX, |owner| owner.len() as u64).to_le_bytes());
    part(owner.unwrap_or_default().as_bytes());
    part(&(stored.body.len() as u64).to_le_bytes());
    part(stored.body.as_bytes());
}

/// Walks along the chain.
struct Walk<'a> {
    key: &'a ChainKey,
    unsigned: Sha256,
    last: Option<MacBytes>,
    seq: u64,
}

impl<'a> Walk<'a> {
    fn new(key: &'a ChainKey) -> Self {
        Self { key, unsigned: Sha256::new(), last: None, seq: 0 }
    }

    /// The hash that the next one covers.
    fn previous(&self) -> MacBytes {
        match &self.last {
            Some(last) => self.key.sign_head(self.seq, last),
            None => self.unsigned.clone().finalize().into(),
        }
    }

    fn step(&mut self, stored: &Stored, mac: Option<&MacBytes>) -> Result<(), Damage> {
        let seq = stored.seq;
        match mac {
            None if self.last.is_none() && seq < self.key.from => {
                each_part(stored, |part| self.unsigned.update(part));
            }
            None => return Err(Damage::Unsigned { seq }),
            Some(mac) if self.key.sign(stored, &self.previous()) != *mac => return Err(Damage::Forged { seq }),
            Some(mac) => self.last = Some(*mac),
        }
        self.seq = seq;
        Ok(())
    }

    fn end(&self, head: Option<(u64, MacBytes)>) -> Result<(), Damage> {
        let expected = self.last.map(|last| (self.seq, self.key.sign_head(self.seq, &last)));
        if head == expected { Ok(()) } else { Err(Damage::CutOff { seq: self.seq }) }
    }
}

/// Signs the records that were just written, and the new end.
pub(super) fn sign(conn: &Connection, key: &ChainKey, records: &[Stored]) -> Result<(), Error> {
    let (Some(first), Some(end)) = (records.first(), records.last()) else { return Ok(()) };
    // Not verified here: a wrong end makes the next signature wrong, for every later audit.
    let mut last = match head(conn)? {
        Some((_, mac)) => mac,
        None => unsigned(conn, key, first.seq)?,
    };
    for record in records {
        let mac = key.sign(record, &last);
        put(conn, "INSERT OR REPLACE INTO journal_macs (seq, mac) VALUES (?1, ?2)", record.seq, &mac)?;
        last = key.sign_head(record.seq, &mac);
    }
    put(conn, "INSERT OR REPLACE INTO journal_head (only, seq, mac) VALUES (1, ?1, ?2)", end.seq, &last)
}

fn put(conn: &Connection, text: &str, seq: u64, mac: &MacBytes) -> Result<(), Error> {
    let doing = "sign the journal";
    let run = |mut statement: rusqlite::CachedStatement<'_>| statement.execute((seq as i64, mac.as_slice()));
    conn.prepare_cached(text).and_then(run).map_err(sql(doing)).map(drop)
}

/// The hash of all records before the first signed one.
fn unsigned(conn: &Connection, key: &ChainKey, end: u64) -> Result<MacBytes, Error> {
    let mut walk = Walk::new(key);
    each_row(conn, |stored, _| {
        if stored.seq < end {
            each_part(stored, |part| walk.unsigned.update(part));
        }
        Ok(())
    })?;
    Ok(walk.previous())
}

fn each_row(
    conn: &Connection,
    mut each: impl FnMut(&Stored, Option<&MacBytes>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut after = 0;
    loop {
        let rows = read::journal_raw(conn, after, CHUNK_ROWS)?;
        let Some(last) = rows.last() else { return Ok(()) };
        let macs: HashMap<u64, MacBytes> = macs_between(conn, after, last.seq)?.into_iter().collect();
        after = last.seq;
        for stored in &rows {
            each(stored, macs.get(&stored.seq))?;
        }
    }
}

fn macs_between(conn: &Connection, after: u64, to: u64) -> Result<Vec<(u64, MacBytes)>, Error> {
    let query = Query {
        doing: "read the journal's signatures",
        sql: "SELECT seq, mac FROM journal_macs WHERE seq > ?1 AND seq <= ?2 ORDER BY seq",
    };
    query.all(conn, (after as i64, to as i64), |row| Ok((row.get::<_, i64>(0)? as u64, bytes(row.get(1)?))))
}

/// A stored hash of another length fits no record.
fn bytes(stored: Vec<u8>) -> MacBytes {
    stored.try_into().unwrap_or_default()
}

fn head(conn: &Connection) -> Result<Option<(u64, MacBytes)>, Error> {
    let query = Query { doing: "read the end of the journal", sql: "SELECT seq, mac FROM journal_head" };
    query.one(conn, (), |row| Ok((row.get::<_, i64>(0)? as u64, bytes(row.get(1)?))))
}

impl Sqlite {
    /// Verifies the chain over the whole journal at one moment; returns the first signed record, or
    /// `None` when nothing was signed yet. [`Error::Damaged`] names the first record that was
    /// changed, added or removed by anything but everloop.
    pub fn verify_chain(&self) -> Result<Option<u64>, Error> {
        self.frozen(|ledger| {
            let conn = &ledger.conn;
            let Some(key) = &ledger.key else {
                let signed = head(conn)?.is_some() || mac_after(conn, 0)?.is_some();
                return if signed { Err(Damage::NoKey.into()) } else { Ok(None) };
            };
            let mut walk = Walk::new(key);
            let mut first = None;
            each_row(conn, |stored, mac| {
                first = first.or(mac.map(|_| stored.seq));
                Ok(walk.step(stored, mac)?)
            })?;
            if let Some(seq) = mac_after(conn, walk.seq)? {
                return Err(Damage::CutOff { seq: seq - 1 }.into());
            }
            walk.end(head(conn)?)?;
            Ok(first)
        })?
    }
}

/// The first signature after this record.
fn mac_after(conn: &Connection, seq: u64) -> Result<Option<u64>, Error> {
    let query = Query {
        doing: "read the journal's signatures",
        sql: "SELECT seq FROM journal_macs WHERE seq > ?1 ORDER BY seq LIMIT 1",
    };
    query.one(conn, [seq as i64], |row| Ok(row.get::<_, i64>(0)? as u64))
}
