-- PURPOSE  Take up to `want` tasks under a lease, after promoting what is due. Repeatable by number.
--          Suspects are taken in groups of their own (see suspects.lua).
-- KEYS     ready stream removed delayed suspects leases claims tasks info owned own cancels unique
--          wake meta broken limits slots rates releases parked queues turns marks
-- ARGV     owner, number of this call, want (at most 500; 0 ends the lane: a call of this number that
--          still comes takes nothing), how many of them start at once, lease ms,
--          ms after which what waits goes first whatever its priority, or 0
-- RETURNS  {now ms, when the next is due or let out by a limit (ms), now where more is there, or -1,
--          {ids that are to be cancelled}, then per task: id, place, body, header or ''}
--          The token of each is "<owner>:<number>".
-- include: now
-- include: lane
-- include: promote_due
-- include: queue_take
-- include: queue_length
-- include: leases
-- include: claim_text
-- include rarely: locks
-- include rarely: suspects
-- include: wake
-- include rarely: admit
-- include rarely: aging
-- include: limiting
-- include rarely: limits
local ready, stream, removed, delayed, suspects, leases, claims, tasks, info, owned, own,
  cancels, unique, wake, meta, broken, limits, slots, rates, releases, parked, queues, turns,
  marks =
  unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local owner, number = ARGV[1], tonumber(ARGV[2])
local want, starting, lease = math.min(tonumber(ARGV[3]), 500), tonumber(ARGV[4]), tonumber(ARGV[5])
local token = owner .. ':' .. ARGV[2]
local now = now_ms()
local aging = tonumber(ARGV[6] or '0')
local k = {ready = ready, stream = stream, removed = removed, delayed = delayed, leases = leases,
           claims = claims, info = info, meta = meta, limiting = limiting, marks = marks}

-- Whether limits have a say in when the next claim is worth it.
local limited = false

-- The tasks' headers, or nil where no task here has one.
local function headers_of(ids)
  if #ids == 0 or redis.call('EXISTS', info) == 0 then return nil end
  return redis.call('HMGET', info, unpack(ids))
end

-- From when a next group of suspects may be taken, where time alone tells.
local next_group

-- When there may be more to take here: a delayed task is due, or suspects may run.
local function next_claim_at()
  local due = limited and next_time(delayed, meta) or next_due(delayed)
  if next_group and (due == -1 or next_group < due) then return next_group end
  return due
end

local function answer(ids, places, bodies, headers, more)
  local reply = {now, more and now or next_claim_at(), {}}
  if #ids == 0 then return reply end
  if redis.call('EXISTS', cancels) == 1 then
    for i, flag in ipairs(redis.call('SMISMEMBER', cancels, unpack(ids))) do
      if flag == 1 then table.insert(reply[3], ids[i]) end
    end
  end
  for i = 1, #ids do
    local n = 4 * i
    reply[n], reply[n + 1], reply[n + 2], reply[n + 3] =
      ids[i], places[i], bodies[i], headers and headers[i] or ''
  end
  return reply
end

-- The reply of this very call was lost: give again what it took and still holds.
local function again(ids_text)
  local named = {}
  limited = true
  for id in string.gmatch(ids_text, '%S+') do named[#named + 1] = id end
  if #named == 0 then return answer({}) end
  local held, ids, places = redis.call('HMGET', claims, unpack(named)), {}, {}
  for i, id in ipairs(named) do
    if holds(held[i], token) then
      local _, at = read_claim(held[i])
      ids[#ids + 1], places[#places + 1] = id, at
    end
  end
  if #ids == 0 then return answer({}) end
  return answer(ids, places, redis.call('HMGET', tasks, unpack(ids)), headers_of(ids))
end

-- How many suspects this owner is to take now, 0 for other tasks.
local function suspects_to_take(last_group)
  if starting == 0 or redis.call('EXISTS', suspects) == 0 then return 0 end
  local allowed, from = group_allowed(meta, claims, owner, last_group, now)
  next_group = from
  return math.min(allowed, starting, want)
end

-- Note which suspects run together, so that the next are taken at the right time.
local function remember_group(size, ids)
  redis.call('HSET', own, 'suspect', group_text(watched_until(now), size, ids))
  if redis.call('EXISTS', suspects) == 1
     and tonumber(redis.call('HGET', meta, 'wary') or 0) < 2 then
    next_group = watched_until(now)
  end
end

-- Take out of ready what has waited too long, up to half of `limit`, and the rest by its place.
local function take_ready(limit)
  if aging == 0 or streamed(k) then return queue_take(k, owner, limit) end
  local aged = queue_take_aged(k, aging, now, math.ceil(limit / 2))
  if #aged == 2 * limit then return true, aged end
  local _, rest = queue_take(k, owner, limit - #aged / 2)
  for _, one in ipairs(rest) do aged[#aged + 1] = one end
  return #aged > 0, aged
end

-- Take up to `limit` tasks, or suspects; whether anything was there, and ids, places and bodies. An
-- id without a body is nobody's task: it is set aside and shown (doctor), and the rest goes on.
local function pop(suspected, limit)
  local took, popped = true, nil
  if suspected then
    popped = redis.call('ZPOPMIN', suspects, limit)
  else
    took, popped = take_ready(limit)
  end
  local named, ids, places, sound, lost, n = {}, {}, {}, {}, {}, 0
  for i = 1, #popped / 2 do named[i] = popped[2 * i - 1] end
  if #named == 0 then return took, ids, places, sound end
  local bodies = redis.call('HMGET', tasks, unpack(named))
  for i = 1, #named do
    local at, body = whole_score(popped[2 * i]), bodies[i]
    if body then
      n = n + 1
      ids[n], places[n], sound[n] = named[i], at, body
    else
      lost[#lost + 1] = at
      redis.call('HSET', broken, named[i], 'ready without a body')
    end
  end
  queue_drop(k, lost)
  return took, ids, places, sound
end

-- A task that is unique until it starts lets the next one in.
local function release_started(ids, headers)
  local at_once = {}
  for i = 1, math.min(#ids, starting) do at_once[i] = ids[i] end
  release_locks(unique, at_once, headers, function(mode) return mode == 's' end)
end

local function lease_out(ids, places, headers, suspected)
  local mark, held = suspected and ' s' or '', {}
  local before, behind = token .. ' ', ' ' .. whole(now) .. mark
  for i = 1, #ids do
    if i == starting + 1 then behind = ' 0' .. mark end
    held[2 * i - 1], held[2 * i] = ids[i], before .. places[i] .. behind
  end
  lease_give(k, ids, whole(now + lease), suspected)
  redis.call('HSET', claims, unpack(held))
  redis.call('SADD', owned, unpack(ids))
  -- The set goes when it is empty and comes back without its expiry.
  redis.call('EXPIRE', owned, 86400)
  if headers then release_started(ids, headers) end
end

-- Whether any of these tasks has a limit or a fair key.
local function any_limited(headers)
  for i = 1, #headers do
    if headers[i] and string.find(headers[i], ' [lf]:') then return true end
  end
  return false
end

-- Of tasks that were taken out of ready those whose limits allow it, and of the next ones as many
-- as are wanted; up to 500 are looked at.
local function take_allowed(ids, places, bodies, headers, suspected)
  local book, kept = new_book(limiting, now), {ids = {}, places = {}, bodies = {}, headers = {},
                                               fair = {}, holders = {}}
  local looked_at, back = #ids, {}
  limited = true
  for _ = 1, 500 do
    local found = {ids = ids, places = places, bodies = bodies, headers = headers}
    back = admit(book, found, kept, want, starting, suspected)
    if #kept.ids >= want or #back > 0 or looked_at >= 500 or (suspected and #kept.ids > 0) then
      break
    end
    suspected = false
    local more
    local limit = math.min(math.max(want - #kept.ids, 20), 500 - looked_at)
    more, ids, places, bodies = pop(false, limit)
    if not more then break end
    headers = headers_of(ids) or {}
    looked_at = looked_at + #ids
  end
  close_book(book, kept.holders)
  if #kept.fair > 0 then note_turns(limiting, kept.fair) end
  if #book.armed > 0 then note_releases(limiting) end
  if #back > 0 then queue_return(k, back) end
  return kept.ids, kept.places, kept.bodies, kept.headers, suspected
end

local stored, last_group = repeated(own, 'claim', number)
if type(stored) == 'table' then return stored end
if stored then return again(stored) end
if want == 0 then
  remember(own, 'claim', ARGV[2], '')
  return {now, -1, {}}
end
local noted = redis.call('HMGET', meta, 'paused', 'release_at')
if noted[1] == '1' then return {now, -1, {}} end
limited = noted[2]

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
promote_due(k, now, 500)
if limited and tonumber(limited) <= now then fire_releases(limiting, now) end
local group = suspects_to_take(last_group)
local suspected = group > 0
local took, ids, places, bodies = pop(suspected, suspected and group or want)
local headers = headers_of(ids)
if headers and any_limited(headers) then
  ids, places, bodies, headers, suspected = take_allowed(ids, places, bodies, headers, suspected)
end
if #ids > 0 then
  lease_out(ids, places, headers, suspected)
  -- Only a call that took something must be remembered: any other may simply run again.
  remember(own, 'claim', ARGV[2], table.concat(ids, ' '))
  if suspected then remember_group(group, ids) end
end
local more = took and queue_length(k) > 0
if more or (took and redis.call('EXISTS', suspects) == 1) then wake_one(wake, meta) end
return answer(ids, places, bodies, headers, more)
