-- include: claim_text
-- include: wake
-- include: whole
-- Suspects are tasks that ran when a process died and nobody was named. An owner runs them in small
-- groups of their own, so that a second death says which of them it was. How carefully is in meta's
-- `wary`: 0 (or none): each group may be twice the last one, once all of that have ended or run for
-- a while; 1: one at a time, the next when the last has run for a while; 2: one at a time. It grows
-- where a process dies that ran several of them, and is forgotten where a death finds no suspect.
-- What own's `suspect` holds of the last group is "<from when the next may start> <size><ids>".
local RAN_FOR_A_WHILE = 500
local LARGEST_GROUP = 64

local function read_group(text)
  local from, size, named = string.match(text, '^(%d+) (%d+)(.*)$')
  return tonumber(from) or 0, tonumber(size) or 1, from and named or ' ' .. text
end

-- Until when a group that starts now is watched: from then on it has run for a while.
local function watched_until(now)
  return now + RAN_FOR_A_WHILE
end

local function group_text(from, size, ids)
  return whole(from) .. ' ' .. size .. (#ids > 0 and ' ' .. table.concat(ids, ' ') or '')
end

-- Whether `owner` holds one of the ids in `named` still.
local function holds_one(claims, owner, named)
  local ids = {}
  for id in string.gmatch(named, '%S+') do ids[#ids + 1] = id end
  if #ids == 0 then return false end
  for _, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do
    if text and string.sub(text, 1, #owner + 1) == owner .. ':' then return true end
  end
  return false
end

-- How many suspects an owner may take now whose last group was `last` (or nil); where that is none,
-- also when it may, if time alone tells.
local function group_allowed(meta, claims, owner, last, now)
  if not last then return 1 end
  local from, size, named = read_group(last)
  local wary = tonumber(redis.call('HGET', meta, 'wary') or 0)
  if (now < from or wary > 1) and holds_one(claims, owner, named) then
    return 0, wary < 2 and from or nil
  end
  return wary > 0 and 1 or math.min(2 * size, LARGEST_GROUP)
end

-- An owner is done with `ids`. Where those were the last of its group it may take the next at once.
local function suspect_left(own, last, ids, suspects, wake, meta)
  if not last then return end
  local from, size, named = read_group(last)
  local ended, left, count = {}, {}, 0
  for _, id in ipairs(ids) do ended[id] = true end
  for id in string.gmatch(named, '%S+') do
    count = count + 1
    if not ended[id] then left[#left + 1] = id end
  end
  if #left == count then return end
  redis.call('HSET', own, 'suspect', group_text(from, size, left))
  if #left == 0 and redis.call('EXISTS', suspects) == 1 then wake_one(wake, meta) end
end
