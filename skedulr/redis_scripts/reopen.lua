-- PURPOSE  Skipped tasks, a parent of which was resubmitted, wait again: the history is kept. Safe
--          to repeat: a record that is not as long as it was stays as it is.
-- KEYS     tasks records done waiting held edges outbox
-- ARGV     per task: id, length of its record, what waiting is to hold of it (see hold_back.lua),
--          journal entry
-- RETURNS  {now ms, how many wait again}
-- include: now
-- include: whole
-- include: stamp
-- include: retell
local tasks, records, done, waiting, held, edges, outbox = unpack(KEYS)
local now, count = now_ms(), #ARGV / 4
if count == 0 then return {now, 0} end

local ids, back, bodies, texts, items, times = {}, {}, {}, {}, {}, {}
for i = 1, count do ids[i] = ARGV[4 * i - 3] end
for i, record in ipairs(redis.call('HMGET', records, unpack(ids))) do
  if record and #record == tonumber(ARGV[4 * i - 2]) then
    back[#back + 1] = ids[i]
    bodies[#bodies + 1], bodies[#bodies + 2] = ids[i], record .. ARGV[4 * i] .. stamp(now)
    times[#times + 1], times[#times + 2] = whole(now), ids[i]
    texts[#texts + 1], texts[#texts + 2] = ids[i], ARGV[4 * i - 1]
    items[#items + 1], items[#items + 2] = whole(now), 't ' .. ids[i]
  end
end
if #back > 0 then
  redis.call('HDEL', records, unpack(back))
  redis.call('ZREM', done, unpack(back))
  redis.call('HSET', tasks, unpack(bodies))
  redis.call('HSET', waiting, unpack(texts))
  redis.call('ZADD', held, unpack(times))
  redis.call('ZADD', outbox, unpack(items))
  retell({edges = edges, outbox = outbox}, back, now)
end
return {now, #back}
