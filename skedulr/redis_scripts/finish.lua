-- PURPOSE  End the runs of a batch whose tokens still hold; refuse the others. Repeatable by number.
-- KEYS     stream leases claims tasks info done records dead owned own cancels watch stats unique
--          progress suspects wake meta edges outbox history ready limits slots rates releases
--          parked queues
-- ARGV     number of this call, the count n of tasks that end, then n times:
--          id, token, kind ('s' succeeded, 'd' dead, 'c' cancelled, 'e' expired, 'k' skipped), or
--          to have it counted "<kind> <waited ms or -> <ran ms or -> <name>", journal entry;
--          then pairs id, token of tasks that were started since the last call
-- RETURNS  {now ms, verdicts}: a letter a task that ends: 'k' kept, 'l' the claim is lost; and,
--          except in a repeat, how many of the ended have others that wait for them, if any
-- include: now
-- include: lane
-- include: drop_claims
-- include rarely: forgive
-- include rarely: mark_started
-- include: end_tasks
-- include: count_runs
-- include rarely: suspects
-- include: limiting
local stream, leases, claims, tasks, info, done, records, dead, owned, own, cancels, watch, stats,
  unique, progress, suspects, wake, meta, edges, outbox, history, ready, limits, slots, rates,
  releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local number, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()

local stored, suspect = repeated(own, 'finish', number)
if type(stored) == 'table' then return stored end
if stored then return {now, stored} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local ids, tokens = {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[4 * i - 1], ARGV[4 * i] end
local told = 0
local verdicts, kept, texts = judge_claims(claims, ids, tokens)
-- These look for themselves as well; but they are made when they are called, which is rare.
if string.find(verdicts, 'l', 1, true) then forgive_lost(info, ids, tokens, verdicts) end
if #kept > 0 then
  local ending, kinds, entries, samples, sampled = {}, {}, {}, {}, 0
  for n = 1, #kept do
    local i = kept[n]
    local kind = ARGV[4 * i + 1]
    ending[n], kinds[n], entries[n] = ids[i], string.sub(kind, 1, 1), ARGV[4 * i + 2]
    if #kind > 1 then
      sampled = sampled + 1
      samples[sampled] = kind
    end
  end
  drop_claims({stream = stream, leases = leases, claims = claims, owned = owned, meta = meta},
              ending, texts)
  told = end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            ending, kinds, entries, now)
  count_runs(history, stats, samples, now)
end
if #ARGV > 4 * count + 2 then mark_started(claims, unique, info, ARGV, 4 * count + 3, now) end
if suspect then suspect_left(own, suspect, ids, suspects, wake, meta) end
remember(own, 'finish', ARGV[1], verdicts)
if told > 0 then return {now, verdicts, told} end
return {now, verdicts}
