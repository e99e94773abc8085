-- Take several mutexes, all or none.
--
-- KEYS     the n locks, then their n fencing counters; those are left out when fencing is off. No key is there twice
-- ARGV[1]  n
-- ARGV[2]  token of the first lock
-- ARGV[3]  its time to live, ms
-- ARGV[4]  time to live of its fencing counter, ms; 0 when fencing is off
--          and so on: three for each lock
--
-- Reply, always an array that begins with the server's clock in us:
--   {us, 0, verdict, fence ..}     all are held by their tokens now, two numbers for each: 0 taken, 1 held before, its time to
--                                  live refreshed, never shortened; fence 0: fencing is off
--   {us, 1, i, 2, pttl, announces} nothing was taken: the i-th is held by somebody else, as in lock/acquire.lua
--   {us, 1, i, 3, type}            nothing was taken: the i-th is no mutex
--
-- Idempotent: a second run with the same tokens answers 1 for each with the same fence; what has ended meanwhile it takes
-- again. First all are looked at, then all are written: nobody sees some of them taken. Should a write be refused (an access
-- rule, no memory), what was written before it in this run is deleted again.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local count = tonumber(ARGV[1])
local fenced = KEYS[count + 1] ~= nil

local function text(number)
  return string.format('%.0f', number)
end

-- The stored counter as a number, or nil if there is none that can be believed.
local function counter(text)
  local number = text and string.find(text, '^%d+$') and tonumber(text)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

local mine = {}
for i = 1, count do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
    return {now, 1, i, 3, redis.call('TYPE', KEYS[i]).ok}
  end
  mine[i] = held == ARGV[3 * i - 1]
  if held and not mine[i] then
    -- a number may be the free permits of a semaphore, whose mark stands where the counter of a mutex does
    if fenced and string.find(held, '^%-?%d+$') and redis.pcall('GET', KEYS[count + i]) == 'semaphore' then
      return {now, 1, i, 3, 'semaphore'}
    end
    return {now, 1, i, 2, redis.call('PTTL', KEYS[i]), string.sub(held, 1, 9) == 'onelock1:' and 1 or 0}
  end
end

local function undo(upto, refused)
  for i = 1, upto do
    if not mine[i] then redis.call('DEL', KEYS[i]) end
  end
  return refused
end

local spelt = clock[1] .. string.sub('00000' .. clock[2], -6)
local reply = {now, 0}
for i = 1, count do
  local token, ttl, fence_ttl = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if mine[i] then
    -- first: a script that has written is not stopped for want of memory
    redis.call('PEXPIRE', KEYS[i], text(math.max(redis.call('PTTL', KEYS[i]), tonumber(ttl))))
  else
    local taken = redis.pcall('SET', KEYS[i], token, 'PX', ttl)
    if taken.err then return undo(i - 1, taken) end
  end
  local fence = 0
  if fenced then
    -- read while it is written, with the clock as the server spelt it: to spell such a number costs Lua as much as a command
    local stored = redis.pcall('SET', KEYS[count + i], spelt, 'PX', fence_ttl, 'GET')
    local wrong = type(stored) == 'table'
    if wrong and not string.find(stored.err, 'WRONGTYPE', 1, true) then return undo(i, stored) end
    local last = not wrong and counter(stored)
    fence = now
    if last and mine[i] then
      fence = last
    elseif last and last >= now then
      fence = last + 1
    end
    if wrong or fence ~= now then redis.call('SET', KEYS[count + i], text(fence), 'PX', fence_ttl) end
  end
  reply[2 * i + 1] = mine[i] and 1 or 0
  reply[2 * i + 2] = fence
end
return reply
