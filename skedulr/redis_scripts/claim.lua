-- PURPOSE  Take up to `want` tasks under a lease, after promoting what is due. Repeatable by number.
-- KEYS     ready delayed leases claims tasks info owned own cancels wake meta broken
-- ARGV     owner, number of this call, want, how many of them start at once, lease ms
-- RETURNS  {now ms, next due ms or -1, {ids that are to be cancelled}, then per task: id, place,
--          body, header or ''}
--          The token of each is "<owner>:<number>".
-- include: now
-- include: lane
-- include: promote_due
-- include: claim_text
-- include: wake
local ready, delayed, leases, claims, tasks, info, owned, own, cancels, wake, meta, broken =
  unpack(KEYS)
local owner, number = ARGV[1], tonumber(ARGV[2])
local want, starting, lease = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local token = owner .. ':' .. ARGV[2]
local now = now_ms()

local function answer(ids, places, bodies)
  local reply = {now, next_due(delayed), {}}
  if #ids == 0 then return reply end
  if redis.call('EXISTS', cancels) == 1 then
    for i, flag in ipairs(redis.call('SMISMEMBER', cancels, unpack(ids))) do
      if flag == 1 then table.insert(reply[3], ids[i]) end
    end
  end
  local headers = {}
  if redis.call('EXISTS', info) == 1 then headers = redis.call('HMGET', info, unpack(ids)) end
  for i, id in ipairs(ids) do
    local n = 4 * i
    reply[n], reply[n + 1], reply[n + 2], reply[n + 3] = id, places[i], bodies[i], headers[i] or ''
  end
  return reply
end

-- The reply of this very call was lost: give again what it took and still holds.
local function again(ids_text)
  local named = {}
  for id in string.gmatch(ids_text, '%S+') do named[#named + 1] = id end
  local held, ids, places = redis.call('HMGET', claims, unpack(named)), {}, {}
  for i, id in ipairs(named) do
    if holds(held[i], token) then
      local _, at = read_claim(held[i])
      ids[#ids + 1], places[#places + 1] = id, at
    end
  end
  if #ids == 0 then return answer({}) end
  return answer(ids, places, redis.call('HMGET', tasks, unpack(ids)))
end

-- Take up to `want` from ready. An id without a body is nobody's task: it is set aside and shown
-- (doctor), and the rest goes on.
local function pop()
  local popped = redis.call('ZPOPMIN', ready, want)
  local named, ids, places, sound = {}, {}, {}, {}
  for i = 1, #popped, 2 do named[#named + 1] = popped[i] end
  if #named == 0 then return ids end
  for i, body in ipairs(redis.call('HMGET', tasks, unpack(named))) do
    if body then
      local n = #ids + 1
      ids[n], places[n], sound[n] = named[i], popped[2 * i], body
    else
      redis.call('HSET', broken, named[i], 'ready without a body')
    end
  end
  return ids, places, sound
end

local function lease_out(ids, places)
  local expiries, held, until_ms = {}, {}, whole(now + lease)
  for i, id in ipairs(ids) do
    local started = i <= starting and whole(now) or '0'
    expiries[2 * i - 1], expiries[2 * i] = until_ms, id
    held[2 * i - 1], held[2 * i] = id, token .. ' ' .. places[i] .. ' ' .. started
  end
  redis.call('ZADD', leases, unpack(expiries))
  redis.call('HSET', claims, unpack(held))
  redis.call('SADD', owned, unpack(ids))
end

local stored = repeated(own, 'claim', number)
if type(stored) == 'table' then return stored end
if stored then return again(stored) end
if redis.call('HGET', meta, 'paused') == '1' then return {now, -1, {}} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
promote_due(delayed, ready, info, meta, now, 500)
if want == 0 then return answer({}) end
local ids, places, bodies = pop()
if #ids > 0 then
  lease_out(ids, places)
  -- Only a call that took something must be remembered: any other may simply run again.
  remember(own, 'claim', ARGV[2], table.concat(ids, ' '))
  if redis.call('EXISTS', ready) == 1 then wake_one(wake, meta) end
end
return answer(ids, places, bodies)
