-- PURPOSE  Of all who heard the same, one calls the hooks: the first to note here what it is about
--          to say. Who heard something that is no longer the last word notes nothing.
-- KEYS     seen noticed
-- ARGV     number of what it heard, how long notes are kept, ms; then pairs what, its new value
-- RETURNS  {now ms, then for each pair the value it had ('' for none) where this was the first to note
--          the new one, 0 where it was noted already}; {now ms} where what it heard is old
-- include: now
local seen, noticed = unpack(KEYS)
local now = now_ms()
if redis.call('HGET', seen, '#') ~= ARGV[1] then return {now} end
redis.call('HDEL', noticed, '')
local reply = {now}
for i = 3, #ARGV, 2 do
  local before = redis.call('HGET', noticed, ARGV[i]) or ''
  local first = before ~= ARGV[i + 1]
  if first then redis.call('HSET', noticed, ARGV[i], ARGV[i + 1]) end
  reply[#reply + 1] = first and before or 0
end
redis.call('PEXPIRE', noticed, ARGV[2])
return reply
