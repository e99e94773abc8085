-- The names of held locks, in order. $1 after which name, $2 how many.
SELECT l.name FROM {table} l
WHERE l.name > $1 AND l.owner IS NOT NULL AND l.expires_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
ORDER BY l.name LIMIT $2
