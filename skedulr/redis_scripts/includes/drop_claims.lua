-- include: claim_text
-- include: queue
-- Which of `ids` are still held under `tokens`: the verdicts as letters ('k' kept, 'l' lost), and
-- the positions of those kept with their claims' texts.
local function judge_claims(claims, ids, tokens)
  local verdicts, kept, texts = {}, {}, {}
  if #ids == 0 then return '', kept, texts end
  for i, text in ipairs(redis.call('HMGET', claims, unpack(ids))) do
    if holds(text, tokens[i]) then
      verdicts[i] = 'k'
      kept[#kept + 1], texts[#texts + 1] = i, text
    else
      verdicts[i] = 'l'
    end
  end
  return table.concat(verdicts), kept, texts
end

-- `k` names the keys leases, claims and owned.
local function drop_claims(k, ids)
  lease_end(k, ids)
  redis.call('HDEL', k.claims, unpack(ids))
  redis.call('SREM', k.owned, unpack(ids))
end
