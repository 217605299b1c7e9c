-- PURPOSE  Put schedules of an exported pool where they were: definition, next tick, what they
--          counted, whether they rest. One whose name is known stays as it is. Safe to repeat.
-- KEYS     schedules planned resting ticks
-- ARGV     'store', or 'look' to change nothing; control channel, message; then per schedule (at
--          most 500): name, definition, state (see plan_text.lua), why it rests or '', when it
--          fires next (ms) or ''
-- RETURNS  {now ms, verdicts}: a letter a schedule: 's' stored, 'a' the name is known, 'n' its
--          state can not be read
-- include: now
-- include: plan_text
local schedules, planned, resting, ticks = unpack(KEYS)
local now = now_ms()

local names = {}
for at = 4, #ARGV, 5 do names[#names + 1] = ARGV[at] end
if #names == 0 then return {now, ''} end
local there, verdicts = redis.call('HMGET', schedules, unpack(names)), {}
local definitions, states, reasons, moved, seen = {}, {}, {}, {}, {}
for i, name in ipairs(names) do
  local at = 5 * i - 1
  local plan, why, fires = read_plan(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  verdicts[i] = (there[i] or seen[name]) and 'a' or plan and 's' or 'n'
  if verdicts[i] == 's' then
    seen[name] = true
    -- Nobody here tells when the run ends that it waits for: the tick is looked at anew.
    plan.held = '0'
    definitions[#definitions + 1], definitions[#definitions + 2] = name, ARGV[at + 1]
    states[#states + 1], states[#states + 2] = name, write_plan(plan)
    if why ~= '' then reasons[#reasons + 1], reasons[#reasons + 2] = name, why end
    if fires ~= '' and why == '' then moved[#moved + 1], moved[#moved + 2] = fires, name end
  end
end
if #states > 0 and ARGV[1] == 'store' then
  -- This is the write that Redis refuses when it is full: nothing is stored then.
  redis.call('HSET', schedules, unpack(definitions))
  redis.call('HSET', planned, unpack(states))
  if #reasons > 0 then redis.call('HSET', resting, unpack(reasons)) end
  if #moved > 0 then
    redis.call('ZADD', ticks, unpack(moved))
    redis.call('PUBLISH', ARGV[2], ARGV[3])
  end
end
return {now, table.concat(verdicts)}
