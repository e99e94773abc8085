-- Rows that nobody has used for seven days: after that the fencing counter goes on from the clock.
DELETE FROM {table} WHERE name IN (
    SELECT l.name FROM {table} l
    WHERE GREATEST(l.touched_us, l.expires_us) < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 604800000000 LIMIT 1000 FOR UPDATE SKIP LOCKED
)
