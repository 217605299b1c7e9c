-- PURPOSE  Look which ticks are due, and when the next one will be.
-- KEYS     planned ticks meta
-- ARGV     offset and limit (at most 500) of the page of due ones
-- RETURNS  {now ms, 1 where the pool is paused, when the next one is due that is not yet (ms) or -1,
--          then per due tick: schedule, when it was due (ms), its state}
-- include: now
-- include: whole
local planned, ticks, meta = unpack(KEYS)
local now = now_ms()
local paused = redis.call('HGET', meta, 'paused') == '1'

local ahead = redis.call('ZRANGEBYSCORE', ticks, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local reply = {now, paused and 1 or 0, ahead[2] and tonumber(ahead[2]) or -1}
local due = redis.call('ZRANGEBYSCORE', ticks, '-inf', whole(now), 'WITHSCORES', 'LIMIT', ARGV[1],
                       ARGV[2])
if #due == 0 then return reply end
local names = {}
for i = 1, #due / 2 do names[i] = due[2 * i - 1] end
for i, text in ipairs(redis.call('HMGET', planned, unpack(names))) do
  reply[3 * i + 1], reply[3 * i + 2], reply[3 * i + 3] = names[i], tonumber(due[2 * i]), text or ''
end
return reply
