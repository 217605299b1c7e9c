-- PURPOSE  Run a schedule now, beside its ticks: paused or not, whatever still runs.
-- KEYS     ready stream delayed tasks info records unique windows wake meta planned history
--          suspects limits slots rates releases parked queues turns
-- ARGV     schedule, revision, id, envelope, options
-- RETURNS  {now ms, verdict}: 'f' it is enqueued, 'k' its id is known already, 'u' its unique key is
--          taken, 'l' the schedule is another by now, or gone, 'o' the pool has no priorities and no
--          limits, and this asks for one
-- include: now
-- include: stamp
-- include: plan_text
-- include: enqueue
-- include: limiting
local ready, stream, delayed, tasks, info, records, unique, windows, wake, meta, planned, history,
  suspects, limits, slots, rates, releases, parked, queues, turns = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local name, id = ARGV[1], ARGV[3]
local now = now_ms()
local options = read_options(ARGV[5], now)

local plan = read_plan(redis.call('HGET', planned, name))
if not plan or plan.revision ~= ARGV[2] then return {now, 'l'} end
if streamed({meta = meta}) and (options.priority ~= 0 or options.limits) then return {now, 'o'} end
if redis.call('HEXISTS', tasks, id) == 1 or redis.call('HEXISTS', records, id) == 1 then
  return {now, 'k'}
end
if options.digest and living_locks(unique, tasks, {options.digest}, now)[options.digest] then
  return {now, 'u'}
end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', planned, '')
plan.fired = plan.fired + 1
add_run(plan, string.sub(id, #name + 2))
redis.call('HSET', planned, name, write_plan(plan))
redis.call('HSET', tasks, id, ARGV[4] .. stamp(now))
enqueue({ready = ready, stream = stream, delayed = delayed, info = info, unique = unique,
         windows = windows, wake = wake, meta = meta, history = history,
         limiting = limiting}, {id}, {options}, now)
return {now, 'f'}
