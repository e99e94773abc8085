-- Exchange the owner of a hold that was handed over. $1 name, $2 new owner, $3 kind, $4 time to live in microseconds, $5 info,
-- $6 former owner.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
before AS (
    SELECT l.owner FROM {table} l, t WHERE l.name = $1 AND l.owner = $2 AND l.expires_us > t.now_us
),
done AS (
    UPDATE {table} l SET owner = $2, info = $5, expires_us = GREATEST(l.expires_us, t.now_us + $4), touched_us = t.now_us FROM t
    WHERE l.name = $1 AND l.kind = $3 AND (l.owner = $2 OR l.owner = $6) AND l.expires_us > t.now_us
    RETURNING l.fence, l.fenced
)
SELECT t.now_us, done.fence, done.fenced, EXISTS (SELECT 1 FROM before) FROM t LEFT JOIN done ON true
