-- Whether a set of code was not heard after `since` (ms), or was never registered.
local function is_silent(declarers, set, since)
  local heard = redis.call('ZSCORE', declarers, set)
  return not heard or tonumber(heard) <= since
end
