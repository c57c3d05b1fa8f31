-- Hub format 4: a sign of life that is answered with all that a node without work wants to know, so that a thousand of them
-- cost one small call every few seconds each.
--
-- It does not wait for the disk: what a crash of the hub takes away with it, the node says again at once.
CREATE FUNCTION everloop.beat(at_ms bigint, whose text, said text,
                              OUT seen_at bigint, OUT led_until bigint, OUT wish text, OUT waiting boolean, OUT seq bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    seen_at := coalesce(at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    INSERT INTO everloop.nodes (id, info, seen_at) VALUES (whose, said, beat.seen_at)
    ON CONFLICT (id) DO UPDATE SET info = excluded.info, seen_at = excluded.seen_at;
    SELECT l.until INTO led_until FROM everloop.leader l WHERE l.node <> whose;
    SELECT d.body INTO wish FROM everloop.docs d WHERE d.name = 'node' || chr(31) || whose;
    waiting := EXISTS (SELECT 1 FROM everloop.tasks t WHERE t.state = 'queued' AND t.owner IS NOT NULL);
    SELECT h.value INTO seq FROM everloop.heads h WHERE h.name = 'journal';
END
$$;
