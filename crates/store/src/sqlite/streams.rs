//! Streams: their operations in a batch, and their reads.

use std::collections::BTreeMap;

use everloop_core::op::Reply;
use everloop_core::op::streams::{
    DeliverRequest, Delivered, GroupState, NewStreamEntry, StreamEnds, StreamEntry, StreamOp,
};
use everloop_core::time::Time;
use rusqlite::{Connection, Row, params};

use super::batch::Batch;
use super::read::{Query, signed};
use crate::rows::StreamRow;
use crate::{Error, stream};

const ENTRIES: Query = Query {
    doing: "read a stream",
    sql: "SELECT id, at, source, key, fields FROM stream_entries WHERE stream = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
};

impl Batch<'_> {
    pub(super) fn stream(&self, op: &StreamOp) -> Result<Reply, Error> {
        match op {
            StreamOp::Add(new) => self.add_entry(new),
            StreamOp::Deliver(request) => self.deliver(request).map(Reply::Delivered),
            StreamOp::Ack { stream, group, ids } => {
                if let Some(mut state) = group_state(&self.tx, stream, group)? {
                    stream::ack(&mut state, ids);
                    self.put_group(stream, group, &state)?;
                }
                Ok(Reply::Ok)
            }
            StreamOp::Trim { stream, up_to } => {
                let mut ends = ends(&self.tx, stream)?;
                let gone = stream::trim(&mut ends, *up_to);
                if gone > 0 {
                    self.put_ends(stream, ends)?;
                }
                Ok(Reply::Trimmed(gone))
            }
        }
    }

    fn add_entry(&self, new: &NewStreamEntry) -> Result<Reply, Error> {
        let name = new.stream.as_str();
        if let Some(key) = &new.key
            && let Some(entry) = entry_with_key(&self.tx, [name, &new.source, key])?
        {
            return Err(stream::repeated(name, entry.id).into());
        }
        let mut ends = ends(&self.tx, name)?;
        let entry = stream::add(&mut ends, new, self.now);
        let fields = serde_json::to_string(&entry.fields).expect("a list of texts always has a JSON form");
        self.write(
            "add to a stream",
            "INSERT INTO stream_entries (stream, id, at, source, key, fields) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![name, entry.id as i64, entry.at.0, entry.source, entry.key, fields],
        )?;
        self.put_ends(name, ends)?;
        Ok(Reply::Added(entry.id))
    }

    fn deliver(&self, request: &DeliverRequest) -> Result<Delivered, Error> {
        let (name, group) = (request.stream.as_str(), request.group.as_str());
        let ends = ends(&self.tx, name)?;
        if ends.last == 0 {
            return Ok(Delivered::default());
        }
        let before = group_state(&self.tx, name, group)?;
        let mut state = before.clone().unwrap_or_else(|| stream::new_group(ends));
        let (ids, missed) = stream::deliver(ends, &mut state, request, self.now);
        if before.as_ref() != Some(&state) {
            self.put_group(name, group, &state)?;
        }
        let mut entries = Vec::with_capacity(ids.len());
        for id in ids {
            let one = ENTRIES.one(&self.tx, params![name, id as i64 - 1, 1], entry)?;
            entries.extend(one.map(RawEntry::understood).transpose()?);
        }
        Ok(Delivered { entries, missed })
    }

    /// Writes both ends, and drops what is before them.
    fn put_ends(&self, name: &str, ends: StreamEnds) -> Result<(), Error> {
        self.write(
            "write a stream",
            "INSERT INTO streams (name, last, trimmed) VALUES (?1, ?2, ?3)
             ON CONFLICT (name) DO UPDATE SET last = excluded.last, trimmed = excluded.trimmed",
            params![name, ends.last as i64, ends.trimmed as i64],
        )?;
        let text = "DELETE FROM stream_entries WHERE stream = ?1 AND id <= ?2";
        self.write("trim a stream", text, params![name, ends.trimmed as i64]).map(drop)
    }

    fn put_group(&self, name: &str, group: &str, state: &GroupState) -> Result<(), Error> {
        let body = serde_json::to_string(state).expect("a group is plain data and always has a JSON form");
        self.write(
            "write a group",
            "INSERT INTO stream_groups (stream, name, body) VALUES (?1, ?2, ?3)
             ON CONFLICT (stream, name) DO UPDATE SET body = excluded.body",
            params![name, group, body],
        )
        .map(drop)
    }
}

/// An entry before its fields are parsed.
struct RawEntry {
    entry: StreamEntry,
    fields: String,
}

fn entry(row: &Row<'_>) -> Result<RawEntry, rusqlite::Error> {
    let (id, at) = (row.get::<_, i64>(0)? as u64, Time(row.get(1)?));
    let entry = StreamEntry { id, at, source: row.get(2)?, key: row.get(3)?, fields: Vec::new() };
    Ok(RawEntry { entry, fields: row.get(4)? })
}

impl RawEntry {
    fn understood(self) -> Result<StreamEntry, Error> {
        let fields = serde_json::from_str(&self.fields).map_err(|e| Error::Unreadable {
            what: format!("entry {} of a stream", self.entry.id),
            why: e.to_string(),
        })?;
        Ok(StreamEntry { fields, ..self.entry })
    }
}

fn ends(conn: &Connection, name: &str) -> Result<StreamEnds, Error> {
    let query = Query { doing: "read the ends of a stream", sql: "SELECT last, trimmed FROM streams WHERE name = ?1" };
    let ends =
        |row: &Row<'_>| Ok(StreamEnds { last: row.get::<_, i64>(0)? as u64, trimmed: row.get::<_, i64>(1)? as u64 });
    Ok(query.one(conn, [name], ends)?.unwrap_or_default())
}

fn group(body: &str) -> Result<GroupState, Error> {
    let why = |e: serde_json::Error| Error::Unreadable { what: "a group of a stream".to_owned(), why: e.to_string() };
    serde_json::from_str(body).map_err(why)
}

fn group_state(conn: &Connection, stream: &str, name: &str) -> Result<Option<GroupState>, Error> {
    let query = Query { doing: "read a group", sql: "SELECT body FROM stream_groups WHERE stream = ?1 AND name = ?2" };
    let body: Option<String> = query.one(conn, [stream, name], |row| row.get(0))?;
    body.map(|body| group(&body)).transpose()
}

/// The entry with this stream, source and key.
pub(super) fn entry_with_key(conn: &Connection, key: [&str; 3]) -> Result<Option<StreamEntry>, Error> {
    let query = Query {
        doing: "look for an entry",
        sql: "SELECT id, at, source, key, fields FROM stream_entries WHERE stream = ?1 AND source = ?2 AND key = ?3",
    };
    query.one(conn, key, entry)?.map(RawEntry::understood).transpose()
}

pub(super) fn entries(conn: &Connection, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, Error> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = ENTRIES.all(conn, params![stream, after, signed(limit)], entry)?;
    rows.into_iter().map(RawEntry::understood).collect()
}

/// One statement, so that ends and groups are of one moment.
pub(super) fn streams(conn: &Connection) -> Result<Vec<StreamRow>, Error> {
    let query = Query {
        doing: "list the streams",
        sql: "SELECT s.name, s.last, s.trimmed, g.name, g.body FROM streams s LEFT JOIN stream_groups g ON g.stream = s.name
              ORDER BY s.name, g.name",
    };
    let mut streams: BTreeMap<String, StreamRow> = BTreeMap::new();
    let found = query.all(conn, (), |row| {
        let ends = StreamEnds { last: row.get::<_, i64>(1)? as u64, trimmed: row.get::<_, i64>(2)? as u64 };
        Ok((row.get::<_, String>(0)?, ends, row.get::<_, Option<String>>(3)?, row.get::<_, Option<String>>(4)?))
    })?;
    for (name, ends, group_name, body) in found {
        let row = streams.entry(name.clone()).or_insert_with(|| StreamRow { name, ends, groups: BTreeMap::new() });
        if let (Some(name), Some(body)) = (group_name, body) {
            row.groups.insert(name, group(&body)?);
        }
    }
    Ok(streams.into_values().collect())
}
