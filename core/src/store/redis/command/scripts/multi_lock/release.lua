-- Release several mutexes, and tell the waiters of each.
--
-- KEYS     the n locks
-- ARGV[1]  token of the first lock
-- ARGV[2]  its channel
--          and so on: two for each lock
-- then     command to publish with, PUBLISH when left out; SPUBLISH for the sharded channels of a cluster
-- then     a second such command, to publish with both; may be left out
--
-- Reply: {us, number ..}, the server's clock and a number for each as in release.lua: 1 deleted, 2 deleted but the server
-- refused to publish, so waiters find out by themselves, 3 deleted and somebody listened; 0 not there (gone, somebody else's,
-- or of another type).
--
-- Idempotent: a second run answers 0 and touches nothing. Each is compared by itself. All are deleted before anybody is told.

local clock = redis.call('TIME')
local reply = {clock[1] * 1000000 + clock[2]}
local publish, also = ARGV[2 * #KEYS + 1] or 'PUBLISH', ARGV[2 * #KEYS + 2]

for i = 1, #KEYS do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
    held = nil
  end
  reply[i + 1] = 0
  if held == ARGV[2 * i - 1] then
    redis.call('DEL', KEYS[i])
    reply[i + 1] = 1
  end
end

for i = 1, #KEYS do
  if reply[i + 1] == 1 then
    local told = redis.pcall(publish, ARGV[2 * i], '0')
    if also then
      local other = redis.pcall(also, ARGV[2 * i], '0')
      if type(other) == 'table' or told == 0 then told = other end
    end
    if type(told) == 'table' then
      reply[i + 1] = 2
    elseif told > 0 then
      reply[i + 1] = 3
    end
  end
end
return reply
