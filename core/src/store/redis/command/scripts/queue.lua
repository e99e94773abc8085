-- What the kinds with a queue on the server have in common. The script of each kind is this text and its own behind it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue: a sorted set, token -> number of its place; the lowest is the head
-- KEYS[3]  the records of the places: a hash, token -> '<alive until, ms> <fence ttl, ms> <client> <listens>[ <info>]'
-- KEYS[4]  the fencing counter
-- ARGV[1]  what to do
-- ARGV[2]  token
-- ARGV[3]  the channel of grants without the client: that of a client is <this>:<client>
-- ARGV[4]  command to publish with: PUBLISH, or SPUBLISH for the sharded channels of a cluster
-- ARGV[5]  NUMSUB or SHARDNUMSUB, to see who listens; '' where the server cannot tell
--
-- Message to a client: '<token> <fence> <us>'. A place that was not entered again for as long as it said is forgotten.

local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
-- ends are rounded up, the present down
local now, later = math.floor(us / 1000), math.ceil(us / 1000)
local verb, token = ARGV[1], ARGV[2]
-- a grant to somebody who was told lasts at least so long, and at most so long: then its client must have asked for it
local SHORTEST, LONGEST = 200, 3000
-- so many places are looked at in one call
local looks = 256
-- the queue ends by itself when nobody comes for so long, ms
local IDLE = 10000

local function text(number)
  return string.format('%.0f', number)
end

local function number_of(stored)
  local number = stored and string.find(stored, '^%d+$') and tonumber(stored)
  if number and number >= 1 and number < 9007199254740991 then return number end
  return nil
end

-- The next fencing token, or nil and the refusal.
local function draw(ttl)
  local counter = redis.pcall('GET', KEYS[4])
  if type(counter) == 'table' then
    if not string.find(counter.err, 'WRONGTYPE', 1, true) then return nil, counter end
    counter = nil
  end
  local fence = math.max((number_of(counter) or 0) + 1, us)
  redis.call('SET', KEYS[4], text(fence), 'PX', ttl)
  return fence
end

-- No grant of the lock so far has a higher fence: by the clock, by the counter, and by the holder's where the counter was lost.
local function horizon(holders)
  local counter = redis.pcall('GET', KEYS[4])
  return math.max(us, type(counter) ~= 'table' and number_of(counter) or 0, holders)
end

-- Takes a place out of the queue: 1 if it was there.
local function forget(place)
  local was = redis.call('ZREM', KEYS[2], place)
  redis.call('HDEL', KEYS[3], place)
  return was
end

-- Whether the client of a place listens; true where that cannot be told.
local function is_heard(client)
  if ARGV[5] == '' then return true end
  local heard = redis.pcall('PUBSUB', ARGV[5], ARGV[3] .. ':' .. client)
  return heard.err ~= nil or heard[2] ~= 0
end

-- The first place from `at` on that is alive and heard, its record, and where it is; dead ones are forgotten on the way. Or nil,
-- and whether it came to the end of the queue.
local function next_place(asker, at)
  while looks > 0 do
    looks = looks - 1
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
      return head, alive, fence_ttl, client, info, at
    end
  end
  return nil, false
end

-- How long a hold lasts that is given to a place, until its client asks for it.
local function first_ttl(alive)
  return math.min(math.max(alive - now, SHORTEST), LONGEST)
end

local function tell(client, owner, fence)
  redis.pcall(ARGV[4], ARGV[3] .. ':' .. client, owner .. ' ' .. text(fence) .. ' ' .. text(us))
end

-- Takes a place for the token, at the number that it had before if there is one ('0' for none), or keeps the one it has. Returns
-- the number, and 1 if it was passed over since nobody listened.
local function keep_place(window, place, client, listens, fence_ttl, info)
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
  local record = text(alive) .. ' ' .. fence_ttl .. ' ' .. client .. ' ' .. listens .. (info ~= '' and ' ' .. info or '')
  redis.call('HSET', KEYS[3], token, record)
  redis.call('PEXPIRE', KEYS[3], IDLE)
  return tonumber(number), unheard
end
