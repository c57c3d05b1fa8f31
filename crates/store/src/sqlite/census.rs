//! What a supervisor reads of loops that sleep, without their states: which there are, which have
//! messages, which have work. Each is read along an index.

use everloop_core::ids::LoopId;
use everloop_core::state::OVER;
use rusqlite::{Connection, Row};

use super::columns;
use super::read::Query;
use crate::Error;
use crate::rows::{LoopMark, LoopRow, NewestLoop};

/// The newest rows, the newest known one first: if that is gone, its number may have been given
/// away again.
pub(super) const NEW: Query = Query {
    doing: "look for new loops",
    sql: "SELECT rowid, id, version, phase FROM loops WHERE rowid >= ?1 ORDER BY rowid",
};
pub(super) const NEWEST: Query =
    Query { doing: "find the newest loop", sql: "SELECT rowid, id FROM loops ORDER BY rowid DESC LIMIT 1" };
/// Along an index that holds all columns of it, so no state is read.
pub(super) const MARKS: Query =
    Query { doing: "count the loops", sql: "SELECT id, version, phase FROM loops INDEXED BY loops_by_phase" };
pub(super) const ENDED: Query = Query {
    doing: "read the loops that ended last",
    sql: "SELECT * FROM loops WHERE phase IN (SELECT value FROM json_each(?1)) ORDER BY updated_at DESC LIMIT ?2",
};
/// The text of the expression has to equal that of the index.
pub(super) const NAMED: Query = Query {
    doing: "find loops by their name",
    sql: "SELECT * FROM loops
          WHERE CASE WHEN json_valid(state) THEN json_extract(state, '$.name') END = ?1 ORDER BY id",
};
/// From one recipient to the next, so that a mailbox with many messages costs as much as one with
/// a single message.
pub(super) const ADDRESSED: Query = Query {
    doing: "look for loops with messages",
    sql: "WITH RECURSIVE names(name) AS (
              SELECT min(recipient) FROM messages
              UNION ALL
              SELECT (SELECT min(recipient) FROM messages WHERE recipient > names.name) FROM names
              WHERE names.name IS NOT NULL)
          SELECT loops.id FROM names CROSS JOIN loops ON loops.id = names.name",
};
/// The same for tasks. The text of the condition has to equal that of the index.
pub(super) const OFFERED: Query = Query {
    doing: "look for loops with work",
    sql: "WITH RECURSIVE owners(owner) AS (
              SELECT min(owner) FROM tasks INDEXED BY tasks_offered
              WHERE state IN ('queued', 'leased') AND kind NOT IN ('persona-signal', 'keepalive', 'batch')
              UNION ALL
              SELECT (SELECT min(tasks.owner) FROM tasks INDEXED BY tasks_offered
                      WHERE state IN ('queued', 'leased') AND kind NOT IN ('persona-signal', 'keepalive', 'batch')
                        AND tasks.owner > owners.owner)
              FROM owners WHERE owners.owner IS NOT NULL)
          SELECT owner FROM owners WHERE owner IS NOT NULL",
};

pub(super) fn open_loops(conn: &Connection) -> Result<Vec<LoopMark>, Error> {
    let marks = MARKS.all(conn, (), |row| {
        let is_over = OVER.contains(&row.get_ref(2)?.as_str()?);
        if is_over { Ok(None) } else { Ok(Some(LoopMark { id: id(row, 0)?, version: row.get::<_, i64>(1)? as u64 })) }
    })?;
    Ok(marks.into_iter().flatten().collect())
}

pub(super) fn ended_loops(conn: &Connection, limit: usize) -> Result<Vec<LoopRow>, Error> {
    let over = serde_json::to_string(&OVER).expect("a list of texts always has a JSON form");
    ENDED.all(conn, rusqlite::params![over, limit as i64], columns::loop_row)
}

pub(super) fn newest_loop(conn: &Connection) -> Result<Option<NewestLoop>, Error> {
    NEWEST.one(conn, (), |row| Ok(NewestLoop { row: row.get(0)?, id: id(row, 1)? }))
}

/// The loops that were made since; `None` if the known one is gone.
pub(super) fn loops_since(conn: &Connection, known: &NewestLoop) -> Result<Option<Vec<LoopMark>>, Error> {
    let mut found = NEW.all(conn, [known.row], |row| {
        Ok((LoopMark { id: id(row, 1)?, version: row.get::<_, i64>(2)? as u64 }, row.get::<_, String>(3)?))
    })?;
    if found.first().is_none_or(|(mark, _)| mark.id != known.id) {
        return Ok(None);
    }
    found.remove(0);
    let open = found.into_iter().filter(|(_, phase)| !OVER.contains(&phase.as_str()));
    Ok(Some(open.map(|(mark, _)| mark).collect()))
}

pub(super) fn named(conn: &Connection, name: &str) -> Result<Vec<LoopRow>, Error> {
    NAMED.all(conn, [name], columns::loop_row)
}

pub(super) fn addressed_loops(conn: &Connection) -> Result<Vec<LoopId>, Error> {
    ADDRESSED.all(conn, (), |row| id(row, 0))
}

pub(super) fn loops_with_work(conn: &Connection) -> Result<Vec<LoopId>, Error> {
    OFFERED.all(conn, (), |row| id(row, 0))
}

fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<LoopId> {
    row.get::<_, String>(column).map(LoopId::new)
}
