-- Take a reentrant lock if it is free. The layout is that of Redisson's RLock, with fields of our own beside the owner's.
--
-- KEYS[1]  the lock: a hash {owner: count, onelock_fence: n, onelock_info: text}
-- KEYS[2]  the fencing counter; left out when fencing is off
-- ARGV[1]  owner: the hash field, fresh for every outermost acquisition
-- ARGV[2]  time to live of the lock, ms
-- ARGV[3]  text for inspection, '' for none
-- ARGV[4]  time to live of the fencing counter, ms; left out with KEYS[2]
-- ARGV[5]  only when this server is one of several (Redlock): the fencing token that the client proposes to all of them
--          alike, in place of this server's clock, and at most an hour ahead of that; ARGV[4] is '0' with KEYS[2] left out
--
-- Reply, always an array that begins with the server's clock in us:
--   {us, 0, fence}       granted with count 1 (fence 0: fencing is off)
--   {us, 1, fence}       held by this owner already; count unchanged, time to live refreshed, never shortened
--   {us, 2, pttl, 1}     held by somebody else, whose release will be published; with ARGV[5] a fifth item is the owner
--   {us, 3, type}        no reentrant lock stands there (a hash with any other field is none); left untouched
--
-- Idempotent: a second run by the same owner answers 1 with the same fence, kept in the hash.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local owner, ttl, info = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local fenced = KEYS[2] ~= nil
local base = ARGV[5] and math.min(tonumber(ARGV[5]), now + 3600000000) or now

local function text(number)
  return string.format('%.0f', number)
end

local function believable(stored)
  local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

-- The stored counter, or nil if there is none that can be believed.
local function counter()
  local stored = redis.pcall('GET', KEYS[2])
  if type(stored) == 'table' then
    if string.find(stored.err, 'WRONGTYPE', 1, true) then return nil end
    return nil, stored
  end
  return believable(stored)
end

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

-- Who else holds it.
local function holder(fields)
  for i = 1, #fields, 2 do
    if fields[i] ~= 'onelock_fence' and fields[i] ~= 'onelock_info' then return fields[i] end
  end
  return ''
end

local found = redis.pcall('HMGET', KEYS[1], owner, 'onelock_fence')
if found.err then
  if string.find(found.err, 'WRONGTYPE', 1, true) then
    return {now, 3, redis.call('TYPE', KEYS[1]).ok}
  end
  return found
end

local mine = found[1]
if not mine and redis.call('EXISTS', KEYS[1]) == 1 then
  local fields = lock_fields()
  if not fields then return {now, 3, 'hash'} end
  return {now, 2, redis.call('PTTL', KEYS[1]), 1, ARGV[5] and holder(fields)}
end

local fence, drawn = 0, false
if fenced then
  fence = mine and believable(found[2])
  if not fence then
    local stored, refused = counter()
    if refused then return refused end
    fence, drawn = math.max((stored or 0) + 1, base), true
  end
end

if mine then
  redis.call('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), ttl)))
  if drawn then
    redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[4])
    redis.call('HSET', KEYS[1], 'onelock_fence', text(fence))
  end
  return {now, 1, fence}
end

-- The counter goes first: should a later write be refused (an access rule), nothing is held.
local fields = {owner, '1'}
if fenced then
  redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[4])
  fields[3], fields[4] = 'onelock_fence', text(fence)
end
if info ~= '' then
  fields[#fields + 1] = 'onelock_info'
  fields[#fields + 1] = info
end
redis.call('HSET', KEYS[1], unpack(fields))
local bounded = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(bounded) == 'table' then
  -- a user who may not PEXPIRE must not leave a lock that lasts for ever
  redis.call('DEL', KEYS[1])
  return bounded
end
return {now, 0, fence}
