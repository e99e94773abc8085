-- Somebody waits for these locks: their release is announced for the next ten seconds. $1 names. Others who wait may have
-- marked a row already; a row that is not there yet is made, for nobody.
INSERT INTO {table} AS l (name, kind, owner, count, expires_us, fence, fenced, info, touched_us, waited_us)
SELECT u.name, 1, NULL, 0, 0, 0, false, NULL, t.now_us, t.now_us + 10000000
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us) t, unnest($1::bytea[]) AS u(name)
ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET waited_us = EXCLUDED.waited_us WHERE l.waited_us < EXCLUDED.waited_us - 2000000
