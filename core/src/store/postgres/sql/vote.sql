-- One vote of several on a lock: as acquire.sql, with the fencing token that the client proposes to all of them alike, at most
-- an hour ahead of this server's clock; and a refusal tells the holder. $1 name, $2 owner, $3 kind, $4 time to live in
-- microseconds, $5 info, $6 whether it has a fencing token, $7 the proposal.
WITH t AS MATERIALIZED (
    SELECT c.now_us, LEAST(COALESCE($7, c.now_us), c.now_us + 3600000000) AS base
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us) c
),
before AS (
    SELECT l.kind, l.owner, l.expires_us FROM {table} l, t
    WHERE l.name = $1 AND l.owner IS NOT NULL AND l.expires_us > t.now_us
),
got AS (
    INSERT INTO {table} AS l (name, kind, owner, count, expires_us, fence, fenced, info, touched_us)
    SELECT $1, $3, $2, 1, t.now_us + $4, t.base, $6, $5, t.now_us FROM t
    WHERE NOT EXISTS (SELECT 1 FROM before WHERE owner <> $2)
    ON CONFLICT (name) DO UPDATE SET
        fence = CASE WHEN l.owner = EXCLUDED.owner AND l.expires_us > EXCLUDED.touched_us
            THEN l.fence ELSE GREATEST(l.fence + 1, EXCLUDED.fence) END,
        count = CASE WHEN l.owner = EXCLUDED.owner AND l.expires_us > EXCLUDED.touched_us
            THEN l.count ELSE 1 END,
        expires_us = CASE WHEN l.owner = EXCLUDED.owner AND l.expires_us > EXCLUDED.touched_us
            THEN GREATEST(l.expires_us, EXCLUDED.expires_us) ELSE EXCLUDED.expires_us END,
        kind = EXCLUDED.kind, owner = EXCLUDED.owner, fenced = EXCLUDED.fenced, info = EXCLUDED.info,
        touched_us = EXCLUDED.touched_us
    WHERE l.owner IS NULL OR l.owner = EXCLUDED.owner OR l.expires_us <= EXCLUDED.touched_us
    RETURNING l.fence, l.tableoid::bigint AS table_id
)
SELECT t.now_us, got.fence, before.kind, before.expires_us - t.now_us, COALESCE(before.owner = $2, false), before.owner, got.table_id
FROM t LEFT JOIN got ON true LEFT JOIN before ON true
