-- PURPOSE  Forget the oldest records: those past the age, then those over the count; up to `limit`
--          a call, none younger than a minute (a repeated submit must still find it). And locks
--          that hold nothing any more: windows that ended, a few of those whose holder is gone; and
--          keys of rates whose tokens are all there again. A
--          record that other tasks were tied to stays until the caller knows that none needs it.
-- KEYS     done dead records tasks unique windows edges rates
-- ARGV     limit (at most 500), age ms, most records of done, most of dead; how many of the oldest
--          of done, and of dead, are known to be needed and passed over; then ids whose edges go
-- RETURNS  {now ms, how many records were forgotten}; where any have edges also {ids of done that
--          have}, {ids of dead}
-- include: now
-- include: whole
-- include: drop_edges
local done, dead, records, tasks, unique, windows, edges, rates = unpack(KEYS)
local limit, age = math.min(tonumber(ARGV[1]), 500), math.max(tonumber(ARGV[2]), 60000)
local now = now_ms()
local forgotten = 0

-- Those of `old` that no other task was tied to, and the others.
local function parted(old)
  if redis.call('EXISTS', edges) == 0 then return old, {} end
  local free, tied = {}, {}
  for i, page in ipairs(redis.call('HMGET', edges, unpack(old))) do
    if page then tied[#tied + 1] = old[i] else free[#free + 1] = old[i] end
  end
  return free, tied
end

-- A rate's key whose last token came back a minute ago is as one that was never used.
local function forget_rates()
  local old = redis.call('ZRANGEBYSCORE', rates, '-inf', whole(now - 60000), 'LIMIT', 0, limit)
  if #old > 0 then redis.call('ZREM', rates, unpack(old)) end
end

local function trim(index, most, passed)
  local tied
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now - age), 'LIMIT', passed, limit)
  if #old == 0 then
    local over = redis.call('ZCARD', index) - most - passed
    if over <= 0 then return {} end
    old = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now - 60000), 'LIMIT', passed,
                     math.min(over, limit))
    if #old == 0 then return {} end
  end
  old, tied = parted(old)
  if #old == 0 then return tied end
  redis.call('ZREM', index, unpack(old))
  redis.call('HDEL', records, unpack(old))
  forgotten = forgotten + #old
  return tied
end

-- Whether a lock's text says that its window has ended; nil for a lock without a window.
local function window_ended(text)
  local expiry = tonumber(string.match(text, ' (%d+)$') or 1)
  if expiry > 0 then return expiry <= now end
  return nil
end

local function drop_ended_windows()
  local ended = redis.call('ZRANGEBYSCORE', windows, '-inf', whole(now), 'LIMIT', 0, limit)
  if #ended == 0 then return end
  local free = {}
  for i, text in ipairs(redis.call('HMGET', unique, unpack(ended))) do
    if text and window_ended(text) then free[#free + 1] = ended[i] end
  end
  redis.call('ZREM', windows, unpack(ended))
  if #free > 0 then redis.call('HDEL', unique, unpack(free)) end
end

-- Locks go with their tasks; one that outlived its task (an operator removed it) is found by
-- sampling, so that no sweep ever walks all of them.
local function drop_orphans()
  local sample = redis.call('HRANDFIELD', unique, 20, 'WITHVALUES')
  for i = 1, #sample, 2 do
    local ended = window_ended(sample[i + 1])
    if ended == nil then
      ended = redis.call('HEXISTS', tasks, string.match(sample[i + 1], '^%S*')) == 0
    end
    if ended then redis.call('HDEL', unique, sample[i]) end
  end
end

local loose = {}
for i = 7, #ARGV do loose[#loose + 1] = ARGV[i] end
drop_edges(edges, loose)
local tied_done = trim(done, tonumber(ARGV[3]), tonumber(ARGV[5] or '0'))
local tied_dead = trim(dead, tonumber(ARGV[4]), tonumber(ARGV[6] or '0'))
if redis.call('EXISTS', windows) == 1 then drop_ended_windows() end
forget_rates()
if redis.call('EXISTS', unique) == 1 then drop_orphans() end
if #tied_done + #tied_dead == 0 then return {now, forgotten} end
return {now, forgotten, tied_done, tied_dead}
