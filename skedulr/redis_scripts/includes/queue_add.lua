-- include: transport
-- Put tasks that have just become ready behind those of their priority.
local function queue_add(k, flat)
  if not streamed(k) then
    redis.call('ZADD', k.ready, unpack(flat))
    return
  end
  for i = 1, #flat, 2 do
    redis.call('XADD', k.stream, place(0, tonumber(flat[i]) % LEVEL) .. '-0', 't', flat[i + 1])
  end
end

-- Put tasks that were taken back where they were; in a stream, to its end.
local function queue_return(k, flat)
  if streamed(k) then
    local count = #flat / 2
    local before = redis.call('HINCRBY', k.meta, 'sequence', count) - count
    for n = 1, count do flat[2 * n - 1] = before + n end
  end
  queue_add(k, flat)
end
