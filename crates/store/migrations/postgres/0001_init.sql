-- Hub format 1. A shipped migration is never edited: changes go into the next file.
-- Times are UTC milliseconds. Texts compare by bytes (COLLATE "C"), as they do in the model, whatever the database's locale.
-- A schema of our own: nothing of ours stands in `public`, which hosted databases publish over HTTP.

-- At most one row: which hub this is, and in which format.
CREATE TABLE everloop.hub (
    single  integer NOT NULL PRIMARY KEY CHECK (single = 1),
    id      text    NOT NULL,
    format  integer NOT NULL,
    made_at bigint  NOT NULL
);

-- Rows change state a few times and then rest: room for a new version on the same page, and dead ones are swept soon.
CREATE TABLE everloop.tasks (
    id         text    COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text    COLLATE "C",
    kind       text    NOT NULL,
    title      text    NOT NULL,
    prompt     text    NOT NULL,
    priority   integer NOT NULL,
    deps       text    NOT NULL, -- JSON array of task ids
    author     text    NOT NULL,
    trust      text    NOT NULL CHECK (trust IN ('operator', 'agent')),
    ready_at   bigint  NOT NULL,
    state      text    COLLATE "C" NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'dead', 'blocked')),
    node       text,
    until      bigint,
    fence      bigint  NOT NULL,
    failures   bigint  NOT NULL,
    result     text,
    created_at bigint  NOT NULL,
    updated_at bigint  NOT NULL,
    CHECK ((state = 'leased') = (node IS NOT NULL)),
    CHECK ((state = 'leased') = (until IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

-- The order of claims. Partial, so that finished tasks cost a claim nothing; two, because PostgreSQL does not take
-- `owner IS NULL` for a fixed first column and would sort.
CREATE INDEX tasks_waiting_free ON everloop.tasks (priority DESC, created_at, id)
    WHERE owner IS NULL AND state IN ('queued', 'leased');
CREATE INDEX tasks_waiting_owned ON everloop.tasks (owner, priority DESC, created_at, id)
    WHERE owner IS NOT NULL AND state IN ('queued', 'leased');
-- Listings.
CREATE INDEX tasks_by_state ON everloop.tasks (state, created_at, id);
CREATE INDEX tasks_by_owner ON everloop.tasks (owner, state, created_at, id) WHERE owner IS NOT NULL;

CREATE TABLE everloop.shelf (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task   text   COLLATE "C" NOT NULL,
    fence  bigint NOT NULL,
    at     bigint NOT NULL,
    result text   NOT NULL
);

CREATE INDEX shelf_by_task ON everloop.shelf (task, id);

CREATE TABLE everloop.nodes (
    id      text   COLLATE "C" NOT NULL PRIMARY KEY,
    info    text   NOT NULL,
    seen_at bigint NOT NULL
);

-- At most one row: the last supervisor.
CREATE TABLE everloop.leader (
    single integer NOT NULL PRIMARY KEY CHECK (single = 1),
    node  text    NOT NULL,
    epoch bigint  NOT NULL,
    until bigint  NOT NULL
);

CREATE TABLE everloop.guards (
    scope   text   COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    state   text   NOT NULL -- JSON
);

CREATE TABLE everloop.loops (
    id         text   COLLATE "C" NOT NULL PRIMARY KEY,
    version    bigint NOT NULL,
    phase      text   NOT NULL,
    updated_at bigint NOT NULL,
    state      text   NOT NULL -- JSON
);

CREATE TABLE everloop.messages (
    id        bigint NOT NULL PRIMARY KEY,
    at        bigint NOT NULL,
    recipient text   COLLATE "C" NOT NULL,
    sender    text   NOT NULL,
    body      text   NOT NULL
);

CREATE TABLE everloop.tickets (
    id        bigint NOT NULL PRIMARY KEY,
    key       text   COLLATE "C" NOT NULL,
    owner     text   COLLATE "C",
    text      text   NOT NULL,
    opened_at bigint NOT NULL,
    closed_at bigint,
    answer    text,
    CHECK ((closed_at IS NULL) = (answer IS NULL))
);

CREATE UNIQUE INDEX tickets_open ON everloop.tickets (key) WHERE closed_at IS NULL;

CREATE TABLE everloop.journal (
    seq     bigint  NOT NULL PRIMARY KEY,
    at      bigint  NOT NULL,
    owner   text    COLLATE "C",
    version integer NOT NULL,
    body    text    NOT NULL, -- the event as JSON
    sum     bigint  NOT NULL
);

CREATE INDEX journal_by_owner ON everloop.journal (owner, seq);

-- The last number given out. Rows, not sequences: a batch that is undone gives its numbers back, so there are no gaps.
CREATE TABLE everloop.heads (
    name  text   COLLATE "C" NOT NULL PRIMARY KEY,
    value bigint NOT NULL,
    sum   bigint NOT NULL -- of the last journal record
) WITH (fillfactor = 50);

INSERT INTO everloop.heads (name, value, sum) VALUES ('journal', 0, 0), ('messages', 0, 0), ('tickets', 0, 0);
