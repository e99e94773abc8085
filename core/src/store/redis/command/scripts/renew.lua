-- Refresh the time to live of holds that are still there. A missing key is never created again.
--
-- KEYS[i]      the locks, of either kind
-- ARGV[3i-2]   'm' for a mutex, 'r' for a reentrant lock
-- ARGV[3i-1]   token (the string value, or the hash field)
-- ARGV[3i]     time to live, ms; what is left is never shortened
--
-- Reply: {us, verdict 1, verdict 2, ...}, where us is the server's clock and a verdict is
--   1      still this token's, refreshed
--   0      gone, somebody else's, or of another type
--   text   the server's error for this key alone; nothing is known about it
--
-- Idempotent. The first write is PEXPIRE, which is let through when the server is out of memory.

local clock = redis.call('TIME')
local reply = {clock[1] * 1000000 + clock[2]}

local function renew(key, kind, token, ttl)
  local mine
  if kind == 'm' then
    mine = redis.pcall('GET', key)
    if type(mine) ~= 'table' then mine = mine == token end
  else
    mine = redis.pcall('HEXISTS', key, token)
    if type(mine) ~= 'table' then mine = mine == 1 end
  end
  if type(mine) == 'table' then
    if string.find(mine.err, 'WRONGTYPE', 1, true) then return 0 end
    return mine.err
  end
  if not mine then return 0 end
  local left = redis.pcall('PTTL', key)
  if type(left) == 'table' then return left.err end
  local done = redis.pcall('PEXPIRE', key, string.format('%.0f', math.max(left, ttl)))
  if type(done) == 'table' then return done.err end
  return done
end

for i, key in ipairs(KEYS) do
  reply[i + 1] = renew(key, ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i]))
end
return reply
