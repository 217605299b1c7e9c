-- include: leases
-- A server's clock may run hours ahead and be set right. A lease written meanwhile would last for
-- hours more: nobody would get what a process held that is dead. So one that is further away than any
-- can be is cut to the longest that there is. An owner that lives renews it in a third of that, as it
-- would have done anyway, and notices nothing.
local SLACK = 60000

-- The longest lease of those that serve the pool; `known` and `at` are of meta, visibility and
-- visibility_at: what a master said at its start, and when somebody last swept who has so long a one.
-- It counts for as long again after the last of those was heard.
local function longest_lease(k, now, lease, known, at)
  known, at = tonumber(known), tonumber(at)
  if not known then return lease end
  if lease >= known or at and at <= now and now - at > known then
    redis.call('HSET', k.meta, 'visibility', whole(lease), 'visibility_at', whole(now))
    return lease
  end
  if not at or at > now then redis.call('HSET', k.meta, 'visibility_at', whole(now)) end
  return known
end

-- Up to `limit` leases; whether there may be more of them.
local function cut_leases(k, now, limit, longest)
  local far = redis.call('ZRANGEBYSCORE', k.leases, '(' .. whole(now + longest + SLACK), '+inf',
                         'LIMIT', 0, limit)
  if #far == 0 then return false end
  lease_give(k, far, whole(now + longest), true)
  return #far == limit
end

-- In a stream the time of an entry's last sign of life can not be seen, only how long ago it was, and
-- of a time to come that is 0. Those are given one that is now, page by page, once the clock was seen
-- to be set back; of an owner that lives that is one renewal more.
local function cut_pending(k, limit, swept, now)
  local from = swept - now > SLACK and '-' or redis.call('HGET', k.meta, 'cut_from')
  if not from or not streamed(k) or not group_of(k) then return false end
  local page = redis.call('XPENDING', k.stream, GROUP, from, '+', limit)
  local owners, ahead = {}, {}
  for _, one in ipairs(page) do
    local entry, owner, idle = one[1], one[2], one[3]
    if idle == 0 and not ahead[owner] then owners[#owners + 1], ahead[owner] = owner, {} end
    if idle == 0 then table.insert(ahead[owner], entry) end
  end
  for _, owner in ipairs(owners) do
    table.insert(ahead[owner], 'JUSTID')
    redis.call('XCLAIM', k.stream, GROUP, owner, 0, unpack(ahead[owner]))
  end
  local more = #page == limit
  if more then
    -- An entry is "<place>-0": this is right behind it.
    redis.call('HSET', k.meta, 'cut_from', string.match(page[#page][1], '^%d+') .. '-1')
  elseif from ~= '-' then
    redis.call('HDEL', k.meta, 'cut_from')
  end
  return more
end
