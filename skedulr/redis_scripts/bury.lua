-- PURPOSE  Put a readable record into the dead-letter queue in place of a journal that nobody can
--          read: of a task that has not started, or of one that has ended. Up to 100 a call.
-- KEYS     ready stream removed delayed suspects claims tasks info records done dead deaths cancels
--          watch stats unique progress waiting held edges outbox meta wake limits slots rates
--          releases parked queues
-- ARGV     per task: id, the journal as it was seen, the record in its place
-- RETURNS  {now ms, letters}: a letter a task: 'm' buried, '-' it runs, or its journal is another by
--          now
-- include: now
-- include: whole
-- include: unqueue
-- include: forget
-- include: tell_children
-- include: note_deaths
-- include: limiting
local ready, stream, removed, delayed, suspects, claims, tasks, info, records, done, dead, deaths,
  cancels, watch, stats, unique, progress, waiting, held, edges, outbox, meta, wake, limits, slots,
  rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local letters = {}
local now = now_ms()

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', dead, '')
for i = 1, #ARGV, 3 do
  local id, seen = ARGV[i], ARGV[i + 1]
  local body, letter = redis.call('HGET', tasks, id), '-'
  if body == seen and redis.call('HEXISTS', claims, id) == 0 then
    letter = 'm'
    unqueue({ready = ready, stream = stream, removed = removed, tasks = tasks, claims = claims,
             meta = meta, delayed = delayed, suspects = suspects, waiting = waiting, held = held,
             outbox = outbox, limiting = limiting}, {id}, now)
    redis.call('HDEL', tasks, id)
    redis.call('HINCRBY', stats, 'failed', 1)
    redis.call('HINCRBY', stats, 'dead', 1)
    redis.call('ZADD', dead, whole(now), id)
    note_deaths(deaths, {id}, now)
    forget({info = info, unique = unique, cancels = cancels, progress = progress, watch = watch,
            limiting = limiting},
           {id}, function() return true end)
    tell_children({edges = edges, outbox = outbox}, {id}, {'d'}, now)
  elseif not body and redis.call('HGET', records, id) == seen then
    letter = 'm'
    local died = redis.call('ZSCORE', dead, id)
    if not died then note_deaths(deaths, {id}, now) end
    local ended = died or redis.call('ZSCORE', done, id) or whole(now)
    redis.call('ZADD', dead, ended, id)
  end
  if letter == 'm' then
    redis.call('ZREM', done, id)
    redis.call('HSET', records, id, ARGV[i + 2])
  end
  letters[#letters + 1] = letter
end
return {now, table.concat(letters)}
