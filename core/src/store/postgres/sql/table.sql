-- The table of locks. A row stays when its lock is free: it keeps the fencing counter.
CREATE TABLE IF NOT EXISTS {table} (
    name bytea NOT NULL PRIMARY KEY,
    kind smallint NOT NULL,
    owner text COLLATE "C",
    count bigint NOT NULL,
    expires_us bigint NOT NULL,
    fence bigint NOT NULL,
    fenced boolean NOT NULL,
    info text COLLATE "C",
    touched_us bigint NOT NULL,
    waited_us bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500)
