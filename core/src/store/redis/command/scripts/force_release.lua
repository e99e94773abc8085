-- Delete a lock of any kind, whoever holds it, and tell the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  channel of the mutex
-- ARGV[2]  channel of the reentrant lock
-- ARGV[3]  channel of the read/write lock
-- ARGV[4]  '1': a string without time to live is a lock, too; '0': it may be anybody's data
-- ARGV[5]  command to publish with, PUBLISH when left out; SPUBLISH for the sharded channels of a cluster
-- ARGV[6]  a second such command, to publish with both; may be left out
--
-- Reply, us being the server's clock:
--   {us, 0}         nothing was there
--   {us, 1, heard}  deleted; heard 0: the server refused to publish, so waiters find out by themselves
--   {us, 2, type}   not recognisably a lock; left untouched
--
-- A lock is a string of ours, a string with time to live, a hash of one owner `<uuid>:<number>` and our own notes, a
-- read/write lock, or a fair lock; queues stay.
--
-- Idempotent. Meant for people: it can take a lock from a live holder, who finds out at its next renewal.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {now, 0} end

-- Whether a field is that of an owner: `<uuid>:<number>`, in our locks and in Redisson's.
local function is_owner(field)
  return string.sub(field, 37, 37) == ':' and string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') ~= nil
end

-- The fields of a reentrant lock, or nil for any other hash. A lock has one owner and three fields at most; the bound
-- keeps a foreign giant from blocking the server.
local function lock_fields()
  local found = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)
  local fields, owners = found[2], 0
  if found[1] ~= '0' or #fields > 6 then return nil end
  for i = 1, #fields, 2 do
    if fields[i] ~= 'onelock_fence' and fields[i] ~= 'onelock_info' then
      if not is_owner(fields[i]) then return nil end
      owners = owners + 1
    end
  end
  return owners <= 1 and fields or nil
end

local function is_mutex()
  return ARGV[4] == '1' or redis.call('PTTL', KEYS[1]) >= 0 or redis.call('GETRANGE', KEYS[1], 0, 8) == 'onelock1:'
end

local function is_fair()
  if redis.call('HMGET', KEYS[1], 'mode')[1] ~= 'fair' then return false end
  local found = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)
  return found[1] == '0' and #found[2] <= 8
end

-- A read/write lock has any number of owners; so many are looked at.
local function is_shared()
  local mode = redis.call('HMGET', KEYS[1], 'mode')[1]
  if mode ~= 'read' and mode ~= 'write' then return false end
  local fields, holds = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)[2], false
  for i = 1, #fields, 2 do
    local field = fields[i]
    local note = field == 'mode' or field == 'onelock_fence' or field == 'onelock_info'
    if not note and not is_owner((string.gsub(field, ':write$', ''))) then return false end
    holds = holds or not note or field == 'onelock_info'
  end
  return holds
end

local channel, message = nil, '0'
if kind == 'string' and is_mutex() then
  channel = ARGV[1]
elseif kind == 'hash' and is_fair() then
  -- who waits asks again within 200 ms, and the first to do so makes the head the holder
  redis.call('DEL', KEYS[1])
  return {now, 1, 1}
elseif kind == 'hash' and is_shared() then
  channel, message = ARGV[3], '1'
elseif kind == 'hash' and lock_fields() then
  channel = ARGV[2]
else
  return {now, 2, kind}
end
redis.call('DEL', KEYS[1])
local told = redis.pcall(ARGV[5] or 'PUBLISH', channel, message)
if ARGV[6] then
  local other = redis.pcall(ARGV[6], channel, message)
  if type(other) == 'table' then told = other end
end
return {now, 1, type(told) == 'table' and 0 or 1}
