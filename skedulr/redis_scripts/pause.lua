-- PURPOSE  Pause a pool: nothing is claimed until it is resumed; what runs goes on. Or resume it.
-- KEYS     ready stream delayed suspects wake meta
-- ARGV     '1' to pause, '0' to resume
-- RETURNS  {now ms, whether that changed anything: 1 or 0}
-- include: now
-- include: wake
local ready, stream, delayed, suspects, wake, meta = unpack(KEYS)
local now = now_ms()
if ARGV[1] == '1' then
  return {now, redis.call('HSET', meta, 'paused', '1')}
end
local changed = redis.call('HDEL', meta, 'paused')
-- Fetchers that were told of nothing while it was paused are told now.
if redis.call('EXISTS', ready, stream, delayed, suspects) > 0 then wake_one(wake, meta) end
return {now, changed}
