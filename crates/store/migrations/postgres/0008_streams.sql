-- Hub format 8: streams. Entries have ids without gaps from `trimmed + 1` to `last`; a group is one JSON row. The row of a
-- stream is locked before its entries and groups.

CREATE TABLE everloop.streams (
    name    text   COLLATE "C" NOT NULL PRIMARY KEY,
    last    bigint NOT NULL,
    trimmed bigint NOT NULL
);

CREATE TABLE everloop.stream_entries (
    stream text   COLLATE "C" NOT NULL,
    id     bigint NOT NULL,
    at     bigint NOT NULL,
    source text   COLLATE "C" NOT NULL,
    key    text   COLLATE "C",
    fields text   NOT NULL, -- JSON array of pairs
    PRIMARY KEY (stream, id)
);

CREATE UNIQUE INDEX stream_keys ON everloop.stream_entries (stream, source, key) WHERE key IS NOT NULL;

CREATE TABLE everloop.stream_groups (
    stream text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    body   text NOT NULL, -- JSON
    PRIMARY KEY (stream, name)
);
