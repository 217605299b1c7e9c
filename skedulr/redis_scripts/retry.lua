-- PURPOSE  A failed attempt is counted and the task planned again; only where the token still holds.
--          Repeatable by number (it shares the finish lane).
-- KEYS     delayed stream leases claims tasks info owned own cancels progress suspects wake meta
--          stats history ready limits slots rates releases parked queues
-- ARGV     number of this call, then per task: id, token, delay ms, or to have it counted
--          "<delay ms> <waited ms or -> <ran ms or -> <name>", journal entry of the attempt
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost, 'c' it was
--          cancelled meanwhile and is still claimed: the caller has to finish it
-- include: now
-- include: stamp
-- include: lane
-- include: delay_claimed
-- include: count_runs
-- include: forgive
-- include: suspects
-- include: limiting
local delayed, stream, leases, claims, tasks, info, owned, own, cancels, progress, suspects, wake,
  meta, stats, history, ready, limits, slots, rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local number, count = tonumber(ARGV[1]), (#ARGV - 1) / 4
local now = now_ms()

local function append(ids, entries)
  local journals, bodies, stamped = {}, redis.call('HMGET', tasks, unpack(ids)), stamp(now)
  for n, id in ipairs(ids) do
    journals[2 * n - 1], journals[2 * n] = id, (bodies[n] or '') .. entries[n] .. stamped
  end
  redis.call('HSET', tasks, unpack(journals))
end

local stored, suspect = repeated(own, 'finish', number)
if type(stored) == 'table' then return stored end
if stored then return {now, stored} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local ids, tokens = {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[4 * i - 2], ARGV[4 * i - 1] end
local verdicts, kept, texts = judge_claims(claims, ids, tokens)
forgive_lost(info, ids, tokens, verdicts)
verdicts, kept, texts = leave_cancelled(cancels, ids, verdicts, kept, texts)
if #kept > 0 then
  local failed, delays, entries, samples = {}, {}, {}, {}
  for n, i in ipairs(kept) do
    local delay, sample = string.match(ARGV[4 * i], '^(%d+)( ?.*)$')
    failed[n], delays[n], entries[n] = ids[i], delay, ARGV[4 * i + 1]
    if sample ~= '' then samples[#samples + 1] = 'r' .. sample end
  end
  append(failed, entries)
  delay_claimed({delayed = delayed, stream = stream, leases = leases, claims = claims,
                 info = info, owned = owned, wake = wake, meta = meta, limiting = limiting},
                failed, texts, delays, now, function(header, due)
    header.attempts, header.due, header.since = header.attempts + 1, due, 0
  end)
  if redis.call('EXISTS', progress) == 1 then redis.call('HDEL', progress, unpack(failed)) end
  redis.call('HINCRBY', stats, 'failed', #failed)
  count_runs(history, stats, samples, now)
end
suspect_left(own, suspect, ids, suspects, wake, meta)
remember(own, 'finish', ARGV[1], verdicts)
return {now, verdicts}
