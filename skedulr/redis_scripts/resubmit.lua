-- PURPOSE  Put finished tasks back into the queue: a fresh start that keeps the history. A second
--          call changes nothing and says so.
-- KEYS     ready stream removed delayed tasks info records done dead unique windows wake meta
--          edges outbox history suspects limits slots rates releases parked queues turns
-- ARGV     capacity (most tasks in ready and delayed together, 0 for no limit)
--          only what ended at this time or before it, ms; 0 for whatever ended
--          then per task: id, '' or "<priority> <when> <unique>" (see enqueue.lua; it never
--          replaces another task), journal entry of the resubmit
-- RETURNS  {now ms, verdicts}: a letter a task: 's' back in the queue, 'a' not finished, or only
--          since that time, 'f' the pool is full, 'u' its unique key is taken, 'n' unknown;
--          where there is an 'u', {the holder of each, in order} as well
-- include: now
-- include: stamp
-- include: enqueue
-- include: queue_length
-- include: retell
-- include: limiting
local ready, stream, removed, delayed, tasks, info, records, done, dead, unique, windows, wake,
  meta, edges, outbox, history, suspects, limits, slots, rates, releases, parked, queues, turns =
  unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local capacity, before, count = tonumber(ARGV[1]), tonumber(ARGV[2]), (#ARGV - 2) / 3
local now = now_ms()
if count == 0 then return {now, ''} end
local k = {ready = ready, stream = stream, removed = removed, delayed = delayed, info = info,
           unique = unique, windows = windows, wake = wake, meta = meta, history = history,
           limiting = limiting}

local ids, options = {}, {}
for i = 1, count do
  ids[i], options[i] = ARGV[3 * i], read_options(ARGV[3 * i + 1], now)
end

local function room_left()
  if capacity == 0 then return count end
  return capacity - queue_length(k) - redis.call('ZCARD', delayed) - redis.call('ZCARD', parked)
end

-- Which of the tasks ended after the time that was named.
local function ended_since()
  local since = {}
  if before == 0 then return since end
  local well, badly = redis.call('ZMSCORE', done, unpack(ids)), redis.call('ZMSCORE', dead, unpack(ids))
  for i = 1, count do since[i] = tonumber(well[i] or badly[i] or '0') > before end
  return since
end

local function judge(ended)
  local locks, since = living_locks(unique, tasks, digests_of(options), now), ended_since()
  local verdicts, back, seen, holders, room = {}, {}, {}, {}, room_left()
  for i, id in ipairs(ids) do
    local digest = options[i].digest
    local holder = digest and locks[digest]
    if holder == id then holder = nil end
    if seen[id] or since[i] then
      verdicts[i] = 'a'
    elseif not ended[i] then
      verdicts[i] = redis.call('HEXISTS', tasks, id) == 1 and 'a' or 'n'
    elseif holder then
      verdicts[i] = 'u'
      holders[#holders + 1] = holder
    elseif room <= 0 then
      verdicts[i] = 'f'
    else
      verdicts[i], seen[id], room = 's', true, room - 1
      back[#back + 1] = i
      if digest then locks[digest] = id end
    end
  end
  return table.concat(verdicts), back, holders
end

local function revive(back, ended)
  local stamped, bodies, theirs, moved = stamp(now), {}, {}, {}
  for n, i in ipairs(back) do
    moved[n], theirs[n] = ids[i], options[i]
    bodies[2 * n - 1], bodies[2 * n] = ids[i], ended[i] .. ARGV[3 * i + 2] .. stamped
  end
  redis.call('HDEL', records, unpack(moved))
  redis.call('ZREM', done, unpack(moved))
  redis.call('ZREM', dead, unpack(moved))
  redis.call('HSET', tasks, unpack(bodies))
  enqueue(k, moved, theirs, now)
  retell({edges = edges, outbox = outbox}, moved, now)
end

local ended = redis.call('HMGET', records, unpack(ids))
local verdicts, back, holders = judge(ended)
if #back > 0 then revive(back, ended) end
if #holders > 0 then return {now, verdicts, holders} end
return {now, verdicts}
