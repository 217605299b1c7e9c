-- PURPOSE  Give back claims before they expire: named ones (a drain, a silent hub), or everything a
--          dead owner held, up to 500 a call. A whole owner's release marks it gone, so that a
--          claim of its that is still under way is refused.
-- KEYS     ready leases claims owned own wake meta
-- ARGV     'owner', owner         all that it holds
--          'ids', then pairs id, token
-- RETURNS  {now ms, {ids given back}, 1 if more may be left}
-- include: now
-- include: give_back
-- include: wake
local ready, leases, claims, owned, own, wake, meta = unpack(KEYS)
local now = now_ms()
local named, prefixes, more = {}, {}, 0

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
if ARGV[1] == 'owner' then
  named = redis.call('SPOP', owned, 500)
  redis.call('HSET', own, 'gone', '1')
  redis.call('EXPIRE', own, 3600)
  for i = 1, #named do prefixes[i] = ARGV[2] .. ':' end
  more = redis.call('EXISTS', owned)
else
  for i = 2, #ARGV, 2 do
    named[#named + 1], prefixes[#prefixes + 1] = ARGV[i], ARGV[i + 1] .. ' '
  end
  if #named > 0 then redis.call('SREM', owned, unpack(named)) end
end

local ids, texts = {}, {}
if #named > 0 then
  for i, text in ipairs(redis.call('HMGET', claims, unpack(named))) do
    if text and string.sub(text, 1, #prefixes[i]) == prefixes[i] then
      ids[#ids + 1], texts[#texts + 1] = named[i], text
    end
  end
  give_back(ready, leases, claims, ids, texts)
  if #ids > 0 then wake_one(wake, meta) end
end
return {now, ids, more}
