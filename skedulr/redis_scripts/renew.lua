-- PURPOSE  Move the leases of what an owner holds into the future; say which claims are lost and
--          which tasks were cancelled. A claim that expired and was not recovered is renewed too.
-- KEYS     stream leases claims owned own cancels meta info
-- ARGV     lease ms, then pairs id, token
-- RETURNS  {now ms, {ids whose claim is lost}, {ids that are to be cancelled}}
-- include: now
-- include: whole
-- include: claim_text
-- include: forgive
-- include: leases
local stream, leases, claims, owned, own, cancels, meta, info = unpack(KEYS)
local now = now_ms()
local expiry = whole(now + tonumber(ARGV[1]))
local ids = {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return {now, {}, {}} end

-- Whether the claim went to another owner: the same one may hold it under a newer token.
local function left(text, token)
  return not text or string.match(text, '^(%S+):') ~= string.match(token, '^(%S+):')
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local lost, their_tokens, held, texts, gone = {}, {}, {}, {}, {}
for i, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do
  local token = ARGV[2 * i + 1]
  if holds(text, token) then
    held[#held + 1], texts[#held + 1] = ids[i], text
  else
    lost[#lost + 1], their_tokens[#their_tokens + 1] = ids[i], token
    if left(text, token) then gone[#gone + 1] = ids[i] end
  end
end
if #held > 0 then lease_renew({stream = stream, leases = leases, meta = meta}, held, texts, expiry) end
if #gone > 0 then redis.call('SREM', owned, unpack(gone)) end
forgive(info, lost, their_tokens)
-- What an owner leaves behind when its whole host dies goes away by itself.
redis.call('EXPIRE', owned, 86400)
redis.call('EXPIRE', own, 86400)

local cancelled = {}
if redis.call('EXISTS', cancels) == 1 then
  for i, flag in ipairs(redis.call('SMISMEMBER', cancels, unpack(ids))) do
    if flag == 1 then cancelled[#cancelled + 1] = ids[i] end
  end
end
return {now, lost, cancelled}
