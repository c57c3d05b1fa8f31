-- Ledger format 2: documents, written by compare-and-swap like loops and guards. What a body means, its kind says.

CREATE TABLE docs (
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    body       TEXT    NOT NULL, -- JSON
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
