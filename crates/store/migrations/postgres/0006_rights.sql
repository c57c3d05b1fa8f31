-- Hub format 6: the rights of a leader and of a worker are apart. A role can lead when it may update the leader lease; every
-- other role is a worker's, and the rules below hold for it whatever else it was granted. The owner of the tables is not bound.

-- What attempts at tasks show about accounts, nodes and agents is for all to write, and a node's own key. Loops, wishes about
-- nodes and the leader's notes are not.
ALTER TABLE everloop.docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY docs_read ON everloop.docs FOR SELECT USING (true);
CREATE POLICY docs_made ON everloop.docs FOR INSERT
    WITH CHECK (kind IN ('account', 'immune', 'key') OR has_table_privilege('everloop.leader'::regclass, 'UPDATE'));
CREATE POLICY docs_changed ON everloop.docs FOR UPDATE
    USING (kind IN ('account', 'immune', 'key') OR has_table_privilege('everloop.leader'::regclass, 'UPDATE'));

-- A worker opens and closes tickets about tasks, trust and the record of failures; it answers no others.
ALTER TABLE everloop.tickets ENABLE ROW LEVEL SECURITY;
CREATE POLICY tickets_read ON everloop.tickets FOR SELECT USING (true);
CREATE POLICY tickets_opened ON everloop.tickets FOR INSERT
    WITH CHECK (key LIKE ANY ('{dead:%,distrust:%,immune.%}') OR has_table_privilege('everloop.leader'::regclass, 'UPDATE'));
CREATE POLICY tickets_closed ON everloop.tickets FOR UPDATE
    USING (key LIKE ANY ('{dead:%,distrust:%,immune.%}') OR has_table_privilege('everloop.leader'::regclass, 'UPDATE'));

-- A worker takes a free task under the next fence, and renews, returns or ends one that is held; what it does in one batch is
-- one change of the row. It neither takes a task from its holder nor changes one that is over.
CREATE FUNCTION everloop.worker_changes_task() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state = 'queued' AND NEW.fence = OLD.fence + 1 THEN
        RETURN NEW;
    END IF;
    IF OLD.state = 'leased' AND NEW.fence = OLD.fence AND (NEW.state <> 'leased' OR NEW.node = OLD.node) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a worker only takes free tasks, and renews, returns and ends held ones'
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER worker_changes_task BEFORE UPDATE ON everloop.tasks FOR EACH ROW
    WHEN (NOT has_table_privilege('everloop.leader'::regclass, 'UPDATE'))
    EXECUTE FUNCTION everloop.worker_changes_task();

-- Gives an empty hub the id of one that was lost, so that a node restores it without more rights than it has. False when the
-- hub is not empty. It acts with the owner's rights, for logins that can lead; the lock ends with the transaction.
CREATE FUNCTION everloop.adopt(lost text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'everloop.leader'::regclass, 'UPDATE') THEN
        RAISE EXCEPTION 'a worker does not restore a hub' USING ERRCODE = 'insufficient_privilege';
    END IF;
    LOCK TABLE everloop.hub IN EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM everloop.tasks) OR EXISTS (SELECT 1 FROM everloop.docs)
       OR EXISTS (SELECT 1 FROM everloop.journal) OR EXISTS (SELECT 1 FROM everloop.loops) THEN
        RETURN false;
    END IF;
    UPDATE everloop.hub SET id = lost;
    RETURN true;
END
$$;
