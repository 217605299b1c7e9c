-- include: pass_over
-- Drop up to `limit` entries at the head of what waits whose tasks were taken out: a pool may be
-- paused, and no claim get to them. Returns whether there may be more. `k` names removed as well.
local function queue_sweep(k, limit)
  if redis.call('EXISTS', k.removed) == 0 or not streamed(k) then return false end
  local group = group_of(k)
  if not group then return false end
  local ids, places = read_entries(
    redis.call('XRANGE', k.stream, '(' .. group[8], '+', 'COUNT', limit))
  return #ids > 0 and #pass_over(k, ids, places) == 0
end
