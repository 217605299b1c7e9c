-- include rarely: header
-- A lost lease is charged as a crash, since its owner is presumed dead. An owner that names the claim
-- again lives: the charge is taken back. `ids` and `tokens` are claims that it holds no more.
local function forgive(info, ids, tokens)
  if #ids == 0 or redis.call('EXISTS', info) == 0 then return end
  local changed = {}
  for i, text in ipairs(redis.call('HMGET', info, unpack(ids))) do
    local header = text and read_header(text)
    if header and header.blamed == tokens[i] then
      header.blamed, header.crashes = '', math.max(0, header.crashes - 1)
      changed[#changed + 1], changed[#changed + 2] = ids[i], write_header(header)
    end
  end
  if #changed > 0 then redis.call('HSET', info, unpack(changed)) end
end

-- The same for those of a batch whose verdict is that the claim is lost.
local function forgive_lost(info, ids, tokens, verdicts)
  if not string.find(verdicts, 'l', 1, true) then return end
  local lost, their_tokens = {}, {}
  for i, id in ipairs(ids) do
    if string.sub(verdicts, i, i) == 'l' then
      lost[#lost + 1], their_tokens[#their_tokens + 1] = id, tokens[i]
    end
  end
  forgive(info, lost, their_tokens)
end
