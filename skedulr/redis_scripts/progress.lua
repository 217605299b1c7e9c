-- PURPOSE  Keep what running tasks report of their progress, where the token still holds. It goes
--          when the attempt ends.
-- KEYS     claims progress
-- ARGV     per task: id, token, text
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost
-- include: now
-- include: drop_claims
local claims, progress = unpack(KEYS)
local now = now_ms()
local ids, tokens, texts = {}, {}, {}
for i = 1, #ARGV, 3 do
  ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1]
end
local verdicts, kept = judge_claims(claims, ids, tokens)
for _, i in ipairs(kept) do texts[#texts + 1], texts[#texts + 2] = ids[i], ARGV[3 * i] end
if #kept > 0 then
  -- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
  redis.call('HDEL', progress, '')
  redis.call('HSET', progress, unpack(texts))
end
return {now, verdicts}
