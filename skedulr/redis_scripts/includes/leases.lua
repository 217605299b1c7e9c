-- include: transport
-- Tasks that were taken are their owner's until `until_ms` (text). `apart`: they are suspects.
local function lease_give(k, ids, until_ms, apart)
  if streamed(k) and not apart then return end
  local flat = {}
  for i = 1, #ids do flat[2 * i - 1], flat[2 * i] = until_ms, ids[i] end
  redis.call('ZADD', k.leases, unpack(flat))
end

-- So are claimed tasks, from now on; `texts` are what claims holds for them, all of one owner.
local function lease_renew(k, ids, texts, until_ms)
  if not streamed(k) then
    lease_give(k, ids, until_ms)
    return
  end
  local entries, suspects, owner = {}, {}, nil
  for i, id in ipairs(ids) do
    local token, at, _, suspected = read_claim(texts[i])
    owner = string.match(token, '^(.*):')
    if suspected then
      suspects[#suspects + 1] = id
    else
      entries[#entries + 1] = at .. '-0'
    end
  end
  if #suspects > 0 then lease_give(k, suspects, until_ms, true) end
  if #entries == 0 or not group_of(k) then return end
  -- It is pending again, too, where somebody removed the group and it was made anew.
  entries[#entries + 1] = 'FORCE'
  entries[#entries + 1] = 'JUSTID'
  redis.call('XCLAIM', k.stream, GROUP, owner, 0, unpack(entries))
end

-- Nobody holds these any more; `texts` are what claims held for them.
local function lease_end(k, ids, texts)
  redis.call('ZREM', k.leases, unpack(ids))
  if not streamed(k) then return end
  local places = {}
  for _, text in ipairs(texts) do
    local _, at, _, suspected = read_claim(text)
    if at and not suspected then places[#places + 1] = at end
  end
  drop_entries(k, places)
end
