-- Whether a node leads under this term, now. What a leader writes it writes behind this, so that one
-- that was stopped for a while, and does not know that another took over, changes nothing.
local function leads(leader, node, term, now)
  local held = redis.call('HMGET', leader, 'node', 'term', 'until')
  return held[1] == node and held[2] == term and tonumber(held[3] or 0) > now
end
