-- include: whole
-- Tasks that others may wait for came to something: note it in the outbox, whence a deliverer takes
-- it to the children. `letters` says what, one each (see take.lua). Returns how many have children.
-- Mostly no task of the pool has any, which one call tells. `k` names the keys edges and outbox.
local function tell_children(k, ids, letters, now)
  if redis.call('EXISTS', k.edges) == 0 then return 0 end
  local items, at = {}, whole(now)
  for i, page in ipairs(redis.call('HMGET', k.edges, unpack(ids))) do
    if page then items[#items + 1], items[#items + 2] = at, letters[i] .. ' ' .. ids[i] end
  end
  if #items > 0 then redis.call('ZADD', k.outbox, unpack(items)) end
  return #items / 2
end
