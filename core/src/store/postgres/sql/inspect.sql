-- Who has the lock. $1 name.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us)
SELECT t.now_us, l.kind, l.owner, l.count, l.expires_us - t.now_us, CASE WHEN l.fenced THEN l.fence END, l.info
FROM t LEFT JOIN {table} l ON l.name = $1 AND l.owner IS NOT NULL AND l.expires_us > t.now_us
