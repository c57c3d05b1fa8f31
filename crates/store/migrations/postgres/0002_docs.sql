-- Hub format 2: documents, written by compare-and-swap like loops and guards. What a body means, its kind says.

CREATE TABLE everloop.docs (
    name       text   COLLATE "C" NOT NULL PRIMARY KEY, -- kind, U+001F, key: one name to lock by
    kind       text   COLLATE "C" NOT NULL,
    key        text   COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    updated_at bigint NOT NULL,
    body       text   NOT NULL -- JSON
);

CREATE INDEX docs_by_kind ON everloop.docs (kind, key);
