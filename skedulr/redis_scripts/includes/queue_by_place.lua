-- include: transport
-- include: whole
-- Ready work by place, where the pool's transport keeps places (a sorted set).

-- The first place that is taken from `least` on and below `beyond`, or nil.
local function queue_first(k, least, beyond)
  return redis.call('ZRANGEBYSCORE', k.ready, whole(least), '(' .. whole(beyond), 'WITHSCORES',
                    'LIMIT', 0, 1)[2]
end

-- Take up to `limit` whose places are from `least` to `most`: a flat list of id, place, ...
local function queue_take_between(k, least, most, limit)
  local found = redis.call('ZRANGEBYSCORE', k.ready, whole(least), whole(most), 'WITHSCORES',
                           'LIMIT', 0, limit)
  for i = 1, #found, 2 do redis.call('ZREM', k.ready, found[i]) end
  return found
end
