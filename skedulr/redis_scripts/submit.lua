-- PURPOSE  Store a batch of tasks: to ready, or to delayed where a delay or a time is given.
--          Safe to repeat: an id whose stored envelope is the same counts as stored.
-- KEYS     ready delayed tasks info records wake meta
-- ARGV     capacity (most tasks in ready and delayed together, 0 for no limit)
--          then per task: id, envelope, and '' or "<priority> <when> <unique>"
--          where <when> is '-', '+<delay ms>' or '@<due ms>'
-- RETURNS  {now ms, verdicts}: a letter a task: 's' stored, 'a' already there (the same envelope),
--          'd' another task has this id, 'f' the pool is full
-- include: now
-- include: stamp
-- include: promote_due
-- include: wake
local ready, delayed, tasks, info, records, wake, meta = unpack(KEYS)
local capacity = tonumber(ARGV[1])
local count = (#ARGV - 1) / 3
local now = now_ms()

local ids = {}
for i = 1, count do ids[i] = ARGV[3 * i - 1] end

-- Decide first, write after: a refused write must leave nothing behind.
local function judge()
  local stored = redis.call('HMGET', tasks, unpack(ids))
  local ended = redis.call('HMGET', records, unpack(ids))
  local room = count
  if capacity > 0 then
    room = capacity - redis.call('ZCARD', ready) - redis.call('ZCARD', delayed)
  end
  local verdicts, fresh, seen = {}, {}, {}
  for i, id in ipairs(ids) do
    local envelope = ARGV[3 * i]
    local known = seen[id] or stored[i] or ended[i]
    if known then
      verdicts[i] = string.sub(known, 1, #envelope) == envelope and 'a' or 'd'
    elseif #fresh >= room then
      verdicts[i] = 'f'
    else
      verdicts[i] = 's'
      seen[id] = envelope
      fresh[#fresh + 1] = i
    end
  end
  return table.concat(verdicts), fresh
end

local function options_of(i)
  local text = ARGV[3 * i + 1]
  if text == '' then return 0, 0, '-' end
  local priority, when, unique = string.match(text, '^(%-?%d+) (%S+) (%S+)$')
  local due = 0
  if when ~= '-' then
    due = tonumber(string.sub(when, 2))
    if string.sub(when, 1, 1) == '+' then due = now + due end
  end
  return tonumber(priority), due, unique
end

local function store(fresh)
  local stamped, bodies = stamp(now), {}
  for n, i in ipairs(fresh) do
    bodies[2 * n - 1], bodies[2 * n] = ids[i], ARGV[3 * i] .. stamped
  end
  -- This is the write that Redis refuses when it is full: nothing is stored then.
  redis.call('HSET', tasks, unpack(bodies))
  local sequence = redis.call('HINCRBY', meta, 'sequence', #fresh) - #fresh
  local headers, places, later, first = {}, {}, {}, nil
  for n, i in ipairs(fresh) do
    local id = ids[i]
    local priority, due, unique = options_of(i)
    if due > now then
      later[#later + 1], later[#later + 2] = whole(due), id
      if not first or due < first then first = due end
    else
      places[#places + 1], places[#places + 2] = place(priority, sequence + n), id
    end
    -- A delayed task's due time is its score; it moves to the header when it is promoted.
    if priority ~= 0 or unique ~= '-' or (due > 0 and due <= now) then
      headers[#headers + 1] = id
      headers[#headers + 1] = write_header(
        {priority = priority, attempts = 0, crashes = 0, due = due, unique = unique})
    end
  end
  if #headers > 0 then redis.call('HSET', info, unpack(headers)) end
  if #places > 0 then redis.call('ZADD', ready, unpack(places)) end
  local before = next_due(delayed)
  if #later > 0 then redis.call('ZADD', delayed, unpack(later)) end
  -- A delayed task needs a fetcher now only if it is the earliest: the others' wheels know of it.
  if #places > 0 or (first and (before == -1 or first < before)) then wake_one(wake, meta) end
end

local verdicts, fresh = judge()
if #fresh > 0 then store(fresh) end
return {now, verdicts}
