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
