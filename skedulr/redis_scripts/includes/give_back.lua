-- include: claim_text
-- include: leases
-- include rarely: limits
-- include: queue_add
-- Put claimed tasks back at their old places: no attempt is counted. `texts` are what claims holds
-- for them. A suspect goes back among the suspects, and so does one that `suspected` marks. The
-- claims end here, so later writes under their tokens are refused. `k` names the keys ready,
-- stream, suspects, leases, claims, meta and limiting.
local function give_back(k, ids, texts, suspected)
  if #ids == 0 then return end
  local places, apart, next_ones, last_ones = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local _, at, _, suspect = read_claim(texts[i])
    local alone = suspect or (suspected and suspected[i])
    local list, back = alone and apart or places, alone and last_ones or next_ones
    list[#list + 1], list[#list + 2] = at, id
    back[#back + 1] = id
  end
  lease_end(k, ids, texts)
  redis.call('HDEL', k.claims, unpack(ids))
  if #places > 0 then queue_return(k, places) end
  if #apart > 0 then redis.call('ZADD', k.suspects, unpack(apart)) end
  -- What goes back to ready is first there; a suspect may wait for long, and others go on.
  free_slots(k.limiting, next_ones, false)
  free_slots(k.limiting, last_ones, true)
end
