-- The names of held locks, in order. $1 after which name, $2 how many rows to look at. The last row tells how far it got,
-- unless that was all.
WITH looked AS MATERIALIZED (
    SELECT l.name, l.owner IS NOT NULL AND l.expires_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS held
    FROM {table} l WHERE l.name > $1 ORDER BY l.name LIMIT $2
)
SELECT name, false FROM looked WHERE held
UNION ALL SELECT last.name, true FROM (SELECT name FROM looked ORDER BY name OFFSET $2 - 1 LIMIT 1) last
