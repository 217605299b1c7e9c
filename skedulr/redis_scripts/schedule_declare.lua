-- PURPOSE  Say that a set of declarations lives, and learn whether it must be registered (again),
--          and which sets live no more. Of several that live the newest one's definitions hold.
-- KEYS     declared declarers
-- ARGV     set ('' for none); 'look', 'registering' before its schedules are stored, 'registered'
--          when all of them are; after how long a silent set is taken for gone (ms)
-- RETURNS  {now ms, verdict, then per silent set: set, when it was heard last (ms)}
--          verdict: 'k' known, 'n' to be registered: new here, forgotten, or flushed; 'a' to be
--          registered again, since a newer set is gone whose definitions may have replaced its own
-- include: now
-- include: whole
local declared, declarers = unpack(KEYS)
local set, silent = ARGV[1], tonumber(ARGV[3])
local now = now_ms()

-- Whether a newer set than the one registered at `since` has fallen silent.
local function newer_is_gone(since)
  local newer = redis.call('ZRANGEBYSCORE', declared, '(' .. since, '+inf', 'LIMIT', 0, 20)
  if #newer == 0 then return false end
  for _, last in ipairs(redis.call('ZMSCORE', declarers, unpack(newer))) do
    if not last or tonumber(last) < now - silent then return true end
  end
  return false
end

local function judge()
  if set == '' then return 'k' end
  local since, last = redis.call('ZSCORE', declared, set), redis.call('ZSCORE', declarers, set)
  if ARGV[2] == 'registering' then
    -- Heard, so that nobody retires what is being stored; but not known until all of it is.
    redis.call('ZREM', declared, set)
  elseif ARGV[2] == 'registered' then
    redis.call('ZADD', declared, whole(now), set)
  elseif not since or not last or tonumber(last) < now - silent then
    return 'n'
  elseif newer_is_gone(whole(tonumber(since))) then
    return 'a'
  end
  redis.call('ZADD', declarers, whole(now), set)
  return 'k'
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', declarers, '')
local reply = {now, judge()}
local gone = redis.call('ZRANGEBYSCORE', declarers, '-inf', '(' .. whole(now - silent),
                        'WITHSCORES', 'LIMIT', 0, 20)
for i = 1, #gone / 2 do
  reply[2 * i + 1], reply[2 * i + 2] = gone[2 * i - 1], tonumber(gone[2 * i])
end
return reply
