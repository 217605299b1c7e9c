-- Wake one blocked fetcher, if a claim could take work now. At most one token lies in the list:
-- whoever takes it claims, and wakes the next one if work is left. A paused pool gets none, or its
-- fetchers would take it, claim nothing and wake each other for ever.
local function wake_one(wake, meta)
  if redis.call('LLEN', wake) == 0 and redis.call('HGET', meta, 'paused') ~= '1' then
    redis.call('RPUSH', wake, '1')
  end
end
