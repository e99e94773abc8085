-- Release a hold of either kind before its shortest time is over: the key stays for the rest of it, nobody's. Then tell
-- the waiters, who learn how long that is.
--
-- KEYS[1]  the lock
-- ARGV[1]  'm' for a mutex, 'r' for a reentrant lock
-- ARGV[2]  token (the string value, or the hash field)
-- ARGV[3]  for how long the key stays, ms
-- ARGV[4]  channel
-- ARGV[5]  command to publish with, PUBLISH when left out; SPUBLISH for the sharded channels of a cluster
-- ARGV[6]  a second such command, to publish with both; may be left out
--
-- Reply: {us, 1, heard} released, {us, 0} not there (gone, somebody else's, or of another type); us is the server's
-- clock; heard 0: the server refused to publish, so waiters find out by themselves.
--
-- Idempotent: a second run answers 0 and touches nothing. The first write is one that is let through when the server is
-- out of memory, and then so are those behind it. Never is there a moment at which the name is free: scripts run alone.

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

if ARGV[1] == 'm' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('SET', KEYS[1], 'onelock1:released', 'PX', ARGV[3])
else
  -- the key stays: where its slot moves, one that was deleted could not be written again; see attach.lua
  if type(redis.pcall('HDEL', KEYS[1], 'onelock_fence')) == 'number' then
    redis.call('HSET', KEYS[1], 'onelock_info', 'onelock1:released')
    redis.call('HDEL', KEYS[1], ARGV[2])
  else
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'onelock_info', 'onelock1:released')
  end
  local bounded = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(bounded) == 'table' then
    -- a user who may not PEXPIRE must not leave a lock that lasts for ever
    redis.call('DEL', KEYS[1])
    return bounded
  end
end
local told = redis.pcall(ARGV[5] or 'PUBLISH', ARGV[4], '0')
if ARGV[6] then
  local other = redis.pcall(ARGV[6], ARGV[4], '0')
  if type(other) == 'table' then told = other end
end
return {now, 1, type(told) == 'table' and 0 or 1}
