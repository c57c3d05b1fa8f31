-- Hub format 5: loops and reports are signed, and nodes list their keys in documents of kind `key`. No table changes; the
-- format keeps nodes of an older everloop out, which would write without signatures.
COMMENT ON TABLE everloop.docs IS 'since format 5 documents of kind mesh end with a signature (seal)';
