//! Streams of the model: their tables and the operations on them.

use std::collections::BTreeMap;

use everloop_core::op::streams::{
    DeliverRequest, Delivered, GroupState, NewStreamEntry, StreamEnds, StreamEntry, StreamOp,
};
use everloop_core::op::{Refusal, Reply};

use super::batch::{Batch, Undo, put};
use crate::rows::StreamRow;
use crate::stream;

/// The tables of all streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    ends: BTreeMap<String, StreamEnds>,
    entries: BTreeMap<(String, u64), StreamEntry>,
    /// Ids by stream, source and key.
    keys: BTreeMap<[String; 3], u64>,
    /// By stream and name.
    groups: BTreeMap<(String, String), GroupState>,
}

/// A row as it was before the batch changed it.
pub(super) enum UndoStream {
    Ends(String, Option<StreamEnds>),
    Entry((String, u64), Option<StreamEntry>),
    Group((String, String), Option<GroupState>),
}

impl Streams {
    /// Writes (or with `None` removes) an entry and returns the previous one.
    fn put_entry(&mut self, at: &(String, u64), entry: Option<StreamEntry>) -> Option<StreamEntry> {
        let key = |entry: &StreamEntry| Some([at.0.clone(), entry.source.clone(), entry.key.clone()?]);
        let before = self.entries.remove(at);
        if let Some(key) = before.as_ref().and_then(key) {
            self.keys.remove(&key);
        }
        if let Some(entry) = entry {
            self.keys.extend(key(&entry).map(|key| (key, at.1)));
            self.entries.insert(at.clone(), entry);
        }
        before
    }

    pub(super) fn undo(&mut self, undo: UndoStream) {
        match undo {
            UndoStream::Ends(name, ends) => put(&mut self.ends, name, ends),
            UndoStream::Entry(at, entry) => drop(self.put_entry(&at, entry)),
            UndoStream::Group(name, state) => put(&mut self.groups, name, state),
        }
    }

    pub(super) fn list(&self) -> Vec<StreamRow> {
        let groups = |stream: &str| {
            let of = self.groups.iter().filter(|((of, _), _)| of == stream);
            of.map(|((_, name), state)| (name.clone(), state.clone())).collect()
        };
        let row =
            |(name, ends): (&String, &StreamEnds)| StreamRow { name: name.clone(), ends: *ends, groups: groups(name) };
        self.ends.iter().map(row).collect()
    }

    pub(super) fn after(&self, stream: &str, after: u64, limit: usize) -> Vec<StreamEntry> {
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        let entries = self.entries.range((stream.to_owned(), first)..=(stream.to_owned(), u64::MAX));
        entries.map(|(_, entry)| entry.clone()).take(limit).collect()
    }

    pub(super) fn with_key(&self, key: [&str; 3]) -> Option<StreamEntry> {
        let id = self.keys.get(&key.map(str::to_owned))?;
        self.entries.get(&(key[0].to_owned(), *id)).cloned()
    }
}

impl Batch<'_> {
    pub(super) fn stream(&mut self, op: &StreamOp) -> Result<Reply, Refusal> {
        match op {
            StreamOp::Add(new) => self.add_entry(new),
            StreamOp::Deliver(request) => Ok(Reply::Delivered(self.deliver(request))),
            StreamOp::Ack { stream, group, ids } => {
                let name = (stream.clone(), group.clone());
                if let Some(mut state) = self.model.streams.groups.get(&name).cloned() {
                    stream::ack(&mut state, ids);
                    self.put_group(name, state);
                }
                Ok(Reply::Ok)
            }
            StreamOp::Trim { stream, up_to } => {
                let mut ends = self.model.streams.ends.get(stream).copied().unwrap_or_default();
                let gone = stream::trim(&mut ends, *up_to);
                if gone > 0 {
                    self.put_ends(stream, ends);
                }
                Ok(Reply::Trimmed(gone))
            }
        }
    }

    fn add_entry(&mut self, new: &NewStreamEntry) -> Result<Reply, Refusal> {
        let name = &new.stream;
        if let Some(key) = &new.key
            && let Some(entry) = self.model.streams.with_key([name, &new.source, key])
        {
            return Err(stream::repeated(name, entry.id));
        }
        let mut ends = self.model.streams.ends.get(name).copied().unwrap_or_default();
        let entry = stream::add(&mut ends, new, self.now);
        let id = entry.id;
        self.put_entry((name.clone(), id), Some(entry));
        self.put_ends(name, ends);
        Ok(Reply::Added(id))
    }

    fn deliver(&mut self, request: &DeliverRequest) -> Delivered {
        let name = (request.stream.clone(), request.group.clone());
        let Some(ends) = self.model.streams.ends.get(&name.0).copied() else { return Delivered::default() };
        let before = self.model.streams.groups.get(&name).cloned();
        let mut state = before.unwrap_or_else(|| stream::new_group(ends));
        let (ids, missed) = stream::deliver(ends, &mut state, request, self.now);
        let stored = &self.model.streams.entries;
        let entries = ids.iter().filter_map(|id| stored.get(&(name.0.clone(), *id)).cloned()).collect();
        self.put_group(name, state);
        Delivered { entries, missed }
    }

    /// Writes both ends, and drops what is before them.
    fn put_ends(&mut self, name: &str, ends: StreamEnds) {
        let before = self.model.streams.ends.insert(name.to_owned(), ends);
        self.undo.push(Undo::Stream(UndoStream::Ends(name.to_owned(), before)));
        let dropped = before.map_or(0, |before| before.trimmed) + 1..=ends.trimmed;
        for id in dropped {
            self.put_entry((name.to_owned(), id), None);
        }
    }

    fn put_entry(&mut self, at: (String, u64), entry: Option<StreamEntry>) {
        let before = self.model.streams.put_entry(&at, entry);
        self.undo.push(Undo::Stream(UndoStream::Entry(at, before)));
    }

    fn put_group(&mut self, name: (String, String), state: GroupState) {
        let before = self.model.streams.groups.insert(name.clone(), state);
        self.undo.push(Undo::Stream(UndoStream::Group(name, before)));
    }
}
