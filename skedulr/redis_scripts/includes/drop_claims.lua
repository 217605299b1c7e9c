-- include: claim_text
-- include: leases
-- Which of `ids` are still held under `tokens`: the verdicts as letters ('k' kept, 'l' lost), and
-- the positions of those kept with their claims' texts.
local function judge_claims(claims, ids, tokens)
  local verdicts, kept, texts, n = {}, {}, {}, 0
  if #ids == 0 then return '', kept, texts end
  local held, token, start = redis.call('HMGET', claims, unpack(ids)), nil, nil
  for i = 1, #ids do
    local text = held[i]
    -- Mostly all of them are of one claim or two.
    if tokens[i] ~= token then
      token = tokens[i]
      start = start_of(token)
    end
    if starts_with(text, start) then
      n = n + 1
      verdicts[i], kept[n], texts[n] = 'k', i, text
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
