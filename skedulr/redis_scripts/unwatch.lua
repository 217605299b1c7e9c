-- PURPOSE  Nobody in the process of this channel waits for the task any more.
-- KEYS     watch
-- ARGV     id, channel
-- RETURNS  1
local watch = unpack(KEYS)
local known = redis.call('HGET', watch, ARGV[1])
if known then
  local left = {}
  for channel in string.gmatch(known, '%S+') do
    if channel ~= ARGV[2] then left[#left + 1] = channel end
  end
  -- Deleted first: a full Redis refuses a script that begins with a write.
  redis.call('HDEL', watch, ARGV[1])
  if #left > 0 then redis.call('HSET', watch, ARGV[1], table.concat(left, ' ')) end
end
return 1
