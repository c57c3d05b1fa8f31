-- Ledger format 4: streams. Entries have ids without gaps from `trimmed + 1` to `last`; a group is one JSON row.

CREATE TABLE streams (
    name    TEXT    NOT NULL PRIMARY KEY,
    last    INTEGER NOT NULL,
    trimmed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stream_entries (
    stream TEXT    NOT NULL,
    id     INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    source TEXT    NOT NULL,
    key    TEXT,
    fields TEXT    NOT NULL, -- JSON array of pairs
    PRIMARY KEY (stream, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX stream_keys ON stream_entries (stream, source, key) WHERE key IS NOT NULL;

CREATE TABLE stream_groups (
    stream TEXT NOT NULL,
    name   TEXT NOT NULL,
    body   TEXT NOT NULL, -- JSON
    PRIMARY KEY (stream, name)
) STRICT, WITHOUT ROWID;
