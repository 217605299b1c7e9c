-- include: transport
-- A consumer goes with its owner, but never while anything is pending for it: that went with it.
local function consumer_gone(k, owner)
  if not streamed(k) or not group_of(k) then return end
  if #redis.call('XPENDING', k.stream, GROUP, '-', '+', 1, owner) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', k.stream, GROUP, owner)
  end
end

-- Once a minute, those of hosts that died: silent for ten. One that lives after all comes back with
-- its next claim.
local function consumers_gone(k, now)
  if not streamed(k) or not group_of(k) then return end
  local looked = tonumber(redis.call('HGET', k.meta, 'consumers') or 0)
  if now >= looked and now - looked < 60000 then return end
  redis.call('HSET', k.meta, 'consumers', whole(now))
  for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', k.stream, GROUP)) do
    if one[4] == 0 and one[6] > 600000 then consumer_gone(k, one[2]) end
  end
end
