-- include: transport
-- Of each of `ids` whether it is there. `k` names tasks, claims, delayed, suspects and waiting as
-- well: a task that lives and is nowhere else is in the stream.
local function queue_has(k, ids)
  if not streamed(k) then return redis.call('ZMSCORE', k.ready, unpack(ids)) end
  local there = {}
  local bodies, claimed = redis.call('HMGET', k.tasks, unpack(ids)),
    redis.call('HMGET', k.claims, unpack(ids))
  local later, apart = redis.call('ZMSCORE', k.delayed, unpack(ids)),
    redis.call('ZMSCORE', k.suspects, unpack(ids))
  local tied = redis.call('HMGET', k.waiting, unpack(ids))
  for i = 1, #ids do
    there[i] = bodies[i] and not (claimed[i] or later[i] or apart[i] or tied[i])
  end
  return there
end

-- Take those of `ids` that are there out, while their bodies are; returns how many were. `k` names
-- what queue_has wants, and removed.
local function queue_remove(k, ids)
  if not streamed(k) then return redis.call('ZREM', k.ready, unpack(ids)) end
  local count = 0
  for i, there in ipairs(queue_has(k, ids)) do
    if there then
      redis.call('HINCRBY', k.removed, ids[i], 1)
      count = count + 1
    end
  end
  if count > 0
     and redis.call('HINCRBY', k.removed, '', count) >= redis.call('XLEN', k.stream) then
    -- Nothing else is in the stream, and nothing of it pending.
    redis.call('XTRIM', k.stream, 'MAXLEN', 0)
    redis.call('DEL', k.removed)
  end
  return count
end
