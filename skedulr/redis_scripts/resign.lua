-- PURPOSE  A leader lets go of the lead, so that another node takes it at once. The term stays, and
--          the next one is higher; who let go is kept for the next one's reason.
-- KEYS     leader
-- ARGV     node, its term, the control channel, what to say there
-- RETURNS  {now ms, whether it held it: 1 or 0}
-- include: now
-- include: leads
local leader = unpack(KEYS)
local now = now_ms()
if not leads(leader, ARGV[1], ARGV[2], now) then return {now, 0} end
redis.call('HDEL', leader, 'node', 'until', 'since', 'how')
redis.call('HSET', leader, 'left', ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {now, 1}
