-- include: claim_text
-- include rarely: locks
-- include: whole
-- A task that is unique until it starts lets the next one in.
local function release_started(unique, info, ids)
  if redis.call('EXISTS', info) == 0 then return end
  release_locks(unique, ids, redis.call('HMGET', info, unpack(ids)), function(mode)
    return mode == 's'
  end)
end

-- Note in their claims that these tasks run now: a death is judged by it. The pairs id, token
-- stand in `list` from position `first` on.
local function mark_started(claims, unique, info, list, first, now)
  local ids, marked, running = {}, {}, {}
  for i = first, #list, 2 do ids[#ids + 1] = list[i] end
  if #ids == 0 then return end
  for i, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do
    if holds(text, list[first + 2 * i - 1]) then
      local token, at, _, suspected = read_claim(text)
      running[#running + 1] = ids[i]
      marked[#marked + 1] = ids[i]
      marked[#marked + 1] = claim_text(token, at, whole(now), suspected)
    end
  end
  if #marked > 0 then
    redis.call('HSET', claims, unpack(marked))
    release_started(unique, info, running)
  end
end
