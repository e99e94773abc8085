-- Move the ends of holds. $1 names, $2 owners, $3 times to live in microseconds. A row that another session keeps locked is
-- skipped, so that it delays no other: it is told as there, and as not moved.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
asked AS MATERIALIZED (
    SELECT h.name, h.owner, h.ttl_us, h.number
    FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS h(name, owner, ttl_us, number)
),
mine AS (
    SELECT l.name, asked.number, asked.ttl_us
    FROM asked JOIN {table} l ON l.name = asked.name AND l.owner = asked.owner, t
    WHERE l.expires_us > t.now_us
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
),
done AS (
    UPDATE {table} l SET expires_us = GREATEST(l.expires_us, t.now_us + mine.ttl_us) FROM mine, t
    WHERE l.name = mine.name RETURNING mine.number
),
seen AS (
    SELECT asked.number FROM asked JOIN {table} l ON l.name = asked.name AND l.owner = asked.owner, t
    WHERE l.expires_us > t.now_us
)
SELECT t.now_us, seen.number, done.number IS NOT NULL
FROM t LEFT JOIN seen ON true LEFT JOIN done ON done.number = seen.number
