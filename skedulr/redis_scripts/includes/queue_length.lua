-- include: transport
-- How many wait. `k` names removed as well.
local function queue_length(k)
  if not streamed(k) then return redis.call('ZCARD', k.ready) end
  local group = group_of(k)
  return redis.call('XLEN', k.stream) - (group and group[6] or 0)
    - tonumber(redis.call('HGET', k.removed, '') or 0)
end
