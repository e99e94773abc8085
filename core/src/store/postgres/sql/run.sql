-- Which run of the server this is, and which data it has: asked on every new connection of a store that votes as one of several.
-- A promoted standby or a backup that was brought up to date has another timeline, a dump that was read in another table. A
-- copy of the files that is just started tells nothing of itself. $1 the table.
SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
    GREATEST(0, (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint),
    s.system_identifier,
    GREATEST(0, (extract(epoch FROM clock_timestamp()))::bigint - (s.system_identifier >> 32)),
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
    COALESCE(to_regclass($1)::oid::bigint, 0),
    current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off'
        AND COALESCE((SELECT c.relpersistence = 'p' FROM pg_class c WHERE c.oid = to_regclass($1)), false)
FROM pg_control_system() s
