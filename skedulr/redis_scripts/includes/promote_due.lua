-- include rarely: fair
-- include rarely: header
-- include rarely: limits
-- include: place
-- include: queue_add
-- Move up to `limit` due tasks from delayed to ready, each behind what is already there on its level.
-- `k` names the keys ready, stream, delayed, info, meta and limiting.
local function promote_due(k, now, limit)
  local due = redis.call('ZRANGEBYSCORE', k.delayed, '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, limit)
  local count = #due / 2
  if count == 0 then return 0 end
  local ids = {}
  for i = 1, count do ids[i] = due[2 * i - 1] end
  local headers = redis.call('HMGET', k.info, unpack(ids))
  local last = redis.call('HINCRBY', k.meta, 'sequence', count)
  local places, kept, sets, turns = {}, {}, nil, nil
  for i, id in ipairs(ids) do
    local header = read_header(headers[i])
    -- A deferred task keeps the time it was due first: its expiry counts from there.
    if header.since == 0 then header.due = tonumber(due[2 * i]) end
    places[2 * i - 1], places[2 * i] = place(header.priority, last - count + i), id
    if header.limits then
      local set, _, fair = limits_of(header.limits)
      sets, turns = sets or {}, turns or new_turns(k.limiting)
      sets[id] = set
      if fair then places[2 * i - 1] = fair_place(turns, fair, header.priority) end
    end
    kept[2 * i - 1], kept[2 * i] = id, write_header(header)
  end
  redis.call('ZREM', k.delayed, unpack(ids))
  if turns then close_turns(turns) end
  if sets then places = park_followers(k.limiting, places, sets) end
  if #places > 0 then queue_add(k, places) end
  redis.call('HSET', k.info, unpack(kept))
  return count
end

-- When the next delayed task is due, ms; -1 if there is none.
local function next_due(delayed)
  local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  if #first == 0 then return -1 end
  return tonumber(first[2])
end

-- The same, or when a limit lets the next task out, whichever comes first.
local function next_time(delayed, meta)
  local due, release = next_due(delayed), tonumber(redis.call('HGET', meta, 'release_at') or -1)
  if due == -1 or (release ~= -1 and release < due) then return release end
  return due
end
