-- What decides how strong a fencing token is. Of several standbys of which any may confirm, one may lack the last commits.
SELECT current_setting('server_version'), current_setting('fsync') = 'on',
    current_setting('synchronous_commit') IN ('on', 'remote_apply', 'remote_write'),
    (SELECT count(*) FROM pg_stat_replication WHERE COALESCE(sync_state, 'async') <> 'sync')
    + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active)
