-- include rarely: pass_over
-- Entries of tasks that are claimed are read again only where somebody removed the group: they are
-- pending for their owners once more, and what is a second entry of a task goes.
local function leave_claimed(k, ids, places)
  local free, their_places, double = {}, {}, {}
  if #ids == 0 then return ids, places end
  for i, text in ipairs(redis.call('HMGET', k.claims, unpack(ids))) do
    local token, at = read_claim(text or '')
    if token and at == places[i] then
      redis.call('XCLAIM', k.stream, GROUP, string.match(token, '^(.*):'), 0, at .. '-0', 'JUSTID')
    elseif token then
      double[#double + 1] = places[i]
    else
      free[#free + 1], their_places[#free + 1] = ids[i], places[i]
    end
  end
  drop_entries(k, double)
  return free, their_places
end

-- Take up to `limit` for `owner`, the first first: whether any was there, and a list id, place, ...
-- of those that are free, which may be fewer. `k` names claims and removed as well.
local function queue_take(k, owner, limit)
  if not streamed(k) then
    local popped = redis.call('ZPOPMIN', k.ready, limit)
    return #popped > 0, popped
  end
  if not group_of(k) then
    redis.call('XGROUP', 'CREATE', k.stream, GROUP, '0', 'MKSTREAM')
  end
  local reply = redis.call('XREADGROUP', 'GROUP', GROUP, owner, 'COUNT', limit, 'STREAMS',
                           k.stream, '>')
  if not reply or not reply[1] then return false, {} end
  -- A list of streams with their entries; in one row where a server answers with a map.
  local ids, places = read_entries(type(reply[1]) == 'table' and reply[1][2] or reply[2])
  ids, places = pass_over(k, ids, places)
  ids, places = leave_claimed(k, ids, places)
  local taken = {}
  for i, id in ipairs(ids) do taken[2 * i - 1], taken[2 * i] = id, places[i] end
  return true, taken
end

-- What was taken turns out to be no tasks.
local function queue_drop(k, places)
  if #places > 0 and streamed(k) then drop_entries(k, places) end
end
