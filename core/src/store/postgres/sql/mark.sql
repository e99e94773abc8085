-- Somebody waits for these locks: their release is announced for the next ten seconds. $1 names. Others who wait may have
-- marked a row already; a row that is not there yet is made, for nobody. Tells the names that are marked now: not those
-- whose row another session keeps locked, so that it delays no other.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
wanted AS MATERIALIZED (SELECT u.name FROM unnest($1::bytea[]) AS u(name)),
due AS (
    SELECT l.name FROM wanted JOIN {table} l ON l.name = wanted.name, t
    WHERE l.waited_us < t.now_us + 8000000
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
),
marked AS (
    UPDATE {table} l SET waited_us = t.now_us + 10000000 FROM due, t WHERE l.name = due.name RETURNING l.name
),
made AS (
    INSERT INTO {table} AS l (name, kind, owner, count, expires_us, fence, fenced, info, touched_us, waited_us)
    SELECT wanted.name, 1, NULL, 0, 0, 0, false, NULL, t.now_us, t.now_us + 10000000 FROM wanted, t
    WHERE NOT EXISTS (SELECT 1 FROM {table} there WHERE there.name = wanted.name)
    ORDER BY wanted.name
    ON CONFLICT (name) DO NOTHING RETURNING l.name
)
SELECT name FROM marked UNION ALL SELECT name FROM made UNION ALL
SELECT l.name FROM wanted JOIN {table} l ON l.name = wanted.name, t WHERE l.waited_us >= t.now_us + 8000000
