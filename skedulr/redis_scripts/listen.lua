-- PURPOSE  A process that has hooks for the whole cluster says so, and hears what the leader saw.
-- KEYS     seen listening
-- ARGV     how long it listens, ms
-- RETURNS  {now ms, number, node, its term, what it saw}, or {now ms} where nobody leads
-- include: now
local seen, listening = unpack(KEYS)
local now = now_ms()
redis.call('HDEL', seen, '')
redis.call('SET', listening, '1', 'PX', ARGV[1])
local saw = redis.call('HMGET', seen, '#', 'node', 'term', 'saw')
if not saw[4] then return {now} end
return {now, tonumber(saw[1]), saw[2], saw[3], saw[4]}
