-- PURPOSE  Claimed tasks whose names belong to other pools are stored there already: end them here,
--          with a record that says where they are. Where the token still holds. Repeatable by
--          number (it shares the finish lane).
-- KEYS     stream leases claims tasks info done records dead owned own cancels watch stats unique
--          progress suspects wake meta edges outbox ready limits slots rates releases parked
--          queues
-- ARGV     number of this call, then per task: id, token, journal entry
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost, 'c' it was
--          cancelled meanwhile and is still claimed: the caller has to cancel it there, and to
--          finish it here
-- include: now
-- include: lane
-- include: delay_claimed
-- include: end_tasks
-- include: suspects
-- include: limiting
local stream, leases, claims, tasks, info, done, records, dead, owned, own, cancels, watch, stats,
  unique, progress, suspects, wake, meta, edges, outbox, ready, limits, slots, rates, releases,
  parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local number, count = tonumber(ARGV[1]), (#ARGV - 1) / 3
local now = now_ms()

local stored, suspect = repeated(own, 'finish', number)
if type(stored) == 'table' then return stored end
if stored then return {now, stored} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local ids, tokens = {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[3 * i - 1], ARGV[3 * i] end
local verdicts, kept, texts = judge_claims(claims, ids, tokens)
verdicts, kept, texts = leave_cancelled(cancels, ids, verdicts, kept, texts)
if #kept > 0 then
  local gone, kinds, entries = {}, {}, {}
  for n, i in ipairs(kept) do gone[n], kinds[n], entries[n] = ids[i], 'm', ARGV[3 * i + 1] end
  drop_claims({stream = stream, leases = leases, claims = claims, owned = owned, meta = meta},
              gone, texts)
  end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
             cancels = cancels, watch = watch, stats = stats, unique = unique,
             progress = progress, edges = edges, outbox = outbox, limiting = limiting},
            gone, kinds, entries, now)
end
suspect_left(own, suspect, ids, suspects, wake, meta)
remember(own, 'finish', ARGV[1], verdicts)
return {now, verdicts}
