-- PURPOSE  How busy a pool is, for who sizes it: one call, whatever lies in it.
-- KEYS     ready suspects claims stats meta
-- ARGV     none
-- RETURNS  {now ms, queued, claimed, attempts that ended since ever, paused: 1 or 0}
-- include: now
local ready, suspects, claims, stats, meta = unpack(KEYS)
local ended = redis.call('HMGET', stats, 'succeeded', 'failed')
return {now_ms(), redis.call('ZCARD', ready) + redis.call('ZCARD', suspects),
        redis.call('HLEN', claims), tonumber(ended[1] or 0) + tonumber(ended[2] or 0),
        redis.call('HEXISTS', meta, 'paused')}
