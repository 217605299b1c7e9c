-- include: header
-- include: promote_due
-- include: drop_claims
-- include rarely: limits
-- include: wake
-- End the claims of these tasks and plan them for `delays` ms from now; `change(header, due)` says
-- what that does to a header. `texts` are what claims holds for them. `k` names the keys delayed,
-- stream, leases, claims, info, owned, wake, meta and limiting.
local function delay_claimed(k, ids, texts, delays, now, change)
  if #ids == 0 then return end
  local before, headers, first = next_due(k.delayed), redis.call('HMGET', k.info, unpack(ids)), nil
  local due_times, changed = {}, {}
  for n, id in ipairs(ids) do
    local _, at = read_claim(texts[n])
    local header, due = read_header(headers[n]), now + tonumber(delays[n])
    if not first or due < first then first = due end
    header.priority = priority_of(at)
    change(header, due)
    due_times[2 * n - 1], due_times[2 * n] = whole(due), id
    changed[2 * n - 1], changed[2 * n] = id, write_header(header)
  end
  drop_claims(k, ids, texts)
  free_slots(k.limiting, ids, true)
  redis.call('HSET', k.info, unpack(changed))
  redis.call('ZADD', k.delayed, unpack(due_times))
  if before == -1 or first < before then wake_one(k.wake, k.meta) end
end

-- Of claims that still hold, leave those whose tasks are to be cancelled: verdict 'c', and the
-- claim stays until the caller finishes it.
local function leave_cancelled(cancels, ids, verdicts, kept, texts)
  if #kept == 0 or redis.call('EXISTS', cancels) == 0 then return verdicts, kept, texts end
  local letters, left, left_texts = {}, {}, {}
  for i = 1, #ids do letters[i] = string.sub(verdicts, i, i) end
  local flagged = redis.call('SMISMEMBER', cancels, unpack(ids))
  for n, i in ipairs(kept) do
    if flagged[i] == 1 then
      letters[i] = 'c'
    else
      left[#left + 1], left_texts[#left_texts + 1] = i, texts[n]
    end
  end
  return table.concat(letters), left, left_texts
end
