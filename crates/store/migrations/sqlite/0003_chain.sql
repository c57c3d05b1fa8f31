-- Ledger format 3: a chain of keyed hashes over the journal. The key is in the file `ledger.key` beside the ledger.
-- Records of older formats have no hash of their own; the first one with a hash covers all of them.

CREATE TABLE journal_macs (
    seq INTEGER NOT NULL PRIMARY KEY,
    mac BLOB    NOT NULL
) STRICT;

-- At most one row: the end of the journal, so that a cut-off end is noticed.
CREATE TABLE journal_head (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    seq  INTEGER NOT NULL,
    mac  BLOB    NOT NULL
) STRICT;
