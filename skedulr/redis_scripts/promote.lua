-- PURPOSE  Move due tasks to ready and wake a fetcher for them, or for suspects whose time has come.
-- KEYS     ready stream delayed info wake meta suspects limits slots rates releases parked queues
--          turns
-- ARGV     limit (at most 500)
-- RETURNS  {now ms, how many were moved, when the next is due or let out, ms, or -1}
-- include: now
-- include: promote_due
-- include: wake
-- include: limiting
-- include rarely: limits
local ready, stream, delayed, info, wake, meta, suspects, limits, slots, rates, releases, parked,
  queues, turns = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local now = now_ms()

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', delayed, '')
local moved = promote_due({ready = ready, stream = stream, delayed = delayed, info = info,
                           meta = meta, limiting = limiting}, now, tonumber(ARGV[1]))
moved = moved + fire_releases(limiting, now)
if moved > 0 or redis.call('EXISTS', suspects) == 1 then wake_one(wake, meta) end
return {now, moved, next_time(delayed, meta)}
