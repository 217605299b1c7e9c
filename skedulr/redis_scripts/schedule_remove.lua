-- PURPOSE  Remove schedules with their next ticks. Runs that were enqueued stay what they are.
-- KEYS     schedules planned resting ticks declarers
-- ARGV     '' or the set of code that must be the one that declares them, and for how long it must
--          not have been heard (ms); then names (at most 500)
-- RETURNS  {now ms, verdicts}: a letter a name: 'r' removed, '-' there was none (any more)
-- include: now
-- include: plan_text
-- include: silent
local schedules, planned, resting, ticks, declarers = unpack(KEYS)
local by, names, gone, verdicts = ARGV[1], {}, {}, {}
local now = now_ms()

for i = 3, #ARGV do names[#names + 1] = ARGV[i] end
if #names == 0 then return {now, ''} end
if by ~= '' and not is_silent(declarers, by, now - tonumber(ARGV[2])) then
  return {now, string.rep('-', #names)}
end
for i, text in ipairs(redis.call('HMGET', planned, unpack(names))) do
  local plan = read_plan(text)
  verdicts[i] = '-'
  if plan and (by == '' or plan.by == by) then
    verdicts[i] = 'r'
    gone[#gone + 1] = names[i]
  end
end
if #gone > 0 then
  redis.call('ZREM', ticks, unpack(gone))
  redis.call('HDEL', resting, unpack(gone))
  redis.call('HDEL', planned, unpack(gone))
  redis.call('HDEL', schedules, unpack(gone))
end
return {now, table.concat(verdicts)}
