-- PURPOSE  Take tasks that no run of theirs ended as dead, to tell hooks of them, and let go of those
--          that were told. A taken one comes again after a while, so that another process tells of
--          it where this one dies.
-- KEYS     deaths tasks records
-- ARGV     most (at most 100), for how long they are taken, ms; then pairs id, score: told, and let
--          go of where the score is still this one
-- RETURNS  {now ms, score, id, record, its journal, ...}: the one is '' where it has not ended (it was
--          noted before it was, or resubmitted since), the other where it has; both where it is gone
-- include: now
-- include: whole
local deaths, tasks, records = unpack(KEYS)
local now = now_ms()
local told, mine, ids = {}, {}, {}

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', deaths, '')
for i = 3, #ARGV, 2 do told[#told + 1] = ARGV[i] end
if #told > 0 then
  for i, score in ipairs(redis.call('ZMSCORE', deaths, unpack(told))) do
    if score and tonumber(score) == tonumber(ARGV[2 * i + 2]) then mine[#mine + 1] = told[i] end
  end
  if #mine > 0 then redis.call('ZREM', deaths, unpack(mine)) end
end

-- Half a millisecond: no score that anything else writes.
local score = whole(now + tonumber(ARGV[2])) .. '.5'
ids = redis.call('ZRANGEBYSCORE', deaths, '-inf', whole(now), 'LIMIT', 0,
                 math.min(tonumber(ARGV[1]), 100))
local reply, moved = {now, score}, {}
if #ids == 0 then return reply end
local ended, living = redis.call('HMGET', records, unpack(ids)), redis.call('HMGET', tasks, unpack(ids))
for i, id in ipairs(ids) do
  reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = id, ended[i] or '', living[i] or ''
  moved[2 * i - 1], moved[2 * i] = score, id
end
redis.call('ZADD', deaths, unpack(moved))
return reply
