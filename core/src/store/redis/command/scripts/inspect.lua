-- Look at a lock without touching it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter of a mutex, or the mark of a semaphore
--
-- Reply, us being the server's clock and pttl -1 for a key without time to live:
--   {us, 'none'}                                  nothing stands there
--   {us, 'string', pttl, value, fence}            a mutex; fence '' if there is none or the value is
--                                                 a foreign client's; a long value is cut
--   {us, 'hash', pttl, owner, count, fence, info} a reentrant lock; fence and info '' if there are none
--   {us, 'fair', pttl, token, count, fence, info} a fair lock
--   {us, 'read', pttl, owner, count, fence, info} a read/write lock that readers hold: how many, and the last of them to end
--   {us, 'write', pttl, owner, count, fence, info} the same held by a writer
--   {us, 'semaphore', pttl}                       a semaphore; its own script tells more
--   {us, type, pttl}                              no lock (a hash with any other field than a lock has says 'hash')
--
-- One that was released before its shortest time was over has the value, or the info, 'onelock1:released' and no owner.
--
-- Writes nothing.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {now, kind} end

-- Whether a field is that of an owner: `<uuid>:<number>`, in our locks and in Redisson's.
local function is_owner(field)
  return string.sub(field, 37, 37) == ':' and string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') ~= nil
end

-- The fields of a reentrant lock, or nil for any other hash. A lock has one owner and three fields at most; the bound
-- keeps a foreign giant from blocking the server.
local function lock_fields()
  local found = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)
  local fields, owners = found[2], 0
  if found[1] ~= '0' or #fields > 6 then return nil end
  for i = 1, #fields, 2 do
    if fields[i] ~= 'onelock_fence' and fields[i] ~= 'onelock_info' then
      if not is_owner(fields[i]) then return nil end
      owners = owners + 1
    end
  end
  return owners <= 1 and fields or nil
end

local pttl = redis.call('PTTL', KEYS[1])
if kind == 'string' then
  local holder, fence = redis.call('GETRANGE', KEYS[1], 0, 4095), ''
  -- the counter outlives its holds: it says nothing about a foreign client's
  if string.find(holder, '^%-?%d+$') and redis.pcall('GET', KEYS[2]) == 'semaphore' then
    return {now, 'semaphore', pttl}
  elseif string.sub(holder, 1, 9) == 'onelock1:' then
    fence = redis.pcall('GET', KEYS[2])
    if type(fence) ~= 'string' then fence = '' end
  end
  return {now, kind, pttl, holder, fence}
end

-- The fields of a fair lock, or nil for any other hash.
local function fair_fields()
  if redis.call('HMGET', KEYS[1], 'mode')[1] ~= 'fair' then return nil end
  local found = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)
  return found[1] == '0' and #found[2] <= 8 and found[2] or nil
end

-- The reply for a read/write lock, or nil for any other hash. It has any number of owners; so many are looked at.
local function shared()
  local mode = redis.call('HMGET', KEYS[1], 'mode', 'onelock_fence', 'onelock_info')
  local stored, info = mode[2], mode[3] or ''
  mode = mode[1]
  if mode ~= 'read' and mode ~= 'write' then return nil end
  local fields, owner = redis.call('HSCAN', KEYS[1], 0, 'COUNT', 16)[2], nil
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field ~= 'mode' and field ~= 'onelock_fence' and field ~= 'onelock_info' then
      local name = string.gsub(field, ':write$', '')
      if not is_owner(name) then return nil end
      owner = owner or mode == 'write' and name or field
    end
  end
  if not owner and info == '' then return nil end
  local fence = string.match(stored or '', '^t(%d+)$') or ''
  local notes = 1 + (stored and 1 or 0) + (info ~= '' and 1 or 0)
  local count = redis.call('HLEN', KEYS[1]) - notes
  if mode == 'write' then return {now, mode, pttl, owner or '', count > 0 and '1' or '0', fence, info} end
  -- not declared: who may not use read/write locks may look at others
  local tagged = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  if fence ~= '' then
    local readers = 'onelock_readers:' .. tagged
    local ended = redis.pcall('ZCOUNT', readers, '-inf', string.format('%.0f', math.floor(now / 1000)))
    if type(ended) ~= 'table' then
      count = count - ended
      owner = redis.call('ZRANGE', readers, -1, -1)[1] or owner
    end
  end
  local timeout = tagged .. ':' .. (owner or '') .. ':rwlock_timeout:1'
  info = redis.pcall('GET', timeout)
  if type(info) ~= 'string' or info == '1' then info = '' end
  return {now, mode, pttl, owner or '', string.format('%.0f', count), fence, info}
end

local reply = kind == 'hash' and shared()
if reply then return reply end
local fields = kind == 'hash' and lock_fields()
if kind == 'hash' and not fields then
  fields = fair_fields()
  if fields then kind = 'fair' end
end
if fields then
  local owner, count, fence, info = '', '0', '', ''
  for i = 1, #fields, 2 do
    if fields[i] == 'onelock_fence' then
      fence = fields[i + 1]
    elseif fields[i] == 'onelock_info' then
      info = fields[i + 1]
    elseif kind ~= 'fair' or fields[i] ~= 'mode' then
      owner, count = fields[i], fields[i + 1]
    end
  end
  return {now, kind, pttl, owner, count, fence, info}
end
return {now, kind, pttl}
