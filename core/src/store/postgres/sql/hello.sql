-- Sent once on a new connection: may this server be written to, and is the table there?
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on', to_regclass($1) IS NOT NULL
