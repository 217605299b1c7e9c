-- PURPOSE  Store schedules, new ones and changed ones. One that is the same keeps its place; one
--          that changed is planned anew and keeps what it counted. Safe to repeat.
-- KEYS     schedules planned resting ticks
-- ARGV     control channel, message; who declares them: a set of code, '-' for the API;
--          then per schedule (at most 500): name, revision, definition, first tick or '-', when
--          that one fires (ms)
-- RETURNS  {now ms, verdicts}: a letter a schedule: 'n' new, 'c' changed, 's' the same,
--          'd' refused: code declares it, and this is the API
-- include: now
-- include: plan_text
local schedules, planned, resting, ticks = unpack(KEYS)
local channel, message, by = ARGV[1], ARGV[2], ARGV[3]
local count = math.floor((#ARGV - 3) / 5)
local now = now_ms()

local names = {}
for i = 1, count do names[i] = ARGV[5 * i - 1] end
if count == 0 then return {now, ''} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', ticks, '')
local texts, times, why = redis.call('HMGET', planned, unpack(names)),
  redis.call('ZMSCORE', ticks, unpack(names)), redis.call('HMGET', resting, unpack(names))
local there = redis.call('HMGET', schedules, unpack(names))
local verdicts, definitions, states, moved, woken = {}, {}, {}, {}, {}

local function plan_anew(plan, i)
  local tick, fires = ARGV[5 * i + 2], ARGV[5 * i + 3]
  plan.tick, plan.held = tick, '0'
  if tick == '-' then
    redis.call('ZREM', ticks, names[i])
    redis.call('HSET', resting, names[i], 'ended')
  else
    moved[#moved + 1], moved[#moved + 2] = fires, names[i]
    woken[#woken + 1] = names[i]
  end
end

for i, name in ipairs(names) do
  local revision, plan, verdict = ARGV[5 * i], there[i] and read_plan(texts[i]), nil
  if not plan then
    verdict = 'n'
    plan = {revision = revision, by = by, tick = '-', held = '0', fired = 0, skipped = 0,
            runs = '-'}
    plan_anew(plan, i)
  elseif by == '-' and plan.by ~= '-' then
    verdict = 'd'
  elseif plan.revision ~= revision then
    verdict = 'c'
    plan.revision = revision
    -- A paused one stays paused, and is planned when it is resumed.
    if why[i] ~= 'paused' then plan_anew(plan, i) end
  else
    verdict = 's'
    if why[i] == 'undeclared' and plan.tick ~= '-' then
      -- Back after a while: the tick it stopped at is due, and caught up with.
      moved[#moved + 1], moved[#moved + 2] = plan.tick, name
      woken[#woken + 1] = name
    elseif (not times[i] and not why[i]) or (why[i] and string.sub(why[i], 1, 5) == 'error') then
      plan_anew(plan, i)
    end
  end
  verdicts[i] = verdict
  if verdict ~= 'd' then
    plan.by = by
    definitions[#definitions + 1], definitions[#definitions + 2] = name, ARGV[5 * i + 1]
    states[#states + 1], states[#states + 2] = name, write_plan(plan)
  end
end
if #states > 0 then
  redis.call('HSET', schedules, unpack(definitions))
  redis.call('HSET', planned, unpack(states))
end
if #woken > 0 then redis.call('HDEL', resting, unpack(woken)) end
if #moved > 0 then
  redis.call('ZADD', ticks, unpack(moved))
  redis.call('PUBLISH', channel, message)
end
return {now, table.concat(verdicts)}
