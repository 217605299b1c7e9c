-- PURPOSE  What the leader decided: the pools' new sizes, and each decision with its reason. Written
--          by the node that leads under this term, and by no other.
-- KEYS     leader tuning decisions
-- ARGV     node, its term, decisions that are kept, the control channel, what to say there ('':
--          nothing), number of decisions, the decisions, oldest first; then pairs pool, size
-- RETURNS  {now ms, how often the sizes have changed by now; -1: it does not lead any more, and
--          nothing was written}
-- include: now
-- include: leads
local leader, tuning, decisions = unpack(KEYS)
local now = now_ms()
if not leads(leader, ARGV[1], ARGV[2], now) then return {now, -1} end
redis.call('HDEL', leader, '')
local count, pairs_from = tonumber(ARGV[6]), 7 + tonumber(ARGV[6])
local made, sizes = {}, {}
for i = 7, 6 + count do made[#made + 1] = ARGV[i] end
for i = pairs_from, #ARGV do sizes[#sizes + 1] = ARGV[i] end
if #made > 0 then
  redis.call('LPUSH', decisions, unpack(made))
  redis.call('LTRIM', decisions, 0, tonumber(ARGV[3]) - 1)
end
if #sizes == 0 then return {now, tonumber(redis.call('HGET', tuning, '#') or 0)} end
redis.call('HSET', tuning, unpack(sizes))
local version = redis.call('HINCRBY', tuning, '#', 1)
if ARGV[5] ~= '' then redis.call('PUBLISH', ARGV[4], ARGV[5]) end
return {now, version}
