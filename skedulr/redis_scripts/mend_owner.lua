-- PURPOSE  Mend what is kept of one owner, up to 100 ids a call. Each is looked at once more, so that
--          what is sound by now stays as it is.
-- KEYS     claims owned own
-- ARGV     what, owner, then: 'own': ids whose claims it has, to be among what it holds;
--          'disown': ids that others hold, or nobody; 'expire': 'owned' and 'own', to have an expiry
-- RETURNS  {now ms, letters}: a letter an id: 'm' mended, '-' there was nothing to mend (any more)
-- include: now
local claims, owned, own = unpack(KEYS)
local what, owner, letters = ARGV[1], ARGV[2], {}
local now = now_ms()

local function holds_claim(id)
  local text = redis.call('HGET', claims, id)
  return text and string.sub(text, 1, #owner + 1) == owner .. ':'
end

local mends = {}

mends['own'] = function(id)
  -- What a released owner still claims goes back when its lease is over.
  if not holds_claim(id) or redis.call('HEXISTS', own, 'gone') == 1 then return false end
  local added = redis.call('SADD', owned, id) == 1
  if added then redis.call('EXPIRE', owned, 86400) end
  return added
end

mends['disown'] = function(id)
  return not holds_claim(id) and redis.call('SREM', owned, id) == 1
end

mends['expire'] = function(name)
  local kept = name == 'own' and own or owned
  return redis.call('TTL', kept) == -1 and redis.call('EXPIRE', kept, 86400) == 1
end

local mend = mends[what]
if not mend then error('nothing is mended that way: ' .. what) end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('SREM', owned, '')
for i = 3, #ARGV do letters[i - 2] = mend(ARGV[i]) and 'm' or '-' end
return {now, table.concat(letters)}
