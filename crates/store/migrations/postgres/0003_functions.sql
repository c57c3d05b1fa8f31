-- Hub format 3: what nodes do all day, as functions. A backend plans their statements once and keeps the plans, also behind
-- a pooler, where no client can prepare any; planned anew each time, they cost more than what they do. Each is one fenced
-- write and says what it met; no rule stands here that does not stand in the other ledgers.

-- Whether all tasks of a JSON array of ids are done. Apart, so that claims of tasks that need no others do not carry it.
CREATE FUNCTION everloop.all_done(ids text) RETURNS boolean LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM json_array_elements_text(ids::json) d (id)
                       LEFT JOIN everloop.tasks n ON n.id = d.id WHERE n.state IS DISTINCT FROM 'done');
END
$$;

-- Leases up to `most` tasks of a loop (NULL: of no loop). The order of claims is held by `tasks_waiting_free` and
-- `tasks_waiting_owned`; the conditions stand as they do there. Rows are locked one by one until there are enough, so
-- those of others cost a look each. A locked row stays where it is, so it is found again by its place.
--
-- The plan is the same for every call, and may not sort: where the limit is a parameter, the planner expects any number of
-- rows and would rather sort the table than follow the index.
CREATE FUNCTION everloop.claim(at_ms bigint, claimant text, lease_ms bigint, whose text, most bigint)
RETURNS SETOF everloop.tasks LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
DECLARE
    now_ms bigint := coalesce(at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    due tid[];
BEGIN
    IF whose IS NULL THEN
        due := ARRAY(
            SELECT t.ctid FROM everloop.tasks t
            WHERE t.owner IS NULL AND t.state IN ('queued', 'leased')
              AND CASE t.state WHEN 'queued' THEN t.ready_at ELSE t.until END <= now_ms
              AND (t.deps = '[]' OR everloop.all_done(t.deps))
            ORDER BY t.priority DESC, t.created_at, t.id LIMIT most FOR UPDATE OF t SKIP LOCKED);
    ELSE
        due := ARRAY(
            SELECT t.ctid FROM everloop.tasks t
            WHERE t.owner = whose AND t.state IN ('queued', 'leased')
              AND CASE t.state WHEN 'queued' THEN t.ready_at ELSE t.until END <= now_ms
              AND (t.deps = '[]' OR everloop.all_done(t.deps))
            ORDER BY t.priority DESC, t.created_at, t.id LIMIT most FOR UPDATE OF t SKIP LOCKED);
    END IF;
    RETURN QUERY
        UPDATE everloop.tasks t
        SET state = 'leased', node = claimant, until = now_ms + lease_ms, fence = t.fence + 1, updated_at = now_ms
        WHERE t.ctid = ANY(due) RETURNING t.*;
END
$$;

-- The same for one task. Its plans need no settings, which cost as much as the rest.
CREATE FUNCTION everloop.claim_one(at_ms bigint, claimant text, lease_ms bigint, whose text)
RETURNS SETOF everloop.tasks LANGUAGE plpgsql
AS $$
DECLARE
    now_ms bigint := coalesce(at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    due tid;
BEGIN
    IF whose IS NULL THEN
        SELECT t.ctid INTO due FROM everloop.tasks t
        WHERE t.owner IS NULL AND t.state IN ('queued', 'leased')
          AND CASE t.state WHEN 'queued' THEN t.ready_at ELSE t.until END <= now_ms
          AND (t.deps = '[]' OR everloop.all_done(t.deps))
        ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1 FOR UPDATE OF t SKIP LOCKED;
    ELSE
        SELECT t.ctid INTO due FROM everloop.tasks t
        WHERE t.owner = whose AND t.state IN ('queued', 'leased')
          AND CASE t.state WHEN 'queued' THEN t.ready_at ELSE t.until END <= now_ms
          AND (t.deps = '[]' OR everloop.all_done(t.deps))
        ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1 FOR UPDATE OF t SKIP LOCKED;
    END IF;
    RETURN QUERY
        UPDATE everloop.tasks t
        SET state = 'leased', node = claimant, until = now_ms + lease_ms, fence = t.fence + 1, updated_at = now_ms
        WHERE t.ctid = due RETURNING t.*;
END
$$;

-- Ends tasks, each under its fence: all of them, or none and the error EL001. They come ordered by id and are locked in that
-- order, so that two that end the same tasks do not wait in a circle. A task has a node exactly while it is leased; said
-- by its state, the planner might walk along all leased tasks instead of looking each up by its key.
CREATE FUNCTION everloop.finish(at_ms bigint, ids text[], fences bigint[], ends text[], results text[])
RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    now_ms bigint := coalesce(at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    ended bigint;
BEGIN
    UPDATE everloop.tasks t
    SET state = w.state, node = NULL, until = NULL, result = w.result, updated_at = now_ms
    FROM unnest(ids, fences, ends, results) w (id, fence, state, result)
    WHERE t.id = w.id AND t.fence = w.fence AND t.node IS NOT NULL;
    GET DIAGNOSTICS ended = ROW_COUNT;
    IF ended <> cardinality(ids) THEN
        RAISE EXCEPTION 'not all of these tasks are held' USING ERRCODE = 'EL001';
    END IF;
END
$$;

-- The same for one task.
CREATE FUNCTION everloop.finish_one(at_ms bigint, task text, held bigint, ending text, outcome text)
RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE everloop.tasks t
    SET state = ending, node = NULL, until = NULL, result = outcome,
        updated_at = coalesce(at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    WHERE t.id = task AND t.fence = held AND t.node IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this task is not held' USING ERRCODE = 'EL001';
    END IF;
END
$$;
