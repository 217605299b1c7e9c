-- include: leases
-- Pending entries without a sign of life for one lease, as ids; whether there may be more. One that
-- is not what its task's claim says is dropped.
local function idle_entries(k, limit, lease)
  if not group_of(k) then return {}, false end
  local from = redis.call('HGET', k.meta, 'recover_from')
  local reply = redis.call('XAUTOCLAIM', k.stream, GROUP, 'recovery', whole(lease),
                           from or '0-0', 'COUNT', limit)
  -- One call looks at a bounded part of what is pending: the next one goes on behind it.
  local more = reply[1] ~= '0-0'
  if more then
    redis.call('HSET', k.meta, 'recover_from', reply[1])
  elseif from then
    redis.call('HDEL', k.meta, 'recover_from')
  end
  local ids, places = read_entries(reply[2])
  local over, stray = {}, {}
  if #ids == 0 then return over, more end
  for i, text in ipairs(redis.call('HMGET', k.claims, unpack(ids))) do
    local _, at = read_claim(text or '')
    if at ~= places[i] then stray[#stray + 1] = places[i] end
    if not at or at == places[i] then over[#over + 1] = ids[i] end
  end
  drop_entries(k, stray)
  return over, more
end

-- Up to `limit` ids whose leases (of so many ms at most) are over; whether there may be more. `k` names
-- claims as well.
local function leases_over(k, now, limit, lease)
  local over = redis.call('ZRANGEBYSCORE', k.leases, '-inf', whole(now), 'LIMIT', 0, limit)
  if #over == limit or not streamed(k) then return over, #over == limit end
  local ids, more = idle_entries(k, limit - #over, lease)
  for _, id in ipairs(ids) do over[#over + 1] = id end
  return over, more
end
