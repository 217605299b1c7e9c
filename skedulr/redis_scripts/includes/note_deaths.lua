-- include: whole
-- Tasks that no run of theirs ended as dead: a child of their pool is to tell its hooks of them (see
-- mourn.lua). Where no child lives that does, the oldest are let go of.
local MOST_DEATHS = 10000
local function note_deaths(deaths, ids, now)
  local at, items = whole(now), {}
  for i, id in ipairs(ids) do items[2 * i - 1], items[2 * i] = at, id end
  redis.call('ZADD', deaths, unpack(items))
  local over = redis.call('ZCARD', deaths) - MOST_DEATHS
  if over > 0 then redis.call('ZREMRANGEBYRANK', deaths, 0, over - 1) end
end
