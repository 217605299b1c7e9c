-- PURPOSE  Say in which way a pool's ready work is kept (see transport.lua), as its master starts.
--          Another way than until now only while the pool has no ready work and nothing claimed.
-- KEYS     ready stream removed suspects leases claims meta
-- ARGV     transport, '' for the sorted sets; how long a silent process keeps its tasks, ms
-- RETURNS  {now ms, letter, transport in force}: 'k' it was that one, 's' it is now, 'h' the pool
--          holds work that is kept in the other way
-- include: now
-- include: queue_length
local ready, stream, removed, suspects, leases, claims, meta = unpack(KEYS)
local wanted, lease = ARGV[1], tonumber(ARGV[2])
local k = {ready = ready, stream = stream, removed = removed, leases = leases, meta = meta}
local now = now_ms()
local known = redis.call('HMGET', meta, 'transport', 'visibility', 'sequence', 'swept')
local kept = known[1] or ''
local claimed = redis.call('EXISTS', claims, suspects) > 0

-- Whether processes may be there that were started with another lease: they hold something, or one
-- swept lately. The sweeps forget a longer lease once nobody has it any more.
local function is_served()
  local swept = tonumber(known[4])
  return claimed or swept and math.abs(now - swept) < 60000
end

-- Entries are numbered by the sequence: where somebody removed meta, it goes on behind the last one.
local function catch_up()
  local facts, last = redis.call('XINFO', 'STREAM', stream), 0
  for i = 1, #facts, 2 do
    if facts[i] == 'last-generated-id' then last = tonumber(string.match(facts[i + 1], '^%d+')) end
  end
  if last % LEVEL > tonumber(known[3] or 0) then
    redis.call('HSET', meta, 'sequence', whole(last % LEVEL))
  end
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
if kept ~= wanted then
  local ours = kept == '' or kept == 'streams'
  if claimed or ours and queue_length(k) > 0 then return {now, 'h', kept} end
  redis.call('DEL', stream, removed)
  if wanted == '' then redis.call('HDEL', meta, 'transport', 'recover_from') end
end
if wanted ~= '' then redis.call('HSET', meta, 'transport', wanted) end
if not is_served() or lease >= tonumber(known[2] or 0) then
  redis.call('HSET', meta, 'visibility', whole(lease), 'visibility_at', whole(now))
end
if wanted == 'streams' then
  if not group_of(k) then redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM') end
  catch_up()
end
return {now, kept == wanted and 'k' or 's', wanted}
