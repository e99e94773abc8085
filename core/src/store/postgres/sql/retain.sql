-- End a hold but keep the lock taken, by nobody. $1 name, $2 owner, $3 for how many microseconds, $4 who stands for nobody.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
gone AS (
    UPDATE {table} l SET owner = $4, count = 0, expires_us = t.now_us + $3, info = NULL, touched_us = t.now_us FROM t
    WHERE l.name = $1 AND l.owner = $2 AND l.expires_us > t.now_us RETURNING l.waited_us > t.now_us AS waited
)
SELECT t.now_us, EXISTS (SELECT 1 FROM gone),
    (SELECT pg_notify('onelock', encode($1, 'hex'))::text FROM gone WHERE waited)
FROM t
