-- include: claim_text
-- Put claimed tasks back into ready at their old places: no attempt is counted. `texts` are what
-- claims holds for them. The claims end here, so later writes under their tokens are refused.
local function give_back(ready, leases, claims, ids, texts)
  if #ids == 0 then return end
  local places = {}
  for i, id in ipairs(ids) do
    local _, at = read_claim(texts[i])
    places[2 * i - 1], places[2 * i] = at, id
  end
  redis.call('ZREM', leases, unpack(ids))
  redis.call('HDEL', claims, unpack(ids))
  redis.call('ZADD', ready, unpack(places))
end
