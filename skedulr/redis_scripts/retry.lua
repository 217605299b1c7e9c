-- PURPOSE  A failed attempt is counted and the task planned again; only where the token still holds.
--          Repeatable by number (it shares the finish lane).
-- KEYS     delayed leases claims tasks info owned own cancels wake meta stats
-- ARGV     number of this call, then per task: id, token, delay ms, journal entry of the attempt
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost, 'c' it was
--          cancelled meanwhile and is still claimed: the caller has to finish it
-- include: now
-- include: stamp
-- include: lane
-- include: promote_due
-- include: drop_claims
-- include: wake
local delayed, leases, claims, tasks, info, owned, own, cancels, wake, meta, stats = unpack(KEYS)
local number, count = tonumber(ARGV[1]), (#ARGV - 1) / 4
local now = now_ms()

local function leave_cancelled(flags, ids, verdicts, kept, texts)
  local letters, left, left_texts = {}, {}, {}
  for i = 1, #ids do letters[i] = string.sub(verdicts, i, i) end
  local flagged = redis.call('SMISMEMBER', flags, unpack(ids))
  for n, i in ipairs(kept) do
    if flagged[i] == 1 then
      letters[i] = 'c'
    else
      left[#left + 1], left_texts[#left_texts + 1] = i, texts[n]
    end
  end
  return table.concat(letters), left, left_texts
end

local stored = repeated(own, 'finish', number)
if type(stored) == 'table' then return stored end
if stored then return {now, stored} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local ids, tokens = {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[4 * i - 2], ARGV[4 * i - 1] end
local verdicts, kept, texts = judge_claims(claims, ids, tokens)
if redis.call('EXISTS', cancels) == 1 then
  verdicts, kept, texts = leave_cancelled(cancels, ids, verdicts, kept, texts)
end
if #kept > 0 then
  local failed = {}
  for n, i in ipairs(kept) do failed[n] = ids[i] end
  local before, bodies = next_due(delayed), redis.call('HMGET', tasks, unpack(failed))
  local headers, first = redis.call('HMGET', info, unpack(failed)), nil
  local due_times, journals, counted, stamped = {}, {}, {}, stamp(now)
  for n, i in ipairs(kept) do
    local _, at = read_claim(texts[n])
    local due = now + tonumber(ARGV[4 * i])
    if not first or due < first then first = due end
    local header = read_header(headers[n])
    header.priority, header.due = priority_of(at), due
    header.attempts = header.attempts + 1
    due_times[2 * n - 1], due_times[2 * n] = whole(due), ids[i]
    journals[2 * n - 1], journals[2 * n] = ids[i], (bodies[n] or '') .. ARGV[4 * i + 1] .. stamped
    counted[2 * n - 1], counted[2 * n] = ids[i], write_header(header)
  end
  drop_claims(leases, claims, owned, failed)
  redis.call('HSET', tasks, unpack(journals))
  redis.call('HSET', info, unpack(counted))
  redis.call('ZADD', delayed, unpack(due_times))
  redis.call('HINCRBY', stats, 'failed', #kept)
  if before == -1 or first < before then wake_one(wake, meta) end
end
remember(own, 'finish', ARGV[1], verdicts)
return {now, verdicts}
