-- Sent once on a new connection: may this server be written to, is the table there, which version is it, and which server?
-- No two servers started at the same microsecond.
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on', to_regclass($1) IS NOT NULL,
    current_setting('server_version_num')::integer,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
