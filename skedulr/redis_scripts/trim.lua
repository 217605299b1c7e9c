-- PURPOSE  Forget the oldest records: those past the age, then those over the count; up to `limit`
--          a call, none younger than a minute (a repeated submit must still find it).
-- KEYS     done dead records
-- ARGV     limit (at most 500), age ms, most records of done, most of dead
-- RETURNS  {now ms, how many were forgotten}
-- include: now
-- include: whole
local done, dead, records = unpack(KEYS)
local limit, age = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()
local forgotten = 0

local function trim(index, most)
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now - age), 'LIMIT', 0, limit)
  if #old == 0 then
    local over = redis.call('ZCARD', index) - most
    if over <= 0 then return end
    old = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now - 60000), 'LIMIT', 0,
                     math.min(over, limit))
    if #old == 0 then return end
  end
  redis.call('ZREM', index, unpack(old))
  redis.call('HDEL', records, unpack(old))
  forgotten = forgotten + #old
end

trim(done, tonumber(ARGV[3]))
trim(dead, tonumber(ARGV[4]))
return {now, forgotten}
