-- Look at a lock without touching it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter of a mutex
--
-- Reply, us being the server's clock and pttl -1 for a key without time to live:
--   {us, 'none'}                                  nothing stands there
--   {us, 'string', pttl, value, fence}            a mutex; fence '' if there is none or the value is
--                                                 a foreign client's; a long value is cut
--   {us, 'hash', pttl, owner, count, fence, info} a reentrant lock; fence and info '' if there are none
--   {us, type, pttl}                              no lock of ours (a read/write lock says 'hash')
--
-- Writes nothing.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {now, kind} end

local pttl = redis.call('PTTL', KEYS[1])
if kind == 'string' then
  local holder, fence = redis.call('GETRANGE', KEYS[1], 0, 4095), ''
  -- the counter outlives its holds: it says nothing about a foreign client's
  if string.sub(holder, 1, 9) == 'onelock1:' then
    fence = redis.pcall('GET', KEYS[2])
    if type(fence) ~= 'string' then fence = '' end
  end
  return {now, kind, pttl, holder, fence}
end

if kind == 'hash' and redis.call('HEXISTS', KEYS[1], 'mode') == 0 then
  local owner, count, fence, info = '', '0', '', ''
  -- a lock has three fields at most; the bound keeps a foreign giant from blocking the server
  local fields = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'onelock_fence' then
      fence = fields[i + 1]
    elseif fields[i] == 'onelock_info' then
      info = fields[i + 1]
    elseif owner == '' then
      owner, count = fields[i], fields[i + 1]
    end
  end
  return {now, kind, pttl, owner, count, fence, info}
end
return {now, kind, pttl}
