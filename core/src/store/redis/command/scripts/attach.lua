-- Go on with a hold of any kind that was handed over: its token is exchanged for a new one, so that the proof that was
-- handed over proves nothing any more, however often it arrives.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter of a mutex; left out for a reentrant lock, whose hash has its token
-- ARGV[1]  'm' for a mutex, 'r' for a reentrant lock
-- ARGV[2]  the token that was handed over (the string value, or the hash field)
-- ARGV[3]  the new token
-- ARGV[4]  time to live, ms; what is left is never shortened
-- ARGV[5]  text for inspection of a reentrant lock, '' for none
--
-- Reply, always an array that begins with the server's clock in us:
--   {us, 0, fence}  exchanged; fence 0: none is known
--   {us, 1, fence}  held by the new token already
--   {us, 2}         neither token holds it (gone, somebody else's, or no lock); left untouched
--
-- Idempotent: a second run with the same new token answers 1. The fencing token and the count stay what they are.
-- PEXPIRE goes first: it is let through when the server is out of memory, and then so is what follows.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local from, token = ARGV[2], ARGV[3]

local function text(number)
  return string.format('%.0f', number)
end

local function believable(stored)
  local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return 0
end

local function lifetime()
  return text(math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[4])))
end

local held
if ARGV[1] == 'm' then
  held = redis.pcall('GET', KEYS[1])
else
  held = redis.pcall('HMGET', KEYS[1], token, from, 'onelock_fence', 'mode')
end
if type(held) == 'table' and held.err then
  if string.find(held.err, 'WRONGTYPE', 1, true) then return {now, 2} end
  return held
end

if ARGV[1] == 'm' then
  if held ~= from and held ~= token then return {now, 2} end
  local stored = redis.pcall('GET', KEYS[2])
  if type(stored) == 'table' then
    if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
    stored = nil
  end
  local ttl = lifetime()
  redis.call('PEXPIRE', KEYS[1], ttl)
  if held == token then return {now, 1, believable(stored)} end
  redis.call('SET', KEYS[1], token, 'PX', ttl)
  return {now, 0, believable(stored)}
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

local again, count, fence = held[1], held[2], held[3]
local fair = held[4] == 'fair'
if not again and (not count or not fair and not lock_fields()) then return {now, 2} end
local ttl = lifetime()
redis.call('PEXPIRE', KEYS[1], ttl)
if again then return {now, 1, believable(fence)} end

-- what it is already: a user who may not HSET is refused while the hold is still whole
redis.call('HSET', KEYS[1], from, count)
local fields = {token, count}
if ARGV[5] ~= '' then
  fields[3], fields[4] = 'onelock_info', ARGV[5]
end
-- the key stays: where its slot moves, one that was deleted could not be written again
if type(redis.pcall('HDEL', KEYS[1], 'onelock_info')) == 'number' then
  redis.call('HSET', KEYS[1], unpack(fields))
  redis.call('HDEL', KEYS[1], from)
  return {now, 0, believable(fence)}
end

-- a user who may not HDEL, which nobody needs who has reentrant locks on one server
if fair then
  fields[#fields + 1] = 'mode'
  fields[#fields + 1] = 'fair'
end
if fence then
  fields[#fields + 1] = 'onelock_fence'
  fields[#fields + 1] = fence
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], ttl)
return {now, 0, believable(fence)}
