-- include: transport
-- Of entries in their order, those of tasks that were not taken out; the others are dropped. `k`
-- names removed as well.
local function pass_over(k, ids, places)
  if #ids == 0 or redis.call('EXISTS', k.removed) == 0 then return ids, places end
  local left, stale, live, their_places = {}, {}, {}, {}
  for i, count in ipairs(redis.call('HMGET', k.removed, unpack(ids))) do
    left[ids[i]] = tonumber(count or 0)
  end
  for i, id in ipairs(ids) do
    -- One that was taken out may be there again behind it: the first ones are the old ones.
    if left[id] > 0 then
      left[id] = left[id] - 1
      stale[#stale + 1] = places[i]
      if redis.call('HINCRBY', k.removed, id, -1) == 0 then redis.call('HDEL', k.removed, id) end
    else
      live[#live + 1], their_places[#live + 1] = id, places[i]
    end
  end
  if #stale == 0 then return live, their_places end
  drop_entries(k, stale)
  if redis.call('HINCRBY', k.removed, '', -#stale) <= 0 then redis.call('DEL', k.removed) end
  return live, their_places
end
