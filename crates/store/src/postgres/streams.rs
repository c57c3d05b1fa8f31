//! Streams in a batch and in reads: the rows that a batch names, what the shared rules make of them,
//! and the statements that write it back. The row of a stream is locked before its groups and keys,
//! so all of them stay as they were read.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::op::streams::{DeliverRequest, GroupState, NewStreamEntry, StreamEnds, StreamEntry, StreamOp};
use everloop_core::op::{Refusal, Reply};
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::columns::{self, number, optional_text, plain, shape, time};
use super::connection::Statement;
use crate::rows::StreamRow;
use crate::{Error, stream};

const LOCK_STREAMS: &str =
    "SELECT name, last, trimmed FROM everloop.streams WHERE name = ANY($1) ORDER BY name FOR UPDATE";
const GROUPS: &str = "SELECT g.stream, g.name, g.body FROM everloop.stream_groups g
     JOIN unnest($1::text[], $2::text[]) w (stream, name) ON g.stream = w.stream AND g.name = w.name";
const KEYS: &str = "SELECT e.stream, e.source, e.key, e.id FROM everloop.stream_entries e
     JOIN unnest($1::text[], $2::text[], $3::text[]) w (stream, source, key)
       ON e.stream = w.stream AND e.source = w.source AND e.key = w.key";

/// What a batch names of streams.
#[derive(Debug, Default)]
pub(super) struct StreamKeys {
    names: BTreeSet<String>,
    groups: BTreeSet<(String, String)>,
    /// Stream, source and key.
    keys: BTreeSet<[String; 3]>,
}

/// The table that a reply is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamPart {
    Ends,
    Groups,
    Keys,
}

impl StreamKeys {
    pub(super) fn name(&mut self, op: &StreamOp) {
        let stream = match op {
            StreamOp::Add(new) => {
                let key = |key: &String| [new.stream.clone(), new.source.clone(), key.clone()];
                self.keys.extend(new.key.as_ref().map(key));
                &new.stream
            }
            StreamOp::Deliver(DeliverRequest { stream, group, .. }) | StreamOp::Ack { stream, group, .. } => {
                self.groups.insert((stream.clone(), group.clone()));
                stream
            }
            StreamOp::Trim { stream, .. } => stream,
        };
        self.names.insert(stream.clone());
    }

    pub(super) fn statements(&self) -> Vec<(StreamPart, Statement)> {
        let mut all = Vec::new();
        if !self.names.is_empty() {
            all.push((StreamPart::Ends, Statement::new("lock streams", LOCK_STREAMS).texts(&self.names)));
        }
        if !self.groups.is_empty() {
            let read = Statement::new("read groups", GROUPS).texts(self.groups.iter().map(|(stream, _)| stream));
            all.push((StreamPart::Groups, read.texts(self.groups.iter().map(|(_, name)| name))));
        }
        if !self.keys.is_empty() {
            let read = (0..3).fold(Statement::new("look for entries", KEYS), |read, part| {
                read.texts(self.keys.iter().map(|key| &key[part]))
            });
            all.push((StreamPart::Keys, read));
        }
        all
    }
}

/// The streams of a batch under way.
#[derive(Debug, Default)]
pub(super) struct StreamDraft {
    /// With whether the hub has a row of it.
    ends: BTreeMap<String, (StreamEnds, bool)>,
    groups: BTreeMap<(String, String), GroupState>,
    keys: BTreeMap<[String; 3], u64>,
    changed_ends: BTreeSet<String>,
    changed_groups: BTreeSet<(String, String)>,
    /// Not written yet.
    added: Vec<(String, StreamEntry)>,
}

impl StreamDraft {
    pub(super) fn take_in(&mut self, part: StreamPart, row: &Row) -> Result<(), Error> {
        match part {
            StreamPart::Ends => {
                let (name, ends) = ends(row)?;
                self.ends.insert(name, (ends, true));
            }
            StreamPart::Groups => {
                let read = || Ok((plain(row, "stream")?, plain(row, "name")?, plain(row, "body")?));
                let (stream, name, body) = read().map_err(shape("a group"))?;
                self.groups.insert((stream, name), columns::stream_group(&body)?);
            }
            StreamPart::Keys => {
                let key = || Ok([plain(row, "stream")?, plain(row, "source")?, plain(row, "key")?]);
                let id = number(row, "id").map_err(shape("an entry"))?;
                self.keys.insert(key().map_err(shape("an entry"))?, id);
            }
        }
        Ok(())
    }

    /// Does one operation, except a delivery: its entries are read from the hub.
    pub(super) fn apply(&mut self, op: &StreamOp, now: Time) -> Result<Reply, Refusal> {
        match op {
            StreamOp::Add(new) => self.add(new, now),
            StreamOp::Deliver(_) => Ok(Reply::Ok),
            StreamOp::Ack { stream, group, ids } => {
                let name = (stream.clone(), group.clone());
                if let Some(state) = self.groups.get_mut(&name) {
                    stream::ack(state, ids);
                    self.changed_groups.insert(name);
                }
                Ok(Reply::Ok)
            }
            StreamOp::Trim { stream, up_to } => {
                let Some((ends, _)) = self.ends.get_mut(stream) else { return Ok(Reply::Trimmed(0)) };
                let gone = stream::trim(ends, *up_to);
                self.cut(stream);
                Ok(Reply::Trimmed(gone))
            }
        }
    }

    fn add(&mut self, new: &NewStreamEntry, now: Time) -> Result<Reply, Refusal> {
        let name = &new.stream;
        let key = new.key.as_ref().map(|key| [name.clone(), new.source.clone(), key.clone()]);
        if let Some(id) = key.as_ref().and_then(|key| self.keys.get(key)) {
            return Err(stream::repeated(name, *id));
        }
        let entry = stream::add(&mut self.ends.entry(name.clone()).or_default().0, new, now);
        let id = entry.id;
        self.keys.extend(key.map(|key| (key, id)));
        self.added.push((name.clone(), entry));
        self.cut(name);
        Ok(Reply::Added(id))
    }

    /// What is before the beginning of a stream is gone, also what is not written yet.
    fn cut(&mut self, name: &str) {
        let trimmed = self.ends[name].0.trimmed;
        self.added.retain(|(stream, entry)| stream != name || entry.id > trimmed);
        self.keys.retain(|key, id| key[0] != name || *id > trimmed);
        self.changed_ends.insert(name.to_owned());
    }

    /// What a group takes, and how many entries it missed.
    pub(super) fn deliver(&mut self, request: &DeliverRequest, now: Time) -> (Vec<u64>, u64) {
        let Some((ends, _)) = self.ends.get(&request.stream).copied() else { return Default::default() };
        let name = (request.stream.clone(), request.group.clone());
        let state = self.groups.entry(name.clone()).or_insert_with(|| stream::new_group(ends));
        let taken = stream::deliver(ends, state, request, now);
        self.changed_groups.insert(name);
        taken
    }

    /// All that is not written yet.
    pub(super) fn flush(&mut self, all: &mut Vec<Statement>) {
        let names: Vec<String> = std::mem::take(&mut self.changed_ends).into_iter().collect();
        for stored in [true, false] {
            let these: Vec<_> = names.iter().filter(|name| self.ends[*name].1 == stored).collect();
            if !these.is_empty() {
                all.push(write_ends(stored, these.iter().map(|name| (name.as_str(), self.ends[*name].0))));
            }
        }
        if !names.is_empty() {
            let sql = "DELETE FROM everloop.stream_entries e USING unnest($1::text[], $2::bigint[]) w (stream, trimmed)
                       WHERE e.stream = w.stream AND e.id <= w.trimmed";
            let trimmed = names.iter().map(|name| self.ends[name].0.trimmed as i64);
            all.push(Statement::new("trim streams", sql).texts(&names).numbers(trimmed));
        }
        self.ends.values_mut().for_each(|(ends, stored)| *stored |= ends.last > 0);
        let added = std::mem::take(&mut self.added);
        if !added.is_empty() {
            all.push(entry_rows(&added));
        }
        let groups: Vec<_> = std::mem::take(&mut self.changed_groups).into_iter().collect();
        if !groups.is_empty() {
            let body = |name| serde_json::to_string(&self.groups[name]).expect("a group always has a JSON form");
            let sql = "INSERT INTO everloop.stream_groups (stream, name, body)
                       SELECT w.* FROM unnest($1::text[], $2::text[], $3::text[]) w
                       ON CONFLICT (stream, name) DO UPDATE SET body = excluded.body";
            let statement = Statement::new("write groups", sql).texts(groups.iter().map(|(stream, _)| stream));
            all.push(statement.texts(groups.iter().map(|(_, name)| name)).texts(groups.iter().map(body)));
        }
    }
}

/// A stream that was missing when the others were locked is inserted without `ON CONFLICT`, so that
/// a batch which met another one at that is undone and tried again.
fn write_ends<'a>(stored: bool, ends: impl Iterator<Item = (&'a str, StreamEnds)> + Clone) -> Statement {
    let sql = if stored {
        "UPDATE everloop.streams s SET last = w.last, trimmed = w.trimmed
         FROM unnest($1::text[], $2::bigint[], $3::bigint[]) w (name, last, trimmed) WHERE s.name = w.name"
    } else {
        "INSERT INTO everloop.streams (name, last, trimmed)
         SELECT w.* FROM unnest($1::text[], $2::bigint[], $3::bigint[]) w"
    };
    let statement = Statement::new("write streams", sql).texts(ends.clone().map(|(name, _)| name));
    statement.numbers(ends.clone().map(|(_, ends)| ends.last as i64)).numbers(ends.map(|(_, ends)| ends.trimmed as i64))
}

fn entry_rows(added: &[(String, StreamEntry)]) -> Statement {
    let fields = |(_, entry): &(String, StreamEntry)| {
        serde_json::to_string(&entry.fields).expect("a list of texts always has a JSON form")
    };
    Statement::new(
        "add to streams",
        "INSERT INTO everloop.stream_entries (stream, id, at, source, key, fields)
         SELECT w.* FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[]) w",
    )
    .texts(added.iter().map(|(stream, _)| stream))
    .numbers(added.iter().map(|(_, entry)| entry.id as i64))
    .numbers(added.iter().map(|(_, entry)| entry.at.0))
    .texts(added.iter().map(|(_, entry)| &entry.source))
    .optional_texts(added.iter().map(|(_, entry)| entry.key.as_ref()))
    .texts(added.iter().map(fields))
}

fn ends(row: &Row) -> Result<(String, StreamEnds), Error> {
    let read = || {
        let ends = StreamEnds { last: number(row, "last")?, trimmed: number(row, "trimmed")? };
        Ok((plain(row, "name")?, ends))
    };
    read().map_err(shape("a stream"))
}

/// Entries with these ids.
pub(super) fn with_ids(stream: &str, ids: &[u64]) -> Statement {
    let sql = "SELECT id, at, source, key, fields FROM everloop.stream_entries
               WHERE stream = $1 AND id = ANY($2) ORDER BY id";
    Statement::new("read entries", sql).text(stream).numbers(ids.iter().map(|id| *id as i64))
}

pub(super) fn entries(stream: &str, after: u64, limit: usize) -> Statement {
    let sql = "SELECT id, at, source, key, fields FROM everloop.stream_entries
               WHERE stream = $1 AND id > $2 ORDER BY id LIMIT";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    Statement::new("read a stream", format!("{sql} {limit}")).text(stream).number(after)
}

/// The entry with this stream, source and key.
pub(super) fn with_key([stream, source, key]: [&str; 3]) -> Statement {
    let sql = "SELECT id, at, source, key, fields FROM everloop.stream_entries
               WHERE stream = $1 AND source = $2 AND key = $3";
    Statement::new("look for an entry", sql).text(stream).text(source).text(key)
}

pub(super) fn entry(row: &Row) -> Result<StreamEntry, Error> {
    let read = || {
        let (id, at) = (number(row, "id")?, time(row, "at")?);
        let (source, key) = (plain(row, "source")?, optional_text(row, "key")?);
        Ok((StreamEntry { id, at, source, key, fields: Vec::new() }, plain(row, "fields")?))
    };
    let (entry, fields) = read().map_err(shape("an entry"))?;
    Ok(StreamEntry { fields: columns::stream_fields(entry.id, &fields)?, ..entry })
}

/// One statement, so that ends and groups are of one moment.
pub(super) fn streams() -> Statement {
    let sql = "SELECT s.name, s.last, s.trimmed, g.name AS grp, g.body FROM everloop.streams s
               LEFT JOIN everloop.stream_groups g ON g.stream = s.name ORDER BY s.name, g.name";
    Statement::new("list the streams", sql)
}

pub(super) fn stream_rows(found: &[Row]) -> Result<Vec<StreamRow>, Error> {
    let mut streams: BTreeMap<String, StreamRow> = BTreeMap::new();
    for row in found {
        let (name, ends) = ends(row)?;
        let group = || Ok(optional_text(row, "grp")?.zip(optional_text(row, "body")?));
        let known = streams.entry(name.clone()).or_insert_with(|| StreamRow { name, ends, groups: BTreeMap::new() });
        if let Some((name, body)) = group().map_err(shape("a group"))? {
            known.groups.insert(name, columns::stream_group(&body)?);
        }
    }
    Ok(streams.into_values().collect())
}
