-- Refresh the time to live of holds that are still there. A missing key is never created again.
--
-- KEYS         of each hold the lock; of permits the semaphore, and behind it the permits that are held; of a read/write lock
--              the lock, its readers, and the timeout key of the owner
-- ARGV[3i-2]   'm' for a mutex, 'r' for a reentrant lock, 's' for a side of a read/write lock, 'p' and a number for so many
--              permits
-- ARGV[3i-1]   token (the string value, the hash field, the owner, or the first 14 bytes of the permits' ids)
-- ARGV[3i]     time to live, ms; what is left is never shortened
--
-- Reply: {us, verdict 1, verdict 2, ...}, where us is the server's clock and a verdict is
--   1      still this token's, refreshed
--   0      gone, somebody else's, or of another type
--   text   the server's error for this key alone; nothing is known about it
--
-- Idempotent. The first write is PEXPIRE or ZREM, which is let through when the server is out of memory.

local clock = redis.call('TIME')
local reply = {clock[1] * 1000000 + clock[2]}

local function renew(key, kind, token, ttl)
  local mine
  if kind == 'm' then
    mine = redis.pcall('GET', key)
    if type(mine) ~= 'table' then mine = mine == token end
  else
    mine = redis.pcall('HEXISTS', key, token)
    if type(mine) ~= 'table' then mine = mine == 1 end
  end
  if type(mine) == 'table' then
    if string.find(mine.err, 'WRONGTYPE', 1, true) then return 0 end
    return mine.err
  end
  if not mine then return 0 end
  local left = redis.pcall('PTTL', key)
  if type(left) == 'table' then return left.err end
  local done = redis.pcall('PEXPIRE', key, string.format('%.0f', math.max(left, ttl)))
  if type(done) == 'table' then return done.err end
  return done
end

-- Permits of one hold live and end together: where one is gone, none is renewed. The others stay until their end: the holder
-- counts on them until it has this answer.
local function renew_permits(key, permits, n, prefix, ttl)
  local now, stop = math.floor(reply[1] / 1000), math.ceil(reply[1] / 1000) + ttl
  local all, there = {}, 0
  for i = 0, n - 1 do
    all[i + 1] = prefix .. string.char(math.floor(i / 256), i % 256)
    local score = redis.pcall('ZSCORE', permits, all[i + 1])
    if type(score) == 'table' then
      if string.find(score.err, 'WRONGTYPE', 1, true) then return 0 end
      return score.err
    end
    if score and tonumber(score) > now then there = there + 1 end
  end
  local free = redis.pcall('GET', key)
  if type(free) == 'table' then
    if not string.find(free.err, 'WRONGTYPE', 1, true) then return free.err end
    free = nil
  end
  local counts = free == false or free and #free <= 10 and (free == '0' or string.find(free, '^%-?[1-9]%d*$'))
  if there < n or not counts then return 0 end
  -- the number may be lost: whoever holds permits keeps them, and the next acquire sets it anew
  local left = redis.pcall('PTTL', free and key or permits)
  if type(left) == 'table' then return left.err end
  -- a semaphore that has no time to live keeps none; that of the others is twice the ttl of a hold at least
  local keep = math.max(604800000, 2 * ttl)
  if left >= 0 then
    if left < keep * 0.75 then left = keep end
    for _, one in ipairs({key, permits}) do
      local done = redis.pcall('PEXPIRE', one, string.format('%.0f', left))
      if type(done) == 'table' then return done.err end
    end
  else
    -- removes nothing; it stands for the PEXPIRE as the first write
    local done = redis.pcall('ZREM', permits, '')
    if type(done) == 'table' then return done.err end
  end
  for i = 1, n do
    local done = redis.pcall('ZADD', permits, 'XX', 'GT', string.format('%.0f', stop), all[i])
    if type(done) == 'table' then return done.err end
  end
  return 1
end

-- A hold of a read/write lock is a writer's, or a reader's with a field, an end and a timeout key, which does not say that it
-- was released and stays for a while only.
local RELEASED = 'onelock1:released'
local function renew_shared(key, readers, timeout, owner, ttl)
  local now, stop = math.floor(reply[1] / 1000), math.ceil(reply[1] / 1000) + ttl
  local found = redis.pcall('HMGET', key, 'mode', owner, owner .. ':write')
  if found.err then
    if string.find(found.err, 'WRONGTYPE', 1, true) then return 0 end
    return found.err
  end
  local live = {key}
  if found[1] == 'read' and found[2] then
    local score = redis.pcall('ZSCORE', readers, owner)
    if type(score) == 'table' then
      if string.find(score.err, 'WRONGTYPE', 1, true) then return 0 end
      return score.err
    end
    local left = redis.pcall('PTTL', timeout)
    if type(left) == 'table' then return left.err end
    if not score or tonumber(score) <= now or left < 0 or redis.pcall('GET', timeout) == RELEASED then return 0 end
    live = {key, readers, timeout}
  elseif found[1] ~= 'write' or not found[3] then
    return 0
  end
  for _, one in ipairs(live) do
    local left = redis.pcall('PTTL', one)
    if type(left) == 'table' then return left.err end
    local done = redis.pcall('PEXPIRE', one, string.format('%.0f', math.max(left, ttl)))
    if type(done) == 'table' then return done.err end
  end
  if #live == 3 then
    local done = redis.pcall('ZADD', readers, 'XX', 'GT', string.format('%.0f', stop), owner)
    if type(done) == 'table' then return done.err end
  end
  return 1
end

local at = 0
for i = 1, #ARGV / 3 do
  at = at + 1
  local kind, token, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  if string.sub(kind, 1, 1) == 'p' then
    reply[i + 1] = renew_permits(KEYS[at], KEYS[at + 1], tonumber(string.sub(kind, 2)), token, ttl)
    at = at + 1
  elseif kind == 's' then
    reply[i + 1] = renew_shared(KEYS[at], KEYS[at + 1], KEYS[at + 2], token, ttl)
    at = at + 2
  else
    reply[i + 1] = renew(KEYS[at], kind, token, ttl)
  end
end
return reply
