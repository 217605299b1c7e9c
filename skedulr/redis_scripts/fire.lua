-- PURPOSE  Fire due ticks: each becomes a task, and the next tick is stored, in one step. Whoever
--          comes second finds another tick stored and changes nothing. A tick that was missed and
--          is not made up is passed over the same way.
-- KEYS     ready stream removed delayed suspects claims tasks info records done dead cancels watch
--          stats unique windows progress wake meta planned resting ticks waiting held edges outbox
--          history limits slots rates releases parked queues turns
-- ARGV     control channel; journal entry for a run that is cancelled; '' or what is put behind ids
--          that were used already (after the server's clock was set back);
--          then per tick (at most 100): schedule, revision, the stored tick, the next one or '-',
--          when that one fires (ms), overlap ('a' allow, 's' skip, 'q' queue one, 'c' cancel the
--          run before), id, envelope ('' to pass over), options
-- RETURNS  {now ms, verdicts}: a letter a tick: 'f' fired, 's' skipped (the run before goes on),
--          'h' held until that one ends, 'u' skipped (its unique key is taken), 'k' its id is known
--          already, 'p' passed over, 'n' not due yet, 'x' the pool is paused, 'l' too late: it was
--          fired, or the schedule is another by now, 'o' the pool has no priorities and no limits,
--          and this asks for one: nothing is changed, and the caller is to stop the schedule
-- include: now
-- include: stamp
-- include: plan_text
-- include: enqueue
-- include: unqueue
-- include: end_tasks
-- include: limiting
local ready, stream, removed, delayed, suspects, claims, tasks, info, records, done, dead, cancels,
  watch, stats, unique, windows, progress, wake, meta, planned, resting, ticks, waiting, held,
  edges, outbox, history, limits, slots, rates, releases, parked, queues, turns = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local channel, entry, again = ARGV[1], ARGV[2], ARGV[3]
local count = math.floor((#ARGV - 3) / 9)
local now = now_ms()
local pool = string.match(meta, ':([^}]*)}')
local one_priority = streamed({meta = meta})

if redis.call('HGET', meta, 'paused') == '1' then return {now, string.rep('x', count)} end
if count == 0 then return {now, ''} end

local items, names = {}, {}
for i = 1, count do
  local at = 9 * i - 5
  items[i] = {
    name = ARGV[at], revision = ARGV[at + 1], tick = ARGV[at + 2], following = ARGV[at + 3],
    fires = ARGV[at + 4], overlap = ARGV[at + 5], id = ARGV[at + 6], envelope = ARGV[at + 7],
    options = read_options(ARGV[at + 8], now),
  }
  names[i] = ARGV[at]
end

-- Whether a task of that id is known: it waits, runs or has ended.
local function known(id)
  return redis.call('HEXISTS', tasks, id) == 1 or redis.call('HEXISTS', records, id) == 1
end

-- Tell the control channel when this run ends: a tick waits for it.
local function hear_of_end(id)
  local told = redis.call('HGET', watch, id)
  if not told then
    redis.call('HSET', watch, id, channel)
  elseif not string.find(' ' .. told .. ' ', ' ' .. channel .. ' ', 1, true) then
    redis.call('HSET', watch, id, told .. ' ' .. channel)
  end
end

local function cancel_run(id)
  if redis.call('HEXISTS', claims, id) == 1 then
    redis.call('SADD', cancels, id)
    redis.call('PUBLISH', channel, 'cancel ' .. pool .. '/' .. id)
    return
  end
  if #unqueue({ready = ready, stream = stream, removed = removed, tasks = tasks, claims = claims,
               meta = meta, delayed = delayed, suspects = suspects, waiting = waiting,
               held = held, outbox = outbox, limiting = limiting}, {id}, now) == 0 then return end
  end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            {id}, {'c'}, {entry}, now)
end

-- What the run before means for this tick: nil to fire it, or its verdict.
local function overlapping(item, plan)
  local run = last_run(plan)
  if item.overlap == 'a' or not run then return nil end
  local before = item.name .. '@' .. run
  if redis.call('HEXISTS', tasks, before) == 0 then return nil end
  if item.overlap == 'c' then
    cancel_run(before)
    return nil
  end
  if item.overlap == 'q' and redis.call('HEXISTS', claims, before) == 1 then
    hear_of_end(before)
    return 'h'
  end
  return 's'
end

local function judge(item, plan, fires, locks)
  if not plan or not fires or plan.revision ~= item.revision or plan.tick ~= item.tick then
    return 'l'
  end
  if fires > now then return 'n' end
  if item.envelope == '' then return 'p' end
  if one_priority and (item.options.priority ~= 0 or item.options.limits) then return 'o' end
  local digest = item.options.digest
  if digest and locks[digest] then return 'u' end
  if known(item.id) then
    if again == '' or known(item.id .. again) then return 'k' end
    item.id = item.id .. again
  end
  local verdict = overlapping(item, plan)
  if verdict then return verdict end
  if digest then locks[digest] = item.id end
  return 'f'
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', ticks, '')
local options = {}
for i, item in ipairs(items) do options[i] = item.options end
local locks = living_locks(unique, tasks, digests_of(options), now)
local texts, times = redis.call('HMGET', planned, unpack(names)),
  redis.call('ZMSCORE', ticks, unpack(names))
local unchanged = {l = true, n = true, o = true}
local verdicts, fired, theirs, bodies, states, moved, stamped = {}, {}, {}, {}, {}, {}, stamp(now)
for i, item in ipairs(items) do
  local plan = read_plan(texts[i])
  local verdict = judge(item, plan, times[i] and tonumber(times[i]), locks)
  verdicts[i] = verdict
  if verdict == 'f' then
    fired[#fired + 1], theirs[#theirs + 1] = item.id, item.options
    bodies[#bodies + 1], bodies[#bodies + 2] = item.id, item.envelope .. stamped
    plan.fired = plan.fired + 1
    add_run(plan, string.sub(item.id, #item.name + 2))
  end
  if verdict == 'h' then
    plan.held = '1'
  elseif not unchanged[verdict] then
    if verdict ~= 'f' then plan.skipped = plan.skipped + 1 end
    plan.tick, plan.held = item.following, '0'
    if item.following == '-' then
      redis.call('ZREM', ticks, item.name)
      redis.call('HSET', resting, item.name, 'ended')
    else
      moved[#moved + 1], moved[#moved + 2] = item.fires, item.name
    end
  end
  if not unchanged[verdict] then
    states[#states + 1], states[#states + 2] = item.name, write_plan(plan)
  end
end
if #states > 0 then redis.call('HSET', planned, unpack(states)) end
if #moved > 0 then redis.call('ZADD', ticks, unpack(moved)) end
if #fired > 0 then
  redis.call('HSET', tasks, unpack(bodies))
  enqueue({ready = ready, stream = stream, delayed = delayed, info = info, unique = unique,
           windows = windows, wake = wake, meta = meta, history = history, limiting = limiting},
          fired, theirs, now, true)
end
return {now, table.concat(verdicts)}
