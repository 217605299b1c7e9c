-- PURPOSE  Move due tasks to ready when no claim does it, because every worker here is busy.
-- KEYS     ready stream delayed info wake meta
-- ARGV     limit (at most 500)
-- RETURNS  {now ms, how many were moved, next due ms or -1}
-- include: now
-- include: promote_due
-- include: wake
local ready, stream, delayed, info, wake, meta = unpack(KEYS)
local now = now_ms()

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', delayed, '')
local moved = promote_due({ready = ready, stream = stream, delayed = delayed, info = info,
                           meta = meta}, now, tonumber(ARGV[1]))
if moved > 0 then wake_one(wake, meta) end
return {now, moved, next_due(delayed)}
