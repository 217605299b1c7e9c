-- PURPOSE  Remove tasks for good, up to 500 a call: those that have not started, or finished ones
--          with their records. A task that is in another state by now stays.
-- KEYS     ready delayed suspects tasks info records done dead cancels watch unique progress
-- ARGV     'unstarted' or 'ended', then ids
-- RETURNS  {now ms, how many were removed}
-- include: now
-- include: unqueue
-- include: forget
local ready, delayed, suspects, tasks, info, records, done, dead, cancels, watch, unique, progress =
  unpack(KEYS)
local now = now_ms()
local ids = {}
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return {now, 0} end

if ARGV[1] == 'ended' then
  redis.call('ZREM', done, unpack(ids))
  redis.call('ZREM', dead, unpack(ids))
  return {now, redis.call('HDEL', records, unpack(ids))}
end

local removed = unqueue({ready = ready, delayed = delayed, suspects = suspects}, ids)
if #removed > 0 then
  redis.call('HDEL', tasks, unpack(removed))
  forget({info = info, unique = unique, cancels = cancels, progress = progress, watch = watch},
         removed, function() return true end)
end
return {now, #removed}
