-- PURPOSE  What the leader saw, for those who listen: written by the node that leads under this term,
--          and by no other.
-- KEYS     leader seen
-- ARGV     node, its term, how long it is worth anything, ms, what it saw
-- RETURNS  {now ms, its number; -1: it does not lead any more, and nothing was written}
-- include: now
-- include: leads
local leader, seen = unpack(KEYS)
local now = now_ms()
if not leads(leader, ARGV[1], ARGV[2], now) then return {now, -1} end
redis.call('HDEL', leader, '')
local number = redis.call('HINCRBY', seen, '#', 1)
redis.call('HSET', seen, 'node', ARGV[1], 'term', ARGV[2], 'saw', ARGV[4])
redis.call('PEXPIRE', seen, ARGV[3])
return {now, number}
