-- The resource's half of fencing, for a value that is kept in Redis or Valkey: write it unless a higher token was seen.
--
-- KEYS[1]  the guarded value
-- KEYS[2]  the highest fencing token seen for it; same cluster slot, for example stock:{42} and fence:{42}
-- ARGV[1]  the writer's fencing token
-- ARGV[2]  the new value
--
-- Reply: {1, token} written, {0, highest} refused: the writer's lock went to somebody else, it must stop.
--
-- Idempotent: the same token may write again. Tokens are compared as numbers; below 2^53 they are exact.

local token = tonumber(ARGV[1])
if not token then return redis.error_reply('ERR the fencing token is no number') end
local highest = tonumber(redis.call('GET', KEYS[2]) or '0')
if token < highest then
  return {0, string.format('%.0f', highest)}
end
redis.call('SET', KEYS[2], string.format('%.0f', token))
redis.call('SET', KEYS[1], ARGV[2])
return {1, string.format('%.0f', token)}
