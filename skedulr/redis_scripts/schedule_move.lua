-- PURPOSE  Stop a schedule, or have it go on from a given tick, if it is still what was looked at.
-- KEYS     planned resting ticks declarers
-- ARGV     control channel, message, name, revision, the stored tick (or '-'), what:
--          'rest' and the reason ('paused', 'error ...'); 'retire' and for how long the code that
--          declares it must not have been heard (ms);
--          'resume', the tick to go on with or '-', when that one fires (ms);
--          'replan' and the same, for one that does not rest
-- RETURNS  {now ms, 1 where it was done}
-- include: now
-- include: plan_text
-- include: silent
local planned, resting, ticks, declarers = unpack(KEYS)
local channel, message, name, what = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local now = now_ms()

local plan = read_plan(redis.call('HGET', planned, name))
if not plan or plan.revision ~= ARGV[4] or plan.tick ~= ARGV[5] then return {now, 0} end
if (what == 'replan' or what == 'retire') and redis.call('HEXISTS', resting, name) == 1 then
  return {now, 0}
end
if what == 'retire' and not is_silent(declarers, plan.by, now - tonumber(ARGV[7])) then
  return {now, 0}
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', ticks, '')
if what == 'rest' or what == 'retire' then
  redis.call('ZREM', ticks, name)
  redis.call('HSET', resting, name, what == 'retire' and 'undeclared' or ARGV[7])
  return {now, 1}
end
plan.tick, plan.held = ARGV[7], '0'
redis.call('HSET', planned, name, write_plan(plan))
if plan.tick == '-' then
  redis.call('ZREM', ticks, name)
  redis.call('HSET', resting, name, 'ended')
else
  redis.call('HDEL', resting, name)
  redis.call('ZADD', ticks, ARGV[8], name)
  redis.call('PUBLISH', channel, message)
end
return {now, 1}
