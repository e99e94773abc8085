-- A read/write lock: many readers at a time, or one writer. The holds are those of Redisson's RReadWriteLock. Waiting writers
-- have places in a queue and keep new readers out; after a writer, readers that were refused have a door open for a moment.
--
-- KEYS[1]  the lock: a hash {mode: read, owner: 1, ...} or {mode: write, owner:write: 1}, with our notes onelock_fence (t and a
--          number, since Redisson takes every number for a hold count) and, of a writer, onelock_info
-- KEYS[2] to KEYS[4], ARGV[2] to ARGV[5]  as of every kind with a queue (queue.lua), of the writers. In the hash of the records
--          stand also ':want' (until when a refused reader is waiting) and ':door' (until when readers go first)
-- KEYS[5]  our readers: a sorted set, owner -> end in ms of the server's clock
-- KEYS[6]  the timeout key of this owner: it lives as long as its read hold. Its text is for inspection, or says
--          'onelock1:released' of one that stays though it was released
-- KEYS[7]  attach: the timeout key of the new owner
-- ARGV[1]  what to do: read, tryread, enter, try, keep, downgrade, leave, retain, attach
-- ARGV[6]  the channel for all who wait, Redisson's
-- ARGV[7]  command to publish with there
-- ARGV[8]  a second such command, '' for none
-- ARGV[9]  time to live of the hold, ms; retain: for how long it stays
-- ARGV[10] time to live of the fencing counter, ms; attach: the new owner
-- ARGV[11] text for inspection, '' for none;  attach: the same
-- ARGV[12] enter, try: for how long the place is kept, ms, at most 3000;  attach: 'read' or 'write'
-- ARGV[13] enter, try: the number of a place that it had before, '0' for none
-- ARGV[14] enter, try: the client, 16 hex digits
-- ARGV[15] enter, try: '1' if the client's subscription is confirmed, else '0'
--
-- Reply, always an array that begins with the server's clock in us:
--   read, tryread, enter, try
--               {us, 0, fence}  granted;  {us, 1, fence}  held by this owner already; time to live never shortened
--               {us, 2, pttl, 1}  not now: it is held, or others go before (enter answers 4 instead, but to an owner that
--               reads: a late copy of what made it the writer that became this reader)
--               {us, 3, type}   no read/write lock stands there; left untouched
--   enter       {us, 4, place, ahead, look, unheard, horizon}  it has a place, as in a fair lock
--   keep        {us, 1} held, time to live refreshed; {us, 0} not held
--   downgrade   {us, 0, fence} a read hold from now on; {us, 1, fence} it was one already; {us, 2} not held
--   attach      {us, 0, fence} exchanged, {us, 1, fence} held by the new owner already, {us, 2} neither holds it
--   leave       {us, 1} was a holder; {us, 2} had a place; {us, 0} neither
--   retain      {us, 1} stays for so long, nobody's; {us, 0} not held
--
-- Messages: to the client of a writer that holds it now '<owner> <fence> <us>', with 0 for the fence when only the door is in
-- its way any more; to all who wait '1'.
--
-- Idempotent. A reader is one as long as its field, its end and its timeout key say so: each reader ends by itself.

-- how long the door is open, and how long a refused reader counts as waiting, ms
local DOOR, WANT = 50, 600
-- how long these two are kept when nobody has a place, ms
local NOTES = 2000
-- so many foreign readers are looked at
local FOREIGN = 1024
local RELEASED = 'onelock1:released'

local found = redis.pcall('HMGET', KEYS[1], 'mode', token, token .. ':write', 'onelock_fence', 'onelock_info')
if found.err then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
  found = {false, false, false, false, false, redis.call('TYPE', KEYS[1]).ok}
end
local mode, stored, foreign = found[1], found[4], found[6]
local free = not mode and not foreign and redis.call('EXISTS', KEYS[1]) == 0
if not free and mode ~= 'read' and mode ~= 'write' then
  mode, foreign = false, foreign or 'hash'
end
local fence_here = number_of(string.match(stored or '', '^t(%d+)$')) or 0

-- Whether an owner has a live read hold; its end.
local function reads(owner, field, timeout)
  if mode ~= 'read' or not field then return nil end
  local stop = tonumber(redis.call('ZSCORE', KEYS[5], owner) or 0)
  if stop <= now or redis.call('PTTL', timeout) < 0 or redis.pcall('GET', timeout) == RELEASED then return nil end
  return stop
end

local reading = reads(token, found[2], KEYS[6])
local writing = mode == 'write' and found[3]
-- It reads no more, but stays for a while. What still comes from it is late, and changes nothing.
local retained = mode == 'read' and found[2] and not reading and redis.pcall('GET', KEYS[6]) == RELEASED

-- Makes a key live so long at least.
local function outlive(key, ttl)
  redis.call('PEXPIRE', key, text(math.max(redis.call('PTTL', key), ttl)))
end

local function raise(ttl, owner, timeout)
  outlive(KEYS[1], ttl)
  if timeout then
    outlive(timeout, ttl)
    outlive(KEYS[5], ttl)
    redis.call('ZADD', KEYS[5], 'XX', 'GT', text(later + ttl), owner)
  end
end

-- The notes in the hash of the records do not stay for long once nobody has a place.
local function rest()
  if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('PEXPIRE', KEYS[3], NOTES) end
end

-- A note in the hash of the records.
local function note(field, value)
  redis.call('HSET', KEYS[3], field, value)
  redis.call('PEXPIRE', KEYS[3], redis.call('EXISTS', KEYS[2]) == 1 and IDLE or NOTES)
end

-- Until when a note counts, if it does: one that is further ahead than it can be (the clock was set back) does not, and a door
-- that opens when a writer's key ends does not yet.
local function noted(field, most)
  local stop = tonumber(redis.call('HGET', KEYS[3], field) or 0)
  return stop > now and stop <= now + most + 1 and stop or nil
end

local function tell_all()
  redis.pcall(ARGV[7], ARGV[6], '1')
  if ARGV[8] ~= '' then redis.pcall(ARGV[8], ARGV[6], '1') end
end

-- The first writer that waits.
local function next_writer(asker)
  local head, alive, fence_ttl, client, info = next_place(asker, 0)
  -- at the end of the queue
  if not head and alive then rest() end
  return head, alive, fence_ttl, client, info
end

-- Writes the hash and bounds it. Returns the refusal of the server, if there is one: then nobody holds it.
local function hold_write(owner, ttl, fence, info)
  local fields = {'mode', 'write', owner .. ':write', '1', 'onelock_fence', 't' .. text(fence)}
  if info ~= '' then
    fields[7], fields[8] = 'onelock_info', info
  end
  redis.call('HSET', KEYS[1], unpack(fields))
  local bounded = redis.pcall('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), ttl)))
  if type(bounded) == 'table' then
    -- a user who may not PEXPIRE must not leave a lock that lasts for ever
    redis.call('DEL', KEYS[1])
    return bounded
  end
end

-- Enters a reader whose timeout key is KEYS[6]. A phase without a token of ours begins with this one: an index that is there
-- is of an earlier one.
local function hold_read(ttl, fence_ttl, info)
  local fence = fence_here
  if fence == 0 then
    local drawn, refused = draw(fence_ttl)
    if not drawn then return nil, refused end
    fence = drawn
    redis.call('DEL', KEYS[5])
  end
  redis.call('SET', KEYS[6], info ~= '' and info or '1', 'PX', text(ttl))
  redis.call('ZADD', KEYS[5], text(later + ttl), token)
  -- before the hash is touched: an index with one who has no field would hide a foreign reader
  local bounded = redis.pcall('PEXPIRE', KEYS[5], text(math.max(redis.call('PTTL', KEYS[5]), ttl)))
  if type(bounded) == 'table' then
    redis.call('ZREM', KEYS[5], token)
    redis.call('DEL', KEYS[6])
    return nil, bounded
  end
  redis.call('HSET', KEYS[1], 'mode', 'read', token, '1', 'onelock_fence', 't' .. text(fence))
  outlive(KEYS[1], ttl)
  return fence
end

local function grant_write(head, alive, fence_ttl, info)
  local fence, refused = draw(fence_ttl)
  if not fence then return nil, refused end
  forget(head)
  rest()
  refused = hold_write(head, first_ttl(alive), fence, info)
  if refused then return nil, refused end
  return fence
end

-- Somebody left the free lock: who is next. Readers that were refused go before the next writer, but after a reader.
local function pass_on(after_writer)
  local door = noted(':door', DOOR)
  local head, alive, fence_ttl, client, info = next_writer()
  if door then
    if head then tell(client, head, 0) end
    return
  end
  if after_writer and noted(':want', WANT) then
    redis.call('HDEL', KEYS[3], ':want')
    note(':door', text(now + DOOR))
    tell_all()
  elseif head then
    local fence = grant_write(head, alive, fence_ttl, info)
    if fence then tell(client, head, fence) end
  else
    tell_all()
  end
end

-- Our readers that have ended are gone, and the lock lives as long as the last of the others; without any it is deleted.
-- Says whether it is still held.
local function settle()
  local ended = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text(now), 'LIMIT', 0, 256)
  if #ended > 0 then
    redis.call('HDEL', KEYS[1], unpack(ended))
    redis.call('ZREM', KEYS[5], unpack(ended))
  end
  local last = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2]
  local left = last and tonumber(last) - now or 0
  local others = redis.call('HLEN', KEYS[1]) - redis.call('ZCARD', KEYS[5]) - (stored and 2 or 1)
  if others > FOREIGN then return true end
  if others > 0 then
    local before = string.sub(KEYS[6], 1, #KEYS[6] - #token - 17)
    local fields = redis.call('HGETALL', KEYS[1])
    for i = 1, #fields, 2 do
      local count = tonumber(fields[i + 1])
      if count and not redis.call('ZSCORE', KEYS[5], fields[i]) then
        for n = 1, math.min(count, FOREIGN) do
          left = math.max(left, redis.call('PTTL', before .. fields[i] .. ':rwlock_timeout:' .. n))
        end
      end
    end
  end
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], text(left))
    return true
  end
  redis.call('DEL', KEYS[1], KEYS[5])
  return false
end

if verb == 'keep' then
  if not reading and not writing then return {us, 0} end
  raise(tonumber(ARGV[9]), token, reading and KEYS[6])
  return {us, 1}
end

if verb == 'leave' then
  if writing then
    redis.call('DEL', KEYS[1])
    pass_on(true)
    return {us, 1}
  end
  if mode == 'read' and found[2] and not retained then
    redis.call('HDEL', KEYS[1], token)
    redis.call('ZREM', KEYS[5], token)
    redis.call('DEL', KEYS[6])
    if not settle() then pass_on(false) end
    return {us, reading and 1 or 0}
  end
  local was = forget(token)
  rest()
  -- a writer that waited was all that kept readers out
  if was == 1 and mode ~= 'write' and noted(':want', WANT) and not next_writer() then tell_all() end
  return {us, was == 1 and 2 or 0}
end

if verb == 'retain' then
  local rest = tonumber(ARGV[9])
  if writing then
    redis.call('PEXPIRE', KEYS[1], text(rest))
    redis.call('HDEL', KEYS[1], token .. ':write', 'onelock_fence')
    redis.call('HSET', KEYS[1], 'onelock_info', RELEASED)
    -- nobody passes it on when it ends
    if noted(':want', WANT) then
      redis.call('HDEL', KEYS[3], ':want')
      note(':door', text(now + rest + DOOR))
    end
    return {us, 1}
  end
  if not reading then return {us, 0} end
  redis.call('PEXPIRE', KEYS[6], text(rest))
  redis.call('SET', KEYS[6], RELEASED, 'PX', text(rest))
  redis.call('ZADD', KEYS[5], 'XX', text(later + rest), token)
  settle()
  return {us, 1}
end

if verb == 'attach' then
  local to, ttl, info = ARGV[10], tonumber(ARGV[9]), ARGV[11]
  if ARGV[12] == 'write' then
    local again = mode == 'write' and redis.call('HEXISTS', KEYS[1], to .. ':write') == 1
    if not again and not writing then return {us, 2} end
    outlive(KEYS[1], ttl)
    if again then return {us, 1, fence_here} end
    redis.call('HSET', KEYS[1], to .. ':write', '1')
    redis.call('HDEL', KEYS[1], token .. ':write', 'onelock_info')
    if info ~= '' then redis.call('HSET', KEYS[1], 'onelock_info', info) end
    return {us, 0, fence_here}
  end
  local again = reads(to, mode and redis.call('HGET', KEYS[1], to), KEYS[7])
  if not again and not reading then return {us, 2} end
  if again then
    raise(ttl, to, KEYS[7])
    return {us, 1, fence_here}
  end
  outlive(KEYS[1], ttl)
  local stop = math.max(reading, later + ttl)
  redis.call('SET', KEYS[7], info ~= '' and info or '1', 'PX', text(math.max(redis.call('PTTL', KEYS[6]), ttl)))
  redis.call('ZADD', KEYS[5], text(stop), to)
  outlive(KEYS[5], ttl)
  redis.call('HSET', KEYS[1], to, '1')
  redis.call('HDEL', KEYS[1], token)
  redis.call('ZREM', KEYS[5], token)
  redis.call('DEL', KEYS[6])
  return {us, 0, fence_here}
end

local ttl, fence_ttl, info = tonumber(ARGV[9]), ARGV[10], ARGV[11]

if verb == 'downgrade' then
  if reading then
    raise(ttl, token, KEYS[6])
    return {us, 1, fence_here}
  end
  if not writing then return {us, 2} end
  -- its late writes are refused once it has read with the new token
  fence_here = 0
  local fence, refused = hold_read(ttl, fence_ttl, info)
  if not fence then return refused end
  redis.call('HDEL', KEYS[1], token .. ':write', 'onelock_info')
  if noted(':want', WANT) then
    redis.call('HDEL', KEYS[3], ':want')
    note(':door', text(now + DOOR))
  end
  tell_all()
  return {us, 0, fence}
end

if foreign then return {us, 3, foreign} end
if retained or reading and (verb == 'enter' or verb == 'try') then return {us, 2, redis.call('PTTL', KEYS[1]), 1} end

if verb == 'read' or verb == 'tryread' then
  if reading then
    raise(ttl, token, KEYS[6])
    return {us, 1, fence_here}
  end
  local barred = mode == 'write'
  if not barred and redis.call('EXISTS', KEYS[2]) == 1 and not noted(':door', DOOR) then
    local head, ended = next_writer()
    barred = head or not ended
  end
  if not barred then
    local fence, refused = hold_read(ttl, fence_ttl, info)
    if not fence then return refused end
    return {us, 0, fence}
  end
  local left = redis.call('PTTL', KEYS[1])
  if verb == 'read' and mode == 'write' and found[5] == RELEASED then
    note(':door', text(now + left + DOOR))
  elseif verb == 'read' then
    note(':want', text(later + WANT))
  end
  return {us, 2, left, 1}
end

-- enter, try
if writing then
  raise(ttl)
  return {us, 1, fence_here}
end
local door = free and noted(':door', DOOR)
local queued = redis.call('EXISTS', KEYS[2]) == 1

local function grant()
  local fence, refused = draw(fence_ttl)
  refused = refused or hold_write(token, ttl, fence, info)
  return refused or {us, 0, fence}
end

if verb == 'try' then
  if not free or door then return {us, 2, redis.call('PTTL', KEYS[1]), 1} end
  if queued then
    local head, alive, its_fence_ttl, client, its_info = next_writer()
    if not head and not alive then return {us, 2, redis.call('PTTL', KEYS[1]), 1} end
    if head then
      local fence, refused = grant_write(head, alive, its_fence_ttl, its_info)
      if refused then return refused end
      tell(client, head, fence)
      return {us, 2, redis.call('PTTL', KEYS[1]), 1}
    end
  end
  return grant()
end

if free and not door and not queued then return grant() end

local number, unheard = keep_place(tonumber(ARGV[12]), ARGV[13], ARGV[14], ARGV[15], fence_ttl, info)
local look = redis.call('PTTL', KEYS[1])
if door then
  look = door - now
elseif free then
  local head, live, its_fence_ttl, client, its_info = next_writer(token)
  -- the many that were dead are forgotten by now: ask again at once
  look = 0
  if head then
    local fence, refused = grant_write(head, live, its_fence_ttl, its_info)
    if refused then return refused end
    if head == token then
      outlive(KEYS[1], ttl)
      return {us, 0, fence}
    end
    tell(client, head, fence)
    look = redis.call('PTTL', KEYS[1])
  end
end
return {us, 4, number, redis.call('ZRANK', KEYS[2], token), look, unheard, horizon(fence_here)}
