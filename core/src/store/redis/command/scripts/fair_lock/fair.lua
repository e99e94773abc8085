-- A lock with a queue on the server: who frees it makes the head of the queue the holder, and tells that client alone.
--
-- KEYS[1]  the lock: a hash {mode: fair, token: 1, onelock_fence: n, onelock_info: text}
-- KEYS[2] to KEYS[4], ARGV[2] to ARGV[5]  as of every kind with a queue: queue.lua
-- ARGV[1]  what to do: enter, try, leave, retain
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
--   enter        {us, 4, place, ahead, look, unheard, horizon}  it has a place: its number, how many are before it, in how many
--                ms to look again without a message (-1: no such time), 1 if it was passed over since nobody listened, and its
--                horizon: no grant of this lock before this reply has a higher fence
--   leave        {us, 1} was the holder, and the head of the queue holds it now if there is one; {us, 2} had a place;
--                {us, 0} neither
--   retain       {us, 1} the key stays, held by nobody; {us, 0} was not the holder
--
-- Idempotent: a second enter finds the hold or the place of the first, a second leave nothing. leave and
-- retain begin with HDEL, DEL or PEXPIRE, which a full server lets through.

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

-- Gives the free lock to the first place that is alive and heard. Returns the token and its fence; or nil, whether it came to the
-- end of the queue, and the refusal of the server if there is one.
local function hand_over(asker)
  local head, alive, fence_ttl, client, info = next_place(asker, 0)
  if not head then return nil, alive end
  local fence, refused = draw(fence_ttl)
  if not fence then return nil, true, refused end
  forget(head)
  refused = hold(head, first_ttl(alive), fence, info)
  if refused then return nil, true, refused end
  if head ~= asker then tell(client, head, fence) end
  return head, fence
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
  return {us, forget(token) == 1 and 2 or 0}
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
  return {us, 1, number_of(found[3]) or 0}
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

local number, unheard = keep_place(tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11], fence_ttl, info)
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
return {us, 4, number, redis.call('ZRANK', KEYS[2], token), look, unheard, horizon(number_of(found[3]) or 0)}
