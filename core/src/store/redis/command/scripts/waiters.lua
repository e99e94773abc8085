-- Look at the queue of a lock without touching it.
--
-- KEYS[1]  the queue
-- KEYS[2]  the records of the places; both as of every kind with a queue: queue.lua
--
-- Reply: {us, length, number, info, number, info, ...}, us being the server's clock: how many places there are, without those of
-- the first 64 that are dead, and the first 16 that are alive, the head first, each with its number and its text for inspection
-- ('' for none).
--
-- Writes nothing.

local LOOKED_AT, TOLD, LONGEST = 64, 16, 3000

local clock = redis.call('TIME')
local us = clock[1] * 1000000 + clock[2]
local now = math.floor(us / 1000)

local function is_wrong(reply)
  return reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

local queue = redis.pcall('ZRANGE', KEYS[1], 0, LOOKED_AT - 1, 'WITHSCORES')
if is_wrong(queue) then return {us, 0} end
if queue.err then return queue end
if #queue == 0 then return {us, 0} end
local tokens = {}
for i = 1, #queue, 2 do tokens[#tokens + 1] = queue[i] end
local records = redis.pcall('HMGET', KEYS[2], unpack(tokens))
if is_wrong(records) then records = {} end
if records.err then return records end

-- in the words of a user who may use fair locks: no ZCARD
local last = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
local reply = {us, redis.call('ZRANK', KEYS[1], last) + 1}
for i = 1, #tokens do
  local alive, info = string.match(records[i] or '', '^(%d+) %d+ %x+ [012] ?(.*)$')
  alive = tonumber(alive)
  if not alive or alive <= now or alive > now + LONGEST + 1 then
    reply[2] = reply[2] - 1
  elseif #reply < 2 * TOLD + 2 then
    reply[#reply + 1] = tonumber(queue[2 * i])
    reply[#reply + 1] = info
  end
end
return reply
