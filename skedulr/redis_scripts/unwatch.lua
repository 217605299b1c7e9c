-- PURPOSE  Nobody in the process of this channel waits for the task any more.
-- KEYS     watch
-- ARGV     id, channel
-- RETURNS  1
local watch = KEYS[1]
local known = redis.call('HGET', watch, ARGV[1])
if known then
  local left = {}
  for channel in string.gmatch(known, '%S+') do
    if channel ~= ARGV[2] then left[#left + 1] = channel end
  end
  if #left == 0 then
    redis.call('HDEL', watch, ARGV[1])
  else
    redis.call('HSET', watch, ARGV[1], table.concat(left, ' '))
  end
end
return 1
