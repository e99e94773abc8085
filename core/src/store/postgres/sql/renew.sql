-- Move the ends of holds. $1 names, $2 owners, $3 times to live in microseconds. A row that another session keeps locked is
-- skipped, so that it delays no other.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
mine AS (
    SELECT l.name, h.number, h.ttl_us
    FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS h(name, owner, ttl_us, number)
    JOIN {table} l ON l.name = h.name AND l.owner = h.owner, t
    WHERE l.expires_us > t.now_us
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
),
done AS (
    UPDATE {table} l SET expires_us = GREATEST(l.expires_us, t.now_us + mine.ttl_us) FROM mine, t
    WHERE l.name = mine.name RETURNING mine.number
)
SELECT t.now_us, done.number FROM t LEFT JOIN done ON true
