-- PURPOSE  Give back what expired leases hold, up to `limit`. After a gap in the sweeps (Redis was
--          away, so its owners could not renew either) it gives nothing back for one lease.
-- KEYS     ready leases claims wake meta broken
-- ARGV     limit (at most 500), lease ms, longest gap between two sweeps ms
-- RETURNS  {now ms, {ids given back}, 1 if more may be left}
-- include: now
-- include: whole
-- include: give_back
-- include: wake
local ready, leases, claims, wake, meta, broken = unpack(KEYS)
local limit, lease, gap = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms()

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local last = redis.call('HMGET', meta, 'swept', 'recover_after')
local swept, after = tonumber(last[1] or now), tonumber(last[2] or 0)
-- The first sweep ever, a gap, or a clock set back: owners that live get time to renew first.
if not last[1] or now - swept > gap or now < swept then
  after = now + lease
  redis.call('HSET', meta, 'swept', whole(now), 'recover_after', whole(after))
else
  redis.call('HSET', meta, 'swept', whole(now))
end
if now < after and after - now <= lease then return {now, {}, 0} end

local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', whole(now), 'LIMIT', 0, limit)
if #expired == 0 then return {now, {}, 0} end
local ids, texts = {}, {}
for i, text in ipairs(redis.call('HMGET', claims, unpack(expired))) do
  if text and read_claim(text) then
    ids[#ids + 1], texts[#texts + 1] = expired[i], text
  else
    redis.call('ZREM', leases, expired[i])
    redis.call('HSET', broken, expired[i], 'leased without a claim')
  end
end
give_back(ready, leases, claims, ids, texts)
if #ids > 0 then wake_one(wake, meta) end
return {now, ids, #expired == limit and 1 or 0}
