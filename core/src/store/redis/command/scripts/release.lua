-- Release a hold of either kind, and tell the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  'm' for a mutex, 'r' for a reentrant lock
-- ARGV[2]  token (the string value, or the hash field)
-- ARGV[3]  channel; '' to tell nobody, of what never was a hold
-- ARGV[4]  command to publish with, PUBLISH when left out; SPUBLISH for the sharded channels of a cluster; TIME where this
--          server is one of several (Redlock): it publishes with PUBLISH, and the reply tells the server's clock
-- ARGV[5]  a second such command, to publish with both; may be left out
--
-- Reply, a number: 1 deleted, 2 deleted but the server refused to publish, so waiters find out by themselves, 3 deleted and
-- somebody listened; 0 not there (gone, somebody else's, or of another type). With TIME it is {us, number}, where us is the
-- server's clock, and never 3.
--
-- Idempotent: a second run answers 0 and touches nothing. The channel is an argument, not a key: one declared key
-- works through a slot migration. The publish comes last and guarded: without permission the delete still stands.

local timed = ARGV[4] == 'TIME'
local publish = not timed and ARGV[4] or 'PUBLISH'

local function release()
  local mine
  if ARGV[1] == 'm' then
    mine = redis.pcall('GET', KEYS[1])
    if type(mine) ~= 'table' then mine = mine == ARGV[2] end
  else
    mine = redis.pcall('HEXISTS', KEYS[1], ARGV[2])
    if type(mine) ~= 'table' then mine = mine == 1 end
  end
  if type(mine) == 'table' then
    if string.find(mine.err, 'WRONGTYPE', 1, true) then return 0 end
    return mine
  end
  if not mine then return 0 end
  redis.call('DEL', KEYS[1])
  if ARGV[3] == '' then return 1 end
  local told = redis.pcall(publish, ARGV[3], '0')
  if ARGV[5] then
    local other = redis.pcall(ARGV[5], ARGV[3], '0')
    if type(other) == 'table' or told == 0 then told = other end
  end
  if type(told) == 'table' then return 2 end
  return told > 0 and not timed and 3 or 1
end

local done = release()
if not timed or type(done) == 'table' then return done end
local clock = redis.call('TIME')
return {clock[1] * 1000000 + clock[2], done}
