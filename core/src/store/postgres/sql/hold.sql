-- Move the end of one hold, and set its count. $1 name, $2 owner, $3 time to live in microseconds, $4 count or null.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
done AS (
    UPDATE {table} l SET expires_us = GREATEST(l.expires_us, t.now_us + $3), count = COALESCE($4, l.count) FROM t
    WHERE l.name = $1 AND l.owner = $2 AND l.expires_us > t.now_us RETURNING 1
)
SELECT t.now_us, EXISTS (SELECT 1 FROM done) FROM t
