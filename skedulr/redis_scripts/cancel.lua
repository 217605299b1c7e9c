-- PURPOSE  Cancel a task. One that has not started ends here; a running one gets a durable flag that
--          its owner finds at the next renewal, and a message that hurries it.
-- KEYS     ready delayed suspects claims tasks info records done dead cancels watch stats unique
--          progress
-- ARGV     id, journal entry of the cancel, channel, message
-- RETURNS  {now ms, was}: 'queued', 'scheduled', 'running', 'ended', or 'unknown'
-- include: now
-- include: end_tasks
local ready, delayed, suspects, claims, tasks, info, records, done, dead, cancels, watch, stats,
  unique, progress = unpack(KEYS)
local id = ARGV[1]
local now = now_ms()

if redis.call('HEXISTS', claims, id) == 1 then
  -- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
  redis.call('SREM', cancels, '')
  redis.call('SADD', cancels, id)
  redis.call('PUBLISH', ARGV[3], ARGV[4])
  return {now, 'running'}
end
local was = 'unknown'
if redis.call('ZREM', ready, id) == 1 or redis.call('ZREM', suspects, id) == 1 then
  was = 'queued'
elseif redis.call('ZREM', delayed, id) == 1 then
  was = 'scheduled'
elseif redis.call('HEXISTS', records, id) == 1 then
  was = 'ended'
end
if was == 'queued' or was == 'scheduled' then
  end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress}, {id}, {'c'}, {ARGV[2]}, now)
end
return {now, was}
