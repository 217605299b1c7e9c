-- include: claim_text
-- include: place
-- include: whole
-- A pool's ready work and the leases on what was taken of it are kept in one of two ways, by the
-- field "transport" of meta. No script but the includes queue_*, lease* and consumers knows which.
--
-- No such field: ready is a sorted set by place, leases one by the time a lease is over.
--
-- "streams": a stream read by a consumer group, a consumer an owner, an entry "<place>-0" a task. An
-- entry is deleted when its claim ends: what the stream holds up to the last one delivered is
-- claimed, what lies behind waits. A lease is how long the entry has been pending without a sign of
-- life; leases has suspects alone, which are in no stream. There is one priority, and what comes
-- back goes to the end. Nobody finds an entry by its task: where one is taken out, removed notes how
-- many entries of its are to be passed over (field '': of all), and a claim that gets there drops
-- them.
--
-- `k` names the keys ready, stream, leases and meta, and where it says so more. A flat list is what
-- ZADD takes: place, id, ...
local GROUP = 'workers'
local transport

local function streamed(k)
  if transport == nil then
    transport = redis.call('HGET', k.meta, 'transport')
    -- Another program keeps this pool's tasks: nothing of ours would ever get to them.
    if transport and transport ~= 'streams' then error('TRANSPORT ' .. transport, 0) end
  end
  return transport == 'streams'
end

-- The group's fields as XINFO gives them, or nil where there is none (yet): the sixth is how many
-- entries are pending, the eighth the last one delivered.
local function group_of(k)
  if redis.call('EXISTS', k.stream) == 0 then return nil end
  return redis.call('XINFO', 'GROUPS', k.stream)[1]
end

local function read_entries(entries)
  local ids, places = {}, {}
  for i, entry in ipairs(entries) do
    ids[i], places[i] = entry[2][2], string.match(entry[1], '^%d+')
  end
  return ids, places
end

local function drop_entries(k, places)
  if #places == 0 then return end
  local entries = {}
  for i, at in ipairs(places) do entries[i] = at .. '-0' end
  redis.call('XACK', k.stream, GROUP, unpack(entries))
  redis.call('XDEL', k.stream, unpack(entries))
end
