-- A semaphore: every permit that is held is an entry with an end of its own. The layout is that of Redisson's
-- RPermitExpirableSemaphore; the clock is the server's alone. Who waits has a place in the queue: whoever frees permits gives
-- them to the first places, as far as they go, and a place that needs more than are free holds up those behind it.
--
-- KEYS[1]  the semaphore: a string, the number of free permits; with those that are held it makes the total
-- KEYS[2], KEYS[3], ARGV[2] to ARGV[5]  as of every kind with a queue: queue.lua. A token is the first 14 bytes of the ids of a
--          hold in hex, a colon, and how many it has; '' where none is spoken of. Both keys may be KEYS[1]: without the queue
-- KEYS[4]  the mark by which the name is recognised as a semaphore
-- KEYS[5]  the permits that are held: a sorted set, id (16 bytes) -> end in ms of the server's clock
-- ARGV[1]  what to do, with arguments of its own from ARGV[9] on; `prefix` is the first 14 bytes of the ids, `n` how many, and
--          `keep` for how long the keys live at least, ms
-- ARGV[6]  the channel for Redisson's clients, which have no places; '' to tell none
-- ARGV[7]  command to publish with there
-- ARGV[8]  a second such command, '' for none
--
--   enter, try   prefix, n, ttl ms, total (0: whatever is set), keep;  for how long the place is kept (ms, at most 3000), the
--            number that it had before ('0' for none), the client (16 hex digits), '1' if its subscription is confirmed, and text
--            for inspection of the place ('' or left out: none)
--              {us, 0, 0}          granted, all n
--              {us, 1, 0}          held by this hold already; ends raised, never shortened
--              {us, 2, left, 1}    too few are free, or others wait (enter answers 4 instead, unless one of the n was deleted);
--                                  left: ms until enough of the others have ended, -1 if they never do
--              {us, 3, type}       something that is no semaphore stands there; left untouched
--              {us, 4, place, ahead, look, unheard}  it has a place, as in a fair lock; look: as left
--              {us, 6, total}      there are `total` permits, and not as many as was said, or fewer than n; 0: none is set. A
--                                  place is given up
--   attach   prefix, n, ttl ms, keep, new prefix
--              {us, 0, 0} exchanged, {us, 1, 0} held by the new one already, {us, 2} neither holds all of them
--   release  prefix, n;  a place is given up, too
--              {us, 1} all n released, {us, 2} the same but the server refused to publish, {us, 3} the same and one of
--              Redisson's listened, {us, 0} not all n were there (those that were are released)
--   retain   prefix, n, for how long they stay taken, ms
--              {us, 1, heard} nobody's until then, {us, 0} not all n were there
--   look       {us, 0} none is set, {us, 1, total, held, left} with the ms until the first of them ends; {us, 3, type}
--   set      total, keep
--              as look; whoever holds a permit keeps it
--   force      {us, 1, heard} all permits were taken from their holders, {us, 2} nobody held one, {us, 3, type} no semaphore
--
-- Each is idempotent. Ends are rounded up to ms and the present down, so no permit ends before its time.

local NEVER = 922337203685477

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
  if verb == 'release' then return {us, 0} end
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
local held = redis.pcall('ZCARD', KEYS[5])
if type(held) == 'table' then return wrong(held, KEYS[5]) end

-- The present end of a permit; nil for one that has ended or never was.
local function lives(permit)
  local stop = tonumber(redis.call('ZSCORE', KEYS[5], permit) or 0)
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
  local gone = redis.call('ZREM', KEYS[5], unpack(all))
  held = held - gone
  if free and gone > 0 then free = redis.call('INCRBY', KEYS[1], gone) end
  return gone
end

local function sweep()
  if held == 0 then return end
  local ended = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now), 'LIMIT', 0, 1000)
  if #ended > 0 then release(ended) end
end

local function mark(keep)
  redis.call('SET', KEYS[4], 'semaphore', 'PX', text(keep))
end

-- The keys outlive every end. A semaphore that has no time to live (Redisson's) keeps none.
local function live(keep, again)
  local left = redis.call('PTTL', KEYS[1])
  local renew = left >= 0 and left < keep * 0.75
  if renew then redis.call('PEXPIRE', KEYS[1], text(keep)) end
  if left >= 0 and redis.call('PTTL', KEYS[5]) < keep * 0.75 then redis.call('PEXPIRE', KEYS[5], text(keep)) end
  if renew or not again then mark(keep) end
end

-- The first write is let through when the server is out of memory, and then so are the others.
local function raise(all, ttl)
  local left = redis.call('PTTL', KEYS[5])
  if left >= 0 then redis.call('PEXPIRE', KEYS[5], text(left)) else redis.call('ZREM', KEYS[5], '') end
  for i = 1, #all do
    redis.call('ZADD', KEYS[5], 'XX', 'GT', text(later + ttl), all[i])
  end
end

-- How many ms until `more` further permits have ended.
local function left_until(more)
  local stop = redis.call('ZRANGE', KEYS[5], more - 1, more - 1, 'WITHSCORES')[2]
  stop = tonumber(stop)
  return stop and stop < NEVER and math.max(stop - now, 0) or -1
end

-- Publishes the number of free permits: true if the server refused, and how many listened.
local function tell_all()
  if ARGV[6] == '' then return false, 0 end
  local message = text(math.max(free or 0, 0))
  local told = redis.pcall(ARGV[7], ARGV[6], message)
  if ARGV[8] ~= '' then
    local other = redis.pcall(ARGV[8], ARGV[6], message)
    if type(other) == 'table' or told == 0 then told = other end
  end
  if type(told) == 'table' then return true, 0 end
  return false, told
end

-- Takes free permits. Returns the refusal of the server, if there is one: then nothing is held.
local function take(all, ttl, keep)
  local again = held > 0
  local stop, entries = text(later + ttl), {}
  for i = 1, #all do
    entries[2 * i - 1], entries[2 * i] = stop, all[i]
  end
  local added = redis.call('ZADD', KEYS[5], unpack(entries))
  local left = redis.pcall('DECRBY', KEYS[1], #all)
  if type(left) == 'table' then
    -- refused by an access rule
    redis.call('ZREM', KEYS[5], unpack(all))
    return left
  end
  held, free = held + added, left
  live(keep, again)
end

-- The ids that a token stands for.
local function ids_of(owner)
  local hex, n = string.match(owner, '^(%x+):(%d+)$')
  if not hex or #hex ~= 28 or #n > 4 or tonumber(n) < 1 then return nil end
  local prefix = string.gsub(hex, '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
  return ids(prefix, tonumber(n))
end

-- Gives free permits to the first places that are alive and heard, as far as they go. Returns whether the asker has its own by
-- now, for `ttl`; whether it came to the end of the queue; and the refusal of the server, if there is one.
local function hand_over(asker, ttl)
  local at, got = 0, false
  while free and free > 0 do
    local head, alive, keep, client, _, where = next_place(asker, at)
    if not head then return got, alive end
    at = where
    local all = ids_of(head)
    if not all or #all > free + held then
      -- it could never be served, and would hold up all behind it
      forget(head)
    elseif #all > free then
      return got, false
    else
      local refused = take(all, head == asker and ttl or first_ttl(alive), tonumber(keep))
      if refused then return got, false, refused end
      forget(head)
      if head == asker then got = true else tell(client, head, 0) end
    end
  end
  return got, false
end

-- The same after permits came free: what has happened stays, whatever the queue is.
local function pass_on()
  if KEYS[2] ~= KEYS[1] and free and free > 0 and redis.call('EXISTS', KEYS[2]) == 1 then pcall(hand_over) end
end

-- Gives up the place of the token: whether it had one.
local function leave()
  if KEYS[2] == KEYS[1] then return false end
  local done, was = pcall(forget, token)
  return done and was == 1
end

if verb == 'enter' or verb == 'try' then
  local prefix, n, ttl, total, keep = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
  sweep()
  if not free then
    if total == 0 then
      leave()
      return {us, 6, 0}
    end
    -- the count was lost, or never was: whoever holds permits keeps them
    free = total - held
    redis.call('SET', KEYS[1], text(free), 'PX', text(keep))
  end
  if total ~= 0 and free + held ~= total or n > free + held then
    if leave() then pass_on() end
    return {us, 6, math.max(free + held, 0)}
  end
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
  local queued = redis.call('EXISTS', KEYS[2]) == 1
  if verb == 'try' and queued and free > 0 then
    -- a late copy may come from one who has a place by now
    local got, ended, refused = hand_over(token, ttl)
    if refused then return refused end
    if got then return {us, 0, 0} end
    -- whoever waits goes before; and so do those that were not looked at
    queued = not ended
  end
  if free >= n and not queued then return take(all, ttl, keep) or {us, 0, 0} end
  if verb == 'try' then return {us, 2, n > free and left_until(n - free) or -1, 1} end
  local number, unheard = keep_place(tonumber(ARGV[14]), ARGV[15], ARGV[16], ARGV[17], ARGV[13], ARGV[18] or '')
  local got, _, refused = hand_over(token, ttl)
  if refused then return refused end
  if got then return {us, 0, 0} end
  -- the many that were dead are forgotten by now: ask again at once
  local look = looks > 0 and left_until(math.max(n - free, 1)) or 0
  return {us, 4, number, redis.call('ZRANK', KEYS[2], token), look, unheard}
end

if verb == 'release' then
  local n = tonumber(ARGV[10])
  local gone = release(ids(ARGV[9], n))
  if gone == 0 and not leave() then return {us, 0} end
  sweep()
  pass_on()
  local refused, heard = false, 0
  if free and free > 0 then refused, heard = tell_all() end
  if gone < n then return {us, 0} end
  return {us, refused and 2 or heard > 0 and 3 or 1}
end

if verb == 'retain' then
  local n, stop = tonumber(ARGV[10]), later + tonumber(ARGV[11])
  local all = ids(ARGV[9], n)
  if count(all) < n then
    if release(all) > 0 then pass_on() end
    return {us, 0}
  end
  local before = redis.call('PTTL', KEYS[5])
  redis.call('ZREM', KEYS[5], unpack(all))
  -- ids that no hold has: their numbers are above every n
  for i = 0, n - 1 do redis.call('ZADD', KEYS[5], text(stop), id(ARGV[9], 32768 + i)) end
  local left = redis.call('PTTL', KEYS[1])
  -- somebody may have deleted the count: the set lives as long as it did
  if left < 0 then left = before end
  if left >= 0 then redis.call('PEXPIRE', KEYS[5], text(left)) end
  return {us, 1, tell_all() and 0 or 1}
end

if verb == 'attach' then
  local n, ttl, keep = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
  local from, to = ids(ARGV[9], n), ids(ARGV[13], n)
  if count(to) == n then
    raise(to, ttl)
    live(keep, true)
    return {us, 1, 0}
  end
  if not free or count(from) < n then return {us, 2} end
  local ends = {}
  for i = 1, n do ends[i] = math.max(lives(from[i]), later + ttl) end
  redis.call('ZREM', KEYS[5], unpack(from))
  for i = 1, n do redis.call('ZADD', KEYS[5], text(ends[i]), to[i]) end
  live(keep, true)
  return {us, 0, 0}
end

local function look()
  if not free then return {us, 0} end
  local live_now = redis.call('ZCOUNT', KEYS[5], '(' .. text(now), '+inf')
  local left = live_now > 0 and left_until(held - live_now + 1) or -1
  return {us, 1, math.max(free + held, 0), live_now, left}
end

if verb == 'set' then
  local total, keep = tonumber(ARGV[9]), tonumber(ARGV[10])
  sweep()
  local known = free
  free = total - held
  if known then
    redis.call('SET', KEYS[1], text(free), 'KEEPTTL')
  else
    redis.call('SET', KEYS[1], text(free), 'PX', text(keep))
  end
  mark(keep)
  pass_on()
  if free > 0 then tell_all() end
  return look()
end

if verb == 'force' then
  local marked = redis.pcall('GET', KEYS[4]) == 'semaphore'
  if free and held == 0 and not marked then return {us, 3, 'string'} end
  -- without a count the mark tells that these are permits
  if held == 0 or not free and not marked then return {us, 2} end
  redis.call('DEL', KEYS[5])
  if free then free = redis.call('INCRBY', KEYS[1], held) end
  held = 0
  pass_on()
  return {us, 1, tell_all() and 0 or 1}
end

return look()
