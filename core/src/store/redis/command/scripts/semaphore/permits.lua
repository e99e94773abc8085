-- A semaphore: every permit that is held is an entry with an end of its own. The layout is that of Redisson's
-- RPermitExpirableSemaphore; the clock is the server's alone.
--
-- KEYS[1]  the semaphore: a string, the number of free permits; with those that are held it makes the total
-- KEYS[2]  the permits that are held: a sorted set, id (16 bytes) -> end in ms of the server's clock
-- KEYS[3]  the mark by which the name is recognised as a semaphore
-- ARGV[1]  what to do, with arguments of its own; `prefix` is the first 14 bytes of the ids of a hold, `n` how many it
--          has, `keep` for how long the keys live at least, ms, and `tell` the channel and one or two commands to publish
--          with ('' to tell nobody)
--
--   acquire  prefix, n, ttl ms, total (0: whatever is set), keep
--              {us, 0, 0}          granted, all n
--              {us, 1, 0}          held by this hold already; ends raised, never shortened
--              {us, 2, left, 1}    too few are free; left: ms until enough of the others have ended, -1 if they never do
--              {us, 3, type}       something that is no semaphore stands there; left untouched
--              {us, 6, total}      there are `total` permits, and not as many as was said, or fewer than n; 0: none is set
--   attach   old prefix, n, ttl ms, keep, new prefix
--              {us, 0, 0} exchanged, {us, 1, 0} held by the new one already, {us, 2} neither holds all of them
--   release  prefix, n, tell
--              a number: 1 all n released, 2 the same but the server refused to publish, 3 the same and somebody listened,
--              0 not all n were there (those that were are released)
--   retain   prefix, n, for how long they stay taken, ms, tell
--              {us, 1, heard} nobody's until then, {us, 0} not all n were there
--   look       {us, 0} none is set, {us, 1, total, held, left} with the ms until the first of them ends; {us, 3, type}
--   set      total, keep, tell
--              as look; whoever holds a permit keeps it
--   force    tell
--              {us, 1, heard} all permits were taken from their holders, {us, 2} nobody held one, {us, 3, type} no semaphore
--
-- Each is idempotent. Ends are rounded up to ms and the present down, so no permit ends before its time.

local verb = ARGV[1]
local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local now = math.floor(us / 1000)
local NEVER = 922337203685477

local function text(number)
  return string.format('%.0f', number)
end

local function id(prefix, i)
  return prefix .. string.char(math.floor(i / 256), i % 256)
end

local function ids(prefix, n)
  local all = {}
  for i = 0, n - 1 do all[i + 1] = id(prefix, i) end
  return all
end

-- The reply where something else stands: a hold that was asked about is not there.
local function foreign(found)
  if verb == 'release' then return 0 end
  if verb == 'retain' then return {us, 0} end
  if verb == 'attach' then return {us, 2} end
  return {us, 3, found}
end

local function wrong(refused, key)
  if string.find(refused.err, 'WRONGTYPE', 1, true) then return foreign(redis.call('TYPE', key).ok) end
  return refused
end

local free = redis.pcall('GET', KEYS[1])
if type(free) == 'table' then return wrong(free, KEYS[1]) end
if free then
  local number = #free <= 10 and (free == '0' or string.find(free, '^%-?[1-9]%d*$')) and tonumber(free)
  if not number then return foreign('string') end
  free = number
end
local held = redis.pcall('ZCARD', KEYS[2])
if type(held) == 'table' then return wrong(held, KEYS[2]) end

-- The present end of a permit; nil for one that has ended or never was.
local function lives(permit)
  local stop = tonumber(redis.call('ZSCORE', KEYS[2], permit) or 0)
  return stop > now and stop or nil
end

local function count(all)
  local there = 0
  for i = 1, #all do
    if lives(all[i]) then there = there + 1 end
  end
  return there
end

-- Releases what is there of these permits; says how many that were, ended ones included.
local function release(all)
  if held == 0 then return 0 end
  local gone = redis.call('ZREM', KEYS[2], unpack(all))
  held = held - gone
  if free and gone > 0 then free = redis.call('INCRBY', KEYS[1], gone) end
  return gone
end

local function sweep()
  if held == 0 then return end
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now), 'LIMIT', 0, 1000)
  if #ended > 0 then release(ended) end
end

local function mark(keep)
  redis.call('SET', KEYS[3], 'semaphore', 'PX', text(keep))
end

-- The keys outlive every end. A semaphore that has no time to live (Redisson's) keeps none.
local function live(keep, again)
  local left = redis.call('PTTL', KEYS[1])
  local renew = left >= 0 and left < keep * 0.75
  if renew then redis.call('PEXPIRE', KEYS[1], text(keep)) end
  if left >= 0 and redis.call('PTTL', KEYS[2]) < keep * 0.75 then redis.call('PEXPIRE', KEYS[2], text(keep)) end
  if renew or not again then mark(keep) end
end

-- The first write is let through when the server is out of memory, and then so are the others.
local function raise(all, ttl)
  local left = redis.call('PTTL', KEYS[2])
  if left >= 0 then redis.call('PEXPIRE', KEYS[2], text(left)) else redis.call('ZREM', KEYS[2], '') end
  for i = 1, #all do
    redis.call('ZADD', KEYS[2], 'XX', 'GT', text(math.ceil(us / 1000) + ttl), all[i])
  end
end

-- How many ms until `more` further permits have ended.
local function left_until(more)
  local stop = redis.call('ZRANGE', KEYS[2], more - 1, more - 1, 'WITHSCORES')[2]
  stop = tonumber(stop)
  return stop and stop < NEVER and math.max(stop - now, 0) or -1
end

-- Publishes the number of free permits: true if the server refused, and how many listened.
local function tell(at)
  if ARGV[at] == '' then return false, 0 end
  local message = text(math.max(free or 0, 0))
  local told = redis.pcall(ARGV[at + 1] or 'PUBLISH', ARGV[at], message)
  if ARGV[at + 2] then
    local other = redis.pcall(ARGV[at + 2], ARGV[at], message)
    if type(other) == 'table' or told == 0 then told = other end
  end
  if type(told) == 'table' then return true, 0 end
  return false, told
end

if verb == 'acquire' then
  local prefix, n, ttl, total, keep = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  sweep()
  if not free then
    if total == 0 then return {us, 6, 0} end
    -- the count was lost, or never was: whoever holds permits keeps them
    free = total - held
    redis.call('SET', KEYS[1], text(free), 'PX', text(keep))
  end
  if total ~= 0 and free + held ~= total or n > free + held then return {us, 6, math.max(free + held, 0)} end
  local all = ids(prefix, n)
  local mine = held > 0 and count(all) or 0
  if mine == n then
    raise(all, ttl)
    live(keep, true)
    return {us, 1, 0}
  end
  if mine > 0 then
    -- one of them was deleted: the holder may count on the others until they end
    local stop = 0
    for i = 1, n do stop = math.max(stop, lives(all[i]) or 0) end
    return {us, 2, stop - now, 1}
  end
  if free < n then return {us, 2, left_until(n - free), 1} end
  local again = held > 0
  local stop, entries = text(math.ceil(us / 1000) + ttl), {}
  for i = 1, n do
    entries[2 * i - 1], entries[2 * i] = stop, all[i]
  end
  redis.call('ZADD', KEYS[2], unpack(entries))
  local taken = redis.pcall('DECRBY', KEYS[1], n)
  if type(taken) == 'table' then
    -- refused by an access rule: nothing is held
    redis.call('ZREM', KEYS[2], unpack(all))
    return taken
  end
  live(keep, again)
  return {us, 0, 0}
end

if verb == 'release' then
  local n = tonumber(ARGV[3])
  local gone = release(ids(ARGV[2], n))
  if gone == 0 then return 0 end
  sweep()
  local refused, heard = false, 0
  if free and free > 0 then refused, heard = tell(4) end
  if gone < n then return 0 end
  return refused and 2 or heard > 0 and 3 or 1
end

if verb == 'retain' then
  local n, stop = tonumber(ARGV[3]), math.ceil(us / 1000) + tonumber(ARGV[4])
  local all = ids(ARGV[2], n)
  if count(all) < n then
    release(all)
    return {us, 0}
  end
  local before = redis.call('PTTL', KEYS[2])
  redis.call('ZREM', KEYS[2], unpack(all))
  -- ids that no hold has: their numbers are above every n
  for i = 0, n - 1 do redis.call('ZADD', KEYS[2], text(stop), id(ARGV[2], 32768 + i)) end
  local left = redis.call('PTTL', KEYS[1])
  -- somebody may have deleted the count: the set lives as long as it did
  if left < 0 then left = before end
  if left >= 0 then redis.call('PEXPIRE', KEYS[2], text(left)) end
  return {us, 1, tell(5) and 0 or 1}
end

if verb == 'attach' then
  local n, ttl, keep = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local from, to = ids(ARGV[2], n), ids(ARGV[6], n)
  if count(to) == n then
    raise(to, ttl)
    live(keep, true)
    return {us, 1, 0}
  end
  if not free or count(from) < n then return {us, 2} end
  local ends = {}
  for i = 1, n do ends[i] = math.max(lives(from[i]), math.ceil(us / 1000) + ttl) end
  redis.call('ZREM', KEYS[2], unpack(from))
  for i = 1, n do redis.call('ZADD', KEYS[2], text(ends[i]), to[i]) end
  live(keep, true)
  return {us, 0, 0}
end

local function look()
  if not free then return {us, 0} end
  local live_now = redis.call('ZCOUNT', KEYS[2], '(' .. text(now), '+inf')
  local left = live_now > 0 and left_until(held - live_now + 1) or -1
  return {us, 1, math.max(free + held, 0), live_now, left}
end

if verb == 'set' then
  local total, keep = tonumber(ARGV[2]), tonumber(ARGV[3])
  sweep()
  local known = free
  free = total - held
  if known then
    redis.call('SET', KEYS[1], text(free), 'KEEPTTL')
  else
    redis.call('SET', KEYS[1], text(free), 'PX', text(keep))
  end
  mark(keep)
  if free > 0 then tell(4) end
  return look()
end

if verb == 'force' then
  local known = redis.pcall('GET', KEYS[3])
  if not free or held == 0 and known ~= 'semaphore' then return {us, 3, free and 'string' or 'none'} end
  if held == 0 then return {us, 2} end
  redis.call('DEL', KEYS[2])
  free = redis.call('INCRBY', KEYS[1], held)
  return {us, 1, tell(2) and 0 or 1}
end

return look()
