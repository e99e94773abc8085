-- Raise the fencing counter of a hold to the token that the other stores of the same majority have. $1 name, $2 owner, $3 the
-- token. The counter never goes back.
WITH t AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
done AS (
    UPDATE {table} l SET fence = GREATEST(l.fence, $3), fenced = true FROM t
    WHERE l.name = $1 AND l.owner = $2 AND l.expires_us > t.now_us RETURNING l.fence
)
SELECT t.now_us, done.fence FROM t LEFT JOIN done ON true
