-- include: place
-- include rarely: queue_by_place
-- include: whole
-- Work that has waited too long goes first, whatever its priority. marks: ZSET sequence -> the time
-- at which it was given, one a second at most. What has a sequence no larger than the one that was
-- given `aging` ms ago has waited that long. Inside a level the order stays as it is.

-- The most levels that are looked at.
local MOST_LEVELS = 16

-- The last sequence that was given `aging` ms ago or before, or nil; the time is noted.
local function aged_sequence(k, aging, now)
  local newest = redis.call('ZREVRANGEBYSCORE', k.marks, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local step = math.min(1000, math.max(10, aging / 50))
  if #newest == 0 or now - tonumber(newest[2]) >= step or tonumber(newest[2]) > now then
    redis.call('ZADD', k.marks, whole(now), redis.call('HGET', k.meta, 'sequence') or '0')
  end
  local old = redis.call('ZREVRANGEBYSCORE', k.marks, whole(now - aging), '-inf', 'WITHSCORES',
                         'LIMIT', 0, 1)
  if #old == 0 then return nil end
  redis.call('ZREMRANGEBYSCORE', k.marks, '-inf', '(' .. old[2])
  return tonumber(old[1])
end

-- Take up to `limit` tasks that have waited longer than `aging` ms out of ready, the lower levels
-- first behind the highest: a flat list of id, place, ...
local function queue_take_aged(k, aging, now, limit)
  local taken, sequence = {}, aged_sequence(k, aging, now)
  if not sequence then return taken end
  local from, top = 0, true
  for _ = 1, MOST_LEVELS do
    local first = queue_first(k, from, 2 ^ 53)
    if not first then break end
    local level = tonumber(place(priority_of(first), 0))
    -- The highest level is served as it is.
    if not top then
      local old = queue_take_between(k, level, level + sequence, limit - #taken / 2)
      for _, one in ipairs(old) do taken[#taken + 1] = one end
      if #taken >= 2 * limit then break end
    end
    from, top = level + LEVEL, false
  end
  return taken
end
