-- PURPOSE  Store a batch of tasks: to ready, to delayed where a delay or a time is given, or to
--          waiting where they are to wait for others.
--          Safe to repeat: an id whose stored envelope is the same counts as stored.
-- KEYS     ready stream removed delayed suspects claims tasks info records done dead cancels watch
--          stats unique windows progress wake meta waiting held edges outbox history limits slots
--          rates releases parked queues turns
-- ARGV     capacity (most tasks in ready and delayed together, 0 for no limit); "<capacity> <id>":
--          nothing is stored once that task is no more to be tied to these, and the answer is ''
--          then per task: id, envelope, and '' or "<priority> <when> <unique>[ <letters>]" (see
--          enqueue.lua);
--          then, if a task is to replace another one, the journal entry of that one's cancel
-- RETURNS  {now ms, verdicts}: a letter a task: 's' stored, 'a' already there (the same envelope),
--          'd' another task has this id, 'f' the pool is full, 'u' its unique key is taken,
--          'p' it has a priority or a limit, and the pool's transport none;
--          where there is an 'u', {the holder of each, in order} as well
-- include: now
-- include: stamp
-- include: place
-- include: queue_add
-- include: open_minute
-- include: wake
local ready, stream, removed, delayed, suspects, claims, tasks, info, records, done, dead, cancels,
  watch, stats, unique, windows, progress, wake, meta, waiting, held, edges, outbox, history,
  limits, slots, rates, releases, parked, queues, turns = unpack(KEYS)

-- Mostly it is one task, new and plain, and no bound to the queue: the same in the same order as
-- below, in half the time. What all else needs is not even made then.
if #ARGV < 7 and ARGV[1] == '0' and ARGV[4] == '' then
  local id, now, k = ARGV[2], now_ms(), {ready = ready, stream = stream, meta = meta}
  -- It is refused here, before anything is written, where another program keeps the pool's tasks.
  streamed(k)
  if redis.call('HEXISTS', tasks, id) == 0 and redis.call('HEXISTS', records, id) == 0 then
    redis.call('HSET', tasks, id, ARGV[3] .. stamp(now))
    count_submitted(history, 1, now)
    queue_add(k, {place(0, redis.call('HINCRBY', meta, 'sequence', 1)), id})
    wake_one(wake, meta)
    return {now, 's'}
  end
end

-- include: enqueue
-- include: queue_length
-- include rarely: unqueue
-- include rarely: hold_back
-- include rarely: end_tasks
-- include: limiting
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local capacity, maker = string.match(ARGV[1], '^(%d+) ?(.*)$')
capacity = tonumber(capacity)
local count = math.floor((#ARGV - 1) / 3)
local now = now_ms()
if count == 0 then return {now, ''} end
-- Whoever cancels a map step takes this out of the outbox, and sees all that was made before.
if maker ~= '' and not redis.call('ZSCORE', outbox, 't ' .. maker)
   and not redis.call('ZSCORE', outbox, 'a ' .. maker) then
  return {now, ''}
end
local k = {ready = ready, stream = stream, removed = removed, delayed = delayed,
           suspects = suspects, tasks = tasks, claims = claims, info = info, unique = unique,
           windows = windows, wake = wake, meta = meta, waiting = waiting, held = held,
           outbox = outbox, history = history,
           limiting = limiting}

local ids, options = {}, {}
local one_priority = streamed(k)
for i = 1, count do
  ids[i], options[i] = ARGV[3 * i - 1], read_options(ARGV[3 * i + 1], now)
end

-- Room for how many more.
local function room_left()
  if capacity == 0 then return count end
  return capacity - queue_length(k) - redis.call('ZCARD', delayed) - redis.call('ZCARD', parked)
end

-- Whether a lock's holder has not been started: only then another may take its place.
local function replaceable(holder, stored_now)
  if stored_now[holder] then return true end
  return queue_has(k, {holder})[1] or redis.call('ZSCORE', delayed, holder)
    or redis.call('ZSCORE', suspects, holder) or redis.call('ZSCORE', parked, holder)
    or redis.call('HEXISTS', waiting, holder) == 1
end

-- Decide first, write after: a refused write must leave nothing behind.
local function judge()
  local stored = redis.call('HMGET', tasks, unpack(ids))
  local ended = redis.call('HMGET', records, unpack(ids))
  local digests = digests_of(options)
  local locks = #digests > 0 and living_locks(unique, tasks, digests, now) or {}
  local room, verdicts, fresh, seen, holders, replaced = room_left(), {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local envelope, o = ARGV[3 * i], options[i]
    local known, holder = seen[id] or stored[i] or ended[i], o.digest and locks[o.digest]
    if holder == id then holder = nil end
    if known then
      verdicts[i] = string.sub(known, 1, #envelope) == envelope and 'a' or 'd'
    elseif holder and not (o.on_duplicate == 'p' and replaceable(holder, seen)) then
      verdicts[i] = 'u'
      holders[#holders + 1] = holder
    elseif one_priority and (o.priority ~= 0 and not o.ours or o.limits) then
      verdicts[i] = 'p'
    elseif not holder and room <= 0 then
      verdicts[i] = 'f'
    else
      verdicts[i] = 's'
      seen[id] = envelope
      fresh[#fresh + 1] = i
      if o.digest then locks[o.digest] = id end
      -- A task that replaces another one takes its room.
      if holder then replaced[#replaced + 1] = holder else room = room - 1 end
    end
  end
  return table.concat(verdicts), fresh, holders, replaced
end

local function store(fresh)
  local stamped, bodies, new, theirs, tied, tied_options = stamp(now), {}, {}, {}, {}, {}
  for n, i in ipairs(fresh) do
    if options[i].letters then
      tied[#tied + 1], tied_options[#tied + 1] = ids[i], options[i]
    else
      new[#new + 1], theirs[#new + 1] = ids[i], options[i]
    end
    bodies[2 * n - 1], bodies[2 * n] = ids[i], ARGV[3 * i] .. stamped
  end
  -- This is the write that Redis refuses when it is full: nothing is stored then.
  redis.call('HSET', tasks, unpack(bodies))
  if #new > 0 then
    enqueue(k, new, theirs, now, true)
  end
  if #tied > 0 then
    hold_back(k, tied, tied_options, now)
  end
end

local function cancel_replaced(replaced)
  local kinds, entries, entry = {}, {}, ARGV[3 * count + 2]
  unqueue(k, replaced, now)
  for i = 1, #replaced do kinds[i], entries[i] = 'c', entry end
  end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            replaced, kinds, entries, now)
end

local verdicts, fresh, holders, replaced = judge()
if #replaced > 0 and not ARGV[3 * count + 2] then error('no journal entry for what is replaced') end
if #fresh > 0 then store(fresh) end
if #replaced > 0 then cancel_replaced(replaced) end
if #holders > 0 then return {now, verdicts, holders} end
return {now, verdicts}
