-- Delete a lock of either kind, whoever holds it, and tell the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  channel of the mutex
-- ARGV[2]  channel of the reentrant lock
-- ARGV[3]  command to publish with, PUBLISH when left out; SPUBLISH for the sharded channels of a cluster
-- ARGV[4]  a second such command, to publish with both; may be left out
--
-- Reply, us being the server's clock:
--   {us, 0}         nothing was there
--   {us, 1, heard}  deleted; heard 0: the server refused to publish, so waiters find out by themselves
--   {us, 2, type}   no lock of ours (a hash with the field `mode` is a read/write lock); left untouched
--
-- Idempotent. Meant for people: it can take a lock from a live holder, who finds out at its next renewal.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {now, 0} end

local channel
if kind == 'string' then
  channel = ARGV[1]
elseif kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'mode') == 0 then
  channel = ARGV[2]
else
  return {now, 2, kind}
end
redis.call('DEL', KEYS[1])
local told = redis.pcall(ARGV[3] or 'PUBLISH', channel, '0')
if ARGV[4] then
  local other = redis.pcall(ARGV[4], channel, '0')
  if type(other) == 'table' then told = other end
end
return {now, 1, type(told) == 'table' and 0 or 1}
