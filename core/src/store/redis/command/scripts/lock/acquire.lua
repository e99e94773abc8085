-- Take a mutex if it is free.
--
-- KEYS[1]  the lock: a string whose value is the owner's token
-- KEYS[2]  the fencing counter; left out when fencing is off
-- ARGV[1]  token
-- ARGV[2]  time to live of the lock, ms
-- ARGV[3]  time to live of the fencing counter, ms; left out with KEYS[2]
-- ARGV[4]  only when this server is one of several (Redlock): the fencing token that the client proposes to all of them
--          alike, in place of this server's clock, and at most an hour ahead of that; ARGV[3] is '0' with KEYS[2] left out
--
-- Reply, always an array that begins with the server's clock in us:
--   {us, 0, fence}            granted (fence 0: fencing is off)
--   {us, 1, fence}            held by this token already; time to live refreshed, never shortened
--   {us, 2, pttl, announces}  held by somebody else; announces 1: its release will be published; with ARGV[4] a fifth
--                             item is the holder's token
--   {us, 3, type}             something that is no mutex stands there; left untouched
--
-- Idempotent: a second run by the same token answers 1 with the same fence. Only if the counter was lost meanwhile
-- a new and higher fence is drawn and stored.

-- A free lock comes first, in as few commands as there can be. The server is asked to take it before anything is looked at:
-- refused, because it is held or for whatever reason, nothing was written. Should the counter be refused (an access rule),
-- the key is deleted again.

local taken = redis.pcall('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local free = taken and taken.ok
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local fenced = KEYS[2] ~= nil
if free and not fenced then return {now, 0, 0} end

-- The counter is read while it is written, and the clock goes into it as the server spelt it: to spell such a number costs
-- Lua as much as a command.
local base, stored = now, nil
if ARGV[4] then base = math.min(tonumber(ARGV[4]), now + 3600000000) end
if free then
  local spelt = ARGV[4] and string.format('%.0f', base) or clock[1] .. string.sub('00000' .. clock[2], -6)
  stored = redis.pcall('SET', KEYS[2], spelt, 'PX', ARGV[3], 'GET')
  -- nothing, or a number that is behind, or none at all
  if not stored or type(stored) == 'string' and (tonumber(stored) or 0) < base then return {now, 0, base} end
end

local function text(number)
  return string.format('%.0f', number)
end

-- The stored counter as a number, or nil if there is none that can be believed.
local function counter(text)
  local number = text and string.find(text, '^%d+$') and tonumber(text)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

if free then
  local wrong = type(stored) == 'table'
  if wrong and not string.find(stored.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', KEYS[1])
    return stored
  end
  local last = not wrong and counter(stored)
  local fence = last and last >= base and last + 1 or base
  if wrong or fence ~= base then redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[3]) end
  return {now, 0, fence}
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return {now, 3, redis.call('TYPE', KEYS[1]).ok}
  end
  return held
end
-- nobody has it, so the server refused to write
if not held then return taken end

if held ~= ARGV[1] then
  -- a number may be the free permits of a semaphore, whose mark stands where the counter of a mutex does
  if fenced and string.find(held, '^%-?%d+$') and redis.pcall('GET', KEYS[2]) == 'semaphore' then
    return {now, 3, 'semaphore'}
  end
  local announces = string.sub(held, 1, 9) == 'onelock1:' and 1 or 0
  return {now, 2, redis.call('PTTL', KEYS[1]), announces, ARGV[4] and held}
end

local fence = 0
if fenced then
  local number = redis.pcall('GET', KEYS[2])
  if type(number) == 'table' then
    if not string.find(number.err, 'WRONGTYPE', 1, true) then return number end
    number = nil
  end
  fence = counter(number) or base
end
-- first: a script that has written is not stopped for want of memory
redis.call('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
if fenced then redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[3]) end
return {now, 1, fence}
