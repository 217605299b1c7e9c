-- include: whole
-- include: stamp
-- Tell the processes that wait for these ids that they ended; nothing where nobody waits.
local function tell_waiting(watch, ids)
  if redis.call('EXISTS', watch) == 0 then return end
  local pool = string.match(watch, ':([^}]*)}')
  for i, channels in ipairs(redis.call('HMGET', watch, unpack(ids))) do
    if channels then
      for channel in string.gmatch(channels, '%S+') do
        redis.call('PUBLISH', channel, pool .. '/' .. ids[i])
      end
      redis.call('HDEL', watch, ids[i])
    end
  end
end

-- The one way into an end state. A record is the journal with its last entry: the envelope, what
-- its attempts came to, how it ended. `kinds` is a letter a task: 's' succeeded, 'd' dead (to the
-- dead-letter queue), 'c' cancelled, 'e' expired. `k` names the keys tasks, info, records, done,
-- dead, cancels, watch and stats. Bodies that are gone already end all the same.
local function end_tasks(k, ids, kinds, entries, now)
  if #ids == 0 then return end
  local records, ended, buried, counted = {}, {}, {}, {s = 0, d = 0, c = 0, e = 0}
  local stamped, at = stamp(now), whole(now)
  for i, body in ipairs(redis.call('HMGET', k.tasks, unpack(ids))) do
    records[2 * i - 1], records[2 * i] = ids[i], (body or '') .. entries[i] .. stamped
    local list = kinds[i] == 'd' and buried or ended
    list[#list + 1], list[#list + 2] = at, ids[i]
    counted[kinds[i]] = counted[kinds[i]] + 1
  end
  redis.call('HDEL', k.tasks, unpack(ids))
  redis.call('HSET', k.records, unpack(records))
  if #ended > 0 then redis.call('ZADD', k.done, unpack(ended)) end
  if #buried > 0 then redis.call('ZADD', k.dead, unpack(buried)) end
  if redis.call('EXISTS', k.info) == 1 then redis.call('HDEL', k.info, unpack(ids)) end
  if redis.call('EXISTS', k.cancels) == 1 then redis.call('SREM', k.cancels, unpack(ids)) end
  if counted.s > 0 then redis.call('HINCRBY', k.stats, 'succeeded', counted.s) end
  if counted.d > 0 then redis.call('HINCRBY', k.stats, 'failed', counted.d) end
  tell_waiting(k.watch, ids)
end
