-- A lock with a queue on the server: who frees it makes the head of the queue the holder, and tells that client alone.
--
-- KEYS[1]  the lock: a hash {mode: fair, token: 1, onelock_fence: n, onelock_info: text}
-- KEYS[2]  the queue: a sorted set, token -> number of its place; the lowest is the head
-- KEYS[3]  the records of the places: a hash, token -> '<alive until, ms> <fence ttl, ms> <client> <listens>[ <info>]'
-- KEYS[4]  the fencing counter
-- ARGV[1]  what to do: enter, try, leave, retain
-- ARGV[2]  token
-- ARGV[3]  the channel of grants without the client: that of a client is <this>:<client>
-- ARGV[4]  command to publish with: PUBLISH, or SPUBLISH for the sharded channels of a cluster
-- ARGV[5]  NUMSUB or SHARDNUMSUB, to see who listens; '' where the server cannot tell
-- ARGV[6]  enter, try: time to live of the lock, ms;  retain: for how long the key stays, ms
-- ARGV[7]  time to live of the fencing counter, ms
-- ARGV[8]  for how long the place is kept, ms, at most 3000
-- ARGV[9]  the number of a place that it had before, '0' for none
-- ARGV[10] the client: 16 hex digits
-- ARGV[11] '1' if the client's subscription is confirmed, else '0'
-- ARGV[12] text for inspection, '' for none
--
-- Reply, always an array that begins with the server's clock in us:
--   enter, try   {us, 0, fence}  granted;  {us, 1, fence}  held by this token already; time to live never shortened
--                {us, 3, type}   no lock of this kind stands there; left untouched
--   try          {us, 2, pttl, 1}  held by somebody else, or others wait; no place was taken
--   enter        {us, 4, place, ahead, look, unheard}  it has a place: its number, how many are before it, in how many ms to
--                look again without a message (-1: no such time), and 1 if it was passed over since nobody listened
--   leave        {us, 1} was the holder, and the head of the queue holds it now if there is one; {us, 2} had a place;
--                {us, 0} neither
--   retain       {us, 1} the key stays, held by nobody; {us, 0} was not the holder
--
-- Message to the client that holds it now: '<token> <fence> <us>'.
--
-- Idempotent: a second enter finds the hold or the place of the first, a second leave nothing. A place that was not entered
-- again for as long as it said is forgotten. leave and retain begin with HDEL, DEL or PEXPIRE, which a full server lets through.

local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
-- ends are rounded up, the present down
local now, later = math.floor(us / 1000), math.ceil(us / 1000)
local verb, token = ARGV[1], ARGV[2]
-- a grant to somebody who was told lasts at least so long, and at most so long: then its client must have asked for it
local SHORTEST, LONGEST = 200, 3000
-- so many places are looked at in one call
local MOST = 256
-- the queue ends by itself when nobody comes for so long, ms
local IDLE = 10000

local function text(number)
  return string.format('%.0f', number)
end

local function believable(stored)
  local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

-- The next fencing token, or nil and the refusal.
local function draw(ttl)
  local stored = redis.pcall('GET', KEYS[4])
  if type(stored) == 'table' then
    if not string.find(stored.err, 'WRONGTYPE', 1, true) then return nil, stored end
    stored = nil
  end
  local fence = math.max((believable(stored) or 0) + 1, us)
  redis.call('SET', KEYS[4], text(fence), 'PX', ttl)
  return fence
end

-- Makes a token the holder. Returns the refusal of the server, if there is one: then nobody holds it.
local function hold(owner, ttl, fence, info)
  local fields = {'mode', 'fair', owner, '1', 'onelock_fence', text(fence)}
  if info ~= '' then
    fields[7], fields[8] = 'onelock_info', info
  end
  redis.call('HSET', KEYS[1], unpack(fields))
  local bounded = redis.pcall('PEXPIRE', KEYS[1], text(ttl))
  if type(bounded) == 'table' then
    -- a user who may not PEXPIRE must not leave a lock that lasts for ever
    redis.call('DEL', KEYS[1])
    return bounded
  end
end

local function forget(place)
  redis.call('ZREM', KEYS[2], place)
  redis.call('HDEL', KEYS[3], place)
end

-- Whether the client of a place listens; true where that cannot be told.
local function is_heard(client)
  if ARGV[5] == '' then return true end
  local heard = redis.pcall('PUBSUB', ARGV[5], ARGV[3] .. ':' .. client)
  return heard.err ~= nil or heard[2] ~= 0
end

-- Gives the free lock to the first place that is alive and heard, and forgets dead ones on the way. Returns the token and
-- its fence; or nil, and whether it came to the end of the queue.
local function hand_over(asker)
  local at = 0
  for _ = 1, MOST do
    local head = redis.call('ZRANGE', KEYS[2], at, at)[1]
    if not head then return nil, true end
    local record = redis.call('HGET', KEYS[3], head)
    local alive, fence_ttl, client, listens, info = string.match(record or '', '^(%d+) (%d+) (%x+) ([012]) ?(.*)$')
    alive = tonumber(alive)
    if not alive or alive <= now or alive > now + LONGEST + 1 then
      forget(head)
    elseif listens ~= '0' and head ~= asker and not is_heard(client) then
      -- its connection is gone: it is passed over and not told, and keeps its place
      if listens == '1' then
        local marked = text(alive) .. ' ' .. fence_ttl .. ' ' .. client .. ' 2' .. (info ~= '' and ' ' .. info or '')
        redis.call('HSET', KEYS[3], head, marked)
      end
      at = at + 1
    else
      local fence, refused = draw(fence_ttl)
      if not fence then return nil, true, refused end
      forget(head)
      refused = hold(head, math.min(math.max(alive - now, SHORTEST), LONGEST), fence, info)
      if refused then return nil, true, refused end
      if head ~= asker then
        redis.pcall(ARGV[4], ARGV[3] .. ':' .. client, head .. ' ' .. text(fence) .. ' ' .. text(us))
      end
      return head, fence
    end
  end
  return nil, false
end

local found = redis.pcall('HMGET', KEYS[1], 'mode', token, 'onelock_fence')
if found.err then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
  found = {false, false, false}
  if verb == 'enter' or verb == 'try' then return {us, 3, redis.call('TYPE', KEYS[1]).ok} end
end
local mine = found[1] == 'fair' and found[2]

if verb == 'leave' then
  if mine then
    -- the key stays until somebody has it: where its slot moves, one that was deleted could not be written again
    if redis.call('EXISTS', KEYS[2]) == 1 then
      redis.call('HDEL', KEYS[1], token, 'onelock_info')
      local done, given = pcall(hand_over)
      if done and given then return {us, 1} end
    end
    redis.call('DEL', KEYS[1])
    return {us, 1}
  end
  local was = redis.call('ZREM', KEYS[2], token)
  redis.call('HDEL', KEYS[3], token)
  return {us, was == 1 and 2 or 0}
end

if verb == 'retain' then
  if not mine then return {us, 0} end
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
  redis.call('HDEL', KEYS[1], token, 'onelock_fence')
  redis.call('HSET', KEYS[1], 'onelock_info', 'onelock1:released')
  return {us, 1}
end

local ttl, fence_ttl, info = tonumber(ARGV[6]), ARGV[7], ARGV[12]
if mine then
  redis.call('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), ttl)))
  return {us, 1, believable(found[3]) or 0}
end
local free = not found[1]
if found[1] and found[1] ~= 'fair' or free and redis.call('EXISTS', KEYS[1]) == 1 then return {us, 3, 'hash'} end

local function grant()
  local fence, refused = draw(fence_ttl)
  refused = refused or hold(token, ttl, fence, info)
  return refused or {us, 0, fence}
end

if verb == 'try' then
  if not free then return {us, 2, redis.call('PTTL', KEYS[1]), 1} end
  local given, ended, refused = hand_over()
  if refused then return refused end
  -- whoever waits goes before; and so do those that were not looked at
  if given or not ended then return {us, 2, redis.call('PTTL', KEYS[1]), 1} end
  return grant()
end

if free and redis.call('EXISTS', KEYS[2]) == 0 then return grant() end

local window, place = tonumber(ARGV[8]), ARGV[9]
local number = redis.call('ZSCORE', KEYS[2], token)
if number then
  -- first: it is let through when the server is out of memory, and then so is what follows
  redis.call('PEXPIRE', KEYS[2], IDLE)
else
  if place ~= '0' then
    number = place
  else
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
    number = text(math.max(last and tonumber(last) + 1 or 0, us))
  end
  redis.call('ZADD', KEYS[2], number, token)
  redis.call('PEXPIRE', KEYS[2], IDLE)
end
local before = redis.call('HGET', KEYS[3], token) or ''
local alive = tonumber(string.match(before, '^%d+') or 0)
alive = math.min(math.max(alive, later + window), later + LONGEST)
local unheard = string.find(before, '^%d+ %d+ %x+ 2') and 1 or 0
local record = text(alive) .. ' ' .. fence_ttl .. ' ' .. ARGV[10] .. ' ' .. ARGV[11] .. (info ~= '' and ' ' .. info or '')
redis.call('HSET', KEYS[3], token, record)
redis.call('PEXPIRE', KEYS[3], IDLE)

local look = redis.call('PTTL', KEYS[1])
if free then
  local given, fence, refused = hand_over(token)
  if refused then return refused end
  if given == token then
    redis.call('PEXPIRE', KEYS[1], text(math.max(redis.call('PTTL', KEYS[1]), ttl)))
    return {us, 0, fence}
  end
  -- the many that were dead are forgotten by now: ask again at once
  look = given and redis.call('PTTL', KEYS[1]) or 0
end
return {us, 4, tonumber(number), redis.call('ZRANK', KEYS[2], token), look, unheard}
