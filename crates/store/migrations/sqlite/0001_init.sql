-- Ledger format 1. A shipped migration is never edited: changes go into the next file.
-- Times are UTC milliseconds. Texts compare by bytes (BINARY), as they do in the model.

CREATE TABLE tasks (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT,
    kind       TEXT    NOT NULL,
    title      TEXT    NOT NULL,
    prompt     TEXT    NOT NULL,
    priority   INTEGER NOT NULL,
    deps       TEXT    NOT NULL, -- JSON array of task ids
    author     TEXT    NOT NULL,
    trust      TEXT    NOT NULL CHECK (trust IN ('operator', 'agent')),
    ready_at   INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'dead', 'blocked')),
    node       TEXT,
    until      INTEGER,
    fence      INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    result     TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((state = 'leased') = (node IS NOT NULL)),
    CHECK ((state = 'leased') = (until IS NOT NULL))
) STRICT;

-- The order of claims. Partial, so that finished tasks cost a claim nothing.
CREATE INDEX tasks_waiting ON tasks (owner, priority DESC, created_at, id) WHERE state IN ('queued', 'leased');
-- Listings.
CREATE INDEX tasks_by_state ON tasks (state, created_at, id);
CREATE INDEX tasks_by_owner ON tasks (owner, state, created_at, id);

CREATE TABLE shelf (
    id     INTEGER PRIMARY KEY,
    task   TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    result TEXT    NOT NULL
) STRICT;

CREATE INDEX shelf_by_task ON shelf (task, id);

CREATE TABLE nodes (
    id      TEXT    NOT NULL PRIMARY KEY,
    info    TEXT    NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;

-- At most one row: the last supervisor.
CREATE TABLE leader (
    only  INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    node  TEXT    NOT NULL,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE guards (
    scope   TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    state   TEXT    NOT NULL -- JSON
) STRICT;

CREATE TABLE loops (
    id         TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    phase      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    state      TEXT    NOT NULL -- JSON
) STRICT;

-- AUTOINCREMENT: the id of a consumed message is never used again.
CREATE TABLE messages (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    recipient TEXT    NOT NULL,
    sender    TEXT    NOT NULL,
    body      TEXT    NOT NULL
) STRICT;

CREATE TABLE tickets (
    id        INTEGER PRIMARY KEY,
    key       TEXT    NOT NULL,
    owner     TEXT,
    text      TEXT    NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    answer    TEXT,
    CHECK ((closed_at IS NULL) = (answer IS NULL))
) STRICT;

CREATE UNIQUE INDEX tickets_open ON tickets (key) WHERE closed_at IS NULL;

CREATE TABLE journal (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    owner   TEXT,
    version INTEGER NOT NULL,
    body    TEXT    NOT NULL, -- the event as JSON
    sum     INTEGER NOT NULL
) STRICT;

CREATE INDEX journal_by_owner ON journal (owner, seq);
