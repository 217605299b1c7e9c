-- PURPOSE  Cancel a task. One that has not started ends here; a running one gets a durable flag that
--          its owner finds at the next renewal, and a message that hurries it.
-- KEYS     ready stream removed delayed suspects claims tasks info records done dead cancels watch
--          stats unique progress waiting held edges outbox meta wake limits slots rates releases
--          parked queues
-- ARGV     id, journal entry of the cancel, channel, message
-- RETURNS  {now ms, was}: 'queued', 'scheduled', 'waiting', 'running', 'ended', or
--          'unknown'; and how many tasks wait for it, if any
-- include: now
-- include: queue_remove
-- include: end_tasks
-- include: limiting
-- include rarely: limits
local ready, stream, removed, delayed, suspects, claims, tasks, info, records, done, dead, cancels,
  watch, stats, unique, progress, waiting, held, edges, outbox, meta, wake, limits, slots, rates,
  releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local id = ARGV[1]
local k = {ready = ready, stream = stream, removed = removed, tasks = tasks, claims = claims,
           meta = meta, delayed = delayed, suspects = suspects, waiting = waiting}
local now = now_ms()

if redis.call('HEXISTS', claims, id) == 1 then
  -- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
  redis.call('SREM', cancels, '')
  redis.call('SADD', cancels, id)
  redis.call('PUBLISH', ARGV[3], ARGV[4])
  return {now, 'running'}
end
local was = 'unknown'
if #leave_limits(limiting, {id}, now) == 1 or queue_remove(k, {id}) == 1
    or redis.call('ZREM', suspects, id) == 1 then
  was = 'queued'
elseif redis.call('ZREM', delayed, id) == 1 then
  was = 'scheduled'
elseif redis.call('HDEL', waiting, id) == 1 then
  redis.call('ZREM', held, id)
  redis.call('ZREM', outbox, 'a ' .. id, 't ' .. id)
  was = 'waiting'
elseif redis.call('HEXISTS', records, id) == 1 then
  was = 'ended'
end
if was == 'queued' or was == 'scheduled' or was == 'waiting' then
  local told = end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            {id}, {'c'}, {ARGV[2]}, now)
  if told > 0 then return {now, was, told} end
end
return {now, was}
