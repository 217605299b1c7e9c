-- PURPOSE  Remove tasks for good, up to 500 a call: those that have not started, or finished ones
--          with their records. A task that is in another state by now stays.
-- KEYS     ready stream removed delayed suspects claims tasks info records done dead cancels watch
--          unique progress waiting held edges outbox meta wake limits slots rates releases parked
--          queues
-- ARGV     'unstarted' or 'ended', then ids
-- RETURNS  {now ms, how many were removed}
-- include: now
-- include: unqueue
-- include: forget
-- include: tell_children
-- include: limiting
local ready, stream, removed, delayed, suspects, claims, tasks, info, records, done, dead, cancels,
  watch, unique, progress, waiting, held, edges, outbox, meta, wake, limits, slots, rates,
  releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local now = now_ms()
local ids, letters = {}, {}
for i = 2, #ARGV do ids[#ids + 1], letters[#letters + 1] = ARGV[i], 'p' end
if #ids == 0 then return {now, 0} end

if ARGV[1] == 'ended' then
  redis.call('ZREM', done, unpack(ids))
  redis.call('ZREM', dead, unpack(ids))
  local count = redis.call('HDEL', records, unpack(ids))
  tell_children({edges = edges, outbox = outbox}, ids, letters, now)
  return {now, count}
end

local found = unqueue({ready = ready, stream = stream, removed = removed, tasks = tasks,
                       claims = claims, meta = meta, delayed = delayed, suspects = suspects,
                       waiting = waiting, held = held, outbox = outbox, limiting = limiting}, ids,
                      now)
if #found > 0 then
  redis.call('HDEL', tasks, unpack(found))
  forget({info = info, unique = unique, cancels = cancels, progress = progress, watch = watch,
          limiting = limiting},
         found, function() return true end)
  tell_children({edges = edges, outbox = outbox}, found, letters, now)
end
return {now, #found}
