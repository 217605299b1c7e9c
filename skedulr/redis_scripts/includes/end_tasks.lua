-- include: whole
-- include: stamp
-- include: forget
-- include: tell_children
-- The one way into an end state. A record is the journal with its last entry: the envelope, what
-- its attempts came to, how it ended. `kinds` is a letter a task: 's' succeeded, 'd' dead (to the
-- dead-letter queue), 'c' cancelled, 'e' expired, 'k' skipped, 'm' moved to another pool, 'w' a
-- workflow that has begun. `k` names the keys tasks, info, records, done, dead, cancels, watch,
-- stats, unique, progress, edges and outbox. Bodies that are gone already end all the same. Returns
-- how many of the tasks have others that wait for them.
local function end_tasks(k, ids, kinds, entries, now)
  if #ids == 0 then return 0 end
  local records, ended, buried, last = {}, {}, {}, 0
  local counted = {s = 0, d = 0, c = 0, e = 0, k = 0, m = 0, w = 0}
  local stamped, at = stamp(now), whole(now)
  local bodies = redis.call('HMGET', k.tasks, unpack(ids))
  for i = 1, #ids do
    local id, kind = ids[i], kinds[i]
    records[2 * i - 1], records[2 * i] = id, (bodies[i] or '') .. entries[i] .. stamped
    counted[kind] = counted[kind] + 1
    if kind == 'd' then
      buried[#buried + 1], buried[#buried + 2] = at, id
    else
      ended[last + 1], ended[last + 2], last = at, id, last + 2
    end
  end
  redis.call('HDEL', k.tasks, unpack(ids))
  redis.call('HSET', k.records, unpack(records))
  if #ended > 0 then redis.call('ZADD', k.done, unpack(ended)) end
  if #buried > 0 then redis.call('ZADD', k.dead, unpack(buried)) end
  if counted.s > 0 then redis.call('HINCRBY', k.stats, 'succeeded', counted.s) end
  if counted.d > 0 then
    redis.call('HINCRBY', k.stats, 'failed', counted.d)
    redis.call('HINCRBY', k.stats, 'dead', counted.d)
  end
  if counted.c > 0 then redis.call('HINCRBY', k.stats, 'cancelled', counted.c) end
  if counted.e > 0 then redis.call('HINCRBY', k.stats, 'expired', counted.e) end
  if counted.k > 0 then redis.call('HINCRBY', k.stats, 'skipped', counted.k) end
  -- A window runs on when its task has ended, unless that was cancelled: it may be wanted again.
  -- A lock counts within its pool, so one that moves leaves none.
  forget(k, ids, function(mode, i) return mode ~= 'w' or kinds[i] == 'c' or kinds[i] == 'm' end)
  return tell_children(k, ids, kinds, now)
end
