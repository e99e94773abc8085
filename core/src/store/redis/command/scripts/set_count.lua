-- Set the hold count of a reentrant lock that is still there, and refresh its time to live.
--
-- KEYS[1]  the lock: a hash
-- ARGV[1]  owner: the hash field
-- ARGV[2]  time to live, ms; what is left is never shortened
-- ARGV[3]  the absolute count, at least 1
--
-- Reply: {us, 1} done, {us, 0} not there (gone, somebody else's, or of another type); us is the server's clock.
--
-- Idempotent, because the count is set and never incremented. PEXPIRE goes first: it is let through when the server is
-- out of memory, and then so is the HSET behind it.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local mine = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(mine) == 'table' then
  if string.find(mine.err, 'WRONGTYPE', 1, true) then return {now, 0} end
  return mine
end
if mine == 0 then return {now, 0} end
local left = redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, tonumber(ARGV[2]))))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {now, 1}
