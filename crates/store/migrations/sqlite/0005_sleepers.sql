-- Ledger format 5: indexes for a supervisor with thousands of loops that sleep. None of its reads grows with their
-- number, except the count of those that are not over, which reads this first index alone.

CREATE INDEX loops_by_phase ON loops (phase, id, version);

-- A state that is no JSON has no name, and is none that a name could find.
CREATE INDEX loops_by_name ON loops (CASE WHEN json_valid(state) THEN json_extract(state, '$.name') END);

CREATE INDEX messages_by_recipient ON messages (recipient, id);

-- Tasks that are offered to a loop: not the signals that wait for a persona, and not a loop's own tasks.
CREATE INDEX tasks_offered ON tasks (owner)
    WHERE state IN ('queued', 'leased') AND kind NOT IN ('persona-signal', 'keepalive', 'batch');
