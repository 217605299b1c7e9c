-- include: place
-- include rarely: queue_by_place
-- include: whole
-- Keys that take turns. A fair task's place is the next of its key: one behind the last that the key
-- was given, or behind the turn that its level has come to. So the tasks of several keys alternate,
-- a key that comes late starts with the others' next turn and has nothing to catch up, and all this
-- is decided when a task becomes ready. Tasks without a key stand in the order of their sequence.
-- turns: ZSET "<fair key>.<priority>" -> the last place given; an entry goes when its turn has come.
-- meta holds "turn:<priority>", the last place of a fair task that was claimed.

local function new_turns(k)
  return {k = k, come_to = {}, last = {}, members = {}}
end

local function turn_of(turns, priority)
  if not turns.come_to[priority] then
    local k, level = turns.k, tonumber(place(priority, 0))
    local first = queue_first(k, level, level + LEVEL)
    local noted = redis.call('HMGET', k.meta, 'turn:' .. priority, 'sequence')
    turns.come_to[priority] = math.max(tonumber(noted[1] or 0),
      first and tonumber(first) - 1 or level + tonumber(noted[2] or 0))
  end
  return turns.come_to[priority]
end

local function fair_place(turns, key, priority)
  local k, member = turns.k, key .. '.' .. priority
  local last = turns.last[member]
  if not last then
    turns.members[#turns.members + 1] = member
    last = tonumber(redis.call('ZSCORE', k.turns, member) or 0)
  end
  turns.last[member] = math.max(last, turn_of(turns, priority)) + 1
  return whole(turns.last[member])
end

local function close_turns(turns)
  local k, flat = turns.k, {}
  for i, member in ipairs(turns.members) do
    flat[2 * i - 1], flat[2 * i] = whole(turns.last[member]), member
  end
  if #flat > 0 then redis.call('ZADD', k.turns, unpack(flat)) end
end

-- Fair tasks at `places` are claimed: their levels have come so far. Other tasks that come now are
-- not put before what waits for its turn.
local function note_turns(k, places)
  local come_to, levels = {}, {}
  for _, at in ipairs(places) do
    local priority = priority_of(at)
    if not come_to[priority] then levels[#levels + 1] = priority end
    come_to[priority] = math.max(come_to[priority] or 0, tonumber(at))
  end
  for _, priority in ipairs(levels) do
    local at = come_to[priority]
    local noted = redis.call('HMGET', k.meta, 'turn:' .. priority, 'sequence')
    local level = tonumber(place(priority, 0))
    if at > tonumber(noted[1] or 0) then redis.call('HSET', k.meta, 'turn:' .. priority, whole(at)) end
    if at - level > tonumber(noted[2] or 0) then
      redis.call('HSET', k.meta, 'sequence', whole(at - level))
    end
    local over = redis.call('ZRANGEBYSCORE', k.turns, whole(level), whole(at), 'LIMIT', 0, 100)
    if #over > 0 then redis.call('ZREM', k.turns, unpack(over)) end
  end
end
