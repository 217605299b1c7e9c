-- PURPOSE  Mend schedules that doctor.py found broken, up to 100 a call. Each is looked at once more,
--          so that what is sound by now stays as it is.
-- KEYS     schedules planned resting ticks
-- ARGV     what: 'remove' what is left of one whose definition or state is gone, 'tick' gives one
--          that lost its next tick that tick again, 'rest' takes the tick of one that rests; names
-- RETURNS  {now ms, letters}: a letter a name: 'm' mended, '-' there was nothing to mend (any more)
-- include: now
-- include: plan_text
local schedules, planned, resting, ticks = unpack(KEYS)
local letters = {}
local now = now_ms()

local function plan_of(name)
  if redis.call('HEXISTS', schedules, name) == 0 then return nil end
  return read_plan(redis.call('HGET', planned, name))
end

local mends = {}

mends['remove'] = function(name)
  if plan_of(name) then return false end
  return redis.call('HDEL', schedules, name) + redis.call('HDEL', planned, name)
    + redis.call('HDEL', resting, name) + redis.call('ZREM', ticks, name) > 0
end

mends['tick'] = function(name)
  local plan = plan_of(name)
  if not plan or redis.call('ZSCORE', ticks, name) or redis.call('HEXISTS', resting, name) == 1 then
    return false
  end
  if tonumber(plan.tick) then
    redis.call('ZADD', ticks, plan.tick, name)
  else
    redis.call('HSET', resting, name, 'ended')
  end
  return true
end

mends['rest'] = function(name)
  return redis.call('HEXISTS', resting, name) == 1 and redis.call('ZREM', ticks, name) == 1
end

local mend = mends[ARGV[1]]
if not mend then error('nothing is mended that way: ' .. ARGV[1]) end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', ticks, '')
for i = 2, #ARGV do letters[i - 1] = mend(ARGV[i]) and 'm' or '-' end
return {now, table.concat(letters)}
