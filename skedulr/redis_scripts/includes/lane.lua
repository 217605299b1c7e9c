-- Numbered calls: a reply can be lost after the script ran, so the caller repeats the call with the
-- same number and gets the stored answer. One call is in flight per lane.
-- Returns the stored answer of a repeat, or nil for a new call; an error for an owner that was
-- released (its process is dead to everyone else) and for a number that is already behind. The
-- second value is the suspect that this owner took last, if it is not known to have ended.
local function repeated(own, lane, number)
  local stored = redis.call('HMGET', own, 'gone', lane, 'suspect')
  if stored[1] then
    return redis.error_reply('GONE this owner was released')
  end
  if not stored[2] then return nil, stored[3] end
  local last, answer = string.match(stored[2], '^(%d+) (.*)$')
  last = tonumber(last)
  if last == number then return answer end
  if last > number then
    return redis.error_reply('STALE call ' .. number .. ' of lane ' .. lane .. ' came after ' .. last)
  end
  return nil, stored[3]
end

-- A lane that is new gets its expiry with it: an owner may die before its first renewal.
local function remember(own, lane, number, answer)
  if redis.call('HSET', own, lane, number .. ' ' .. answer) == 1 then
    redis.call('EXPIRE', own, 86400)
  end
end
