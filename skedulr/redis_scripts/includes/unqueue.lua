-- include rarely: limits
-- include rarely: queue_remove
-- Take `ids` out of where they wait to start (ready, delayed, suspects, parked, waiting); returns
-- those that were there. `k` names these keys, stream, removed, tasks, claims, meta, held, outbox
-- and limiting.
local function unqueue(k, ids, now)
  local found = {}
  if #ids == 0 then return found end
  local was_parked = {}
  for _, id in ipairs(leave_limits(k.limiting, ids, now)) do was_parked[id] = true end
  local queued, later = queue_has(k, ids),
    redis.call('ZMSCORE', k.delayed, unpack(ids))
  local apart = redis.call('ZMSCORE', k.suspects, unpack(ids))
  local tied = redis.call('HMGET', k.waiting, unpack(ids))
  for i, id in ipairs(ids) do
    if queued[i] or later[i] or apart[i] or tied[i] or was_parked[id] then
      found[#found + 1] = id
    end
  end
  if #found > 0 then
    queue_remove(k, found)
    redis.call('ZREM', k.delayed, unpack(found))
    redis.call('ZREM', k.suspects, unpack(found))
    if redis.call('HDEL', k.waiting, unpack(found)) > 0 then
      redis.call('ZREM', k.held, unpack(found))
      for _, id in ipairs(found) do redis.call('ZREM', k.outbox, 'a ' .. id, 't ' .. id) end
    end
  end
  return found
end
