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

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local token = ARGV[1]
local fenced = KEYS[2] ~= nil
local base = ARGV[4] and math.min(tonumber(ARGV[4]), now + 3600000000) or now

local function text(number)
  return string.format('%.0f', number)
end

-- The stored counter as a number, or nil if there is none that can be believed.
local function counter(stored)
  local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return {now, 3, redis.call('TYPE', KEYS[1]).ok}
  end
  return held
end

if held and held ~= token then
  local announces = string.sub(held, 1, 9) == 'onelock1:' and 1 or 0
  return {now, 2, redis.call('PTTL', KEYS[1]), announces, ARGV[4] and held}
end

if held then
  local fence = 0
  if fenced then
    local stored = redis.pcall('GET', KEYS[2])
    if type(stored) == 'table' then
      if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
      stored = nil
    end
    fence = counter(stored) or base
  end
  -- first: a script that has written is not stopped for want of memory
  redis.call('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))))
  if fenced then redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[3]) end
  return {now, 1, fence}
end

-- The counter goes first: should the second write be refused (an access rule), nothing is held. It is read while it is
-- written, and the clock goes into it as the server spelt it: to spell such a number costs Lua as much as a command.
local fence = 0
if fenced then
  local spelt = ARGV[4] and text(base) or clock[1] .. string.sub('00000' .. clock[2], -6)
  local stored = redis.pcall('SET', KEYS[2], spelt, 'PX', ARGV[3], 'GET')
  local wrong = type(stored) == 'table'
  if wrong and not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
  local last = not wrong and counter(stored)
  fence = last and last >= base and last + 1 or base
  if wrong or fence ~= base then redis.call('SET', KEYS[2], text(fence), 'PX', ARGV[3]) end
end
redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
return {now, 0, fence}
