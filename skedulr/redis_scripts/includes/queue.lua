-- include: whole
-- A pool's ready work and the leases on what was taken of it: all that any script does with the two
-- is done here. `k` names the keys ready and leases. A flat list is what ZADD takes: place, id, ...

-- Put tasks that have just become ready behind those of their priority.
local function queue_add(k, flat)
  redis.call('ZADD', k.ready, unpack(flat))
end

-- Put tasks that were taken back where they were.
local function queue_return(k, flat)
  redis.call('ZADD', k.ready, unpack(flat))
end

-- Take up to `limit`, the first first: a flat list of id, place, ...
local function queue_take(k, limit)
  return redis.call('ZPOPMIN', k.ready, limit)
end

local function queue_length(k)
  return redis.call('ZCARD', k.ready)
end

-- Of each of `ids` whether it is there.
local function queue_has(k, ids)
  return redis.call('ZMSCORE', k.ready, unpack(ids))
end

-- Take `ids` out; returns how many of them were there.
local function queue_remove(k, ids)
  return redis.call('ZREM', k.ready, unpack(ids))
end

-- Tasks that were taken are `owner`'s until `until_ms` (text).
local function lease_give(k, ids, until_ms)
  local flat = {}
  for i, id in ipairs(ids) do flat[2 * i - 1], flat[2 * i] = until_ms, id end
  redis.call('ZADD', k.leases, unpack(flat))
end

-- Up to `limit` ids whose leases are over.
local function leases_over(k, now, limit)
  return redis.call('ZRANGEBYSCORE', k.leases, '-inf', whole(now), 'LIMIT', 0, limit)
end

-- Nobody holds these any more.
local function lease_end(k, ids)
  redis.call('ZREM', k.leases, unpack(ids))
end
