-- Hub format 7: a task whose turn kept no work is over, and unlocks nothing: tasks that come after it wait. Its result
-- begins with the outcome of the turn; one that was finished by hand has another result, or none.
CREATE OR REPLACE FUNCTION everloop.all_done(ids text) RETURNS boolean LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM json_array_elements_text(ids::json) d (id)
                       LEFT JOIN everloop.tasks n ON n.id = d.id
                       WHERE n.state IS DISTINCT FROM 'done'
                          OR (left(n.result, 7) = '{"is":"'
                              AND n.result !~ '^[{]"is":"(reached|progress|not_yet)"'));
END
$$;
