-- include: claim_text
-- include: leases
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

-- End the claims on `ids`; `texts` are what claims holds for them. `k` names the keys stream, leases,
-- claims, owned and meta.
local function drop_claims(k, ids, texts)
  lease_end(k, ids, texts)
  redis.call('HDEL', k.claims, unpack(ids))
  redis.call('SREM', k.owned, unpack(ids))
end
