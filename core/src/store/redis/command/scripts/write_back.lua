-- Raise the fencing counter of a hold to the token that the other servers of the same quorum have.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter
-- ARGV[1]  'm' for a mutex, 'r' for a reentrant lock
-- ARGV[2]  token (the string value, or the hash field)
-- ARGV[3]  the fencing token
-- ARGV[4]  time to live of the fencing counter, ms
--
-- Reply: {us, 1, counter} with the counter as it is now, {us, 0} the hold is not there (gone, somebody else's, or of
-- another type); us is the server's clock.
--
-- Idempotent: the counter never goes back, and only goes up while the hold is there.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local mine
if ARGV[1] == 'm' then
  mine = redis.pcall('GET', KEYS[1])
  if type(mine) ~= 'table' then mine = mine == ARGV[2] end
else
  mine = redis.pcall('HEXISTS', KEYS[1], ARGV[2])
  if type(mine) ~= 'table' then mine = mine == 1 end
end
if type(mine) == 'table' then
  if string.find(mine.err, 'WRONGTYPE', 1, true) then return {now, 0} end
  return mine
end
if not mine then return {now, 0} end

local fence = tonumber(ARGV[3])
local stored = redis.pcall('GET', KEYS[2])
if type(stored) == 'table' then
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
  stored = nil
end
local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
if number and number >= 1 and number < 9007199254740991 then fence = math.max(fence, number) end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
if ARGV[1] == 'r' then redis.call('HSET', KEYS[1], 'onelock_fence', text) end
return {now, 1, fence}
