-- PURPOSE  Put claimed tasks off, with no attempt counted: nobody here knows their names. Where the
--          token still holds. Repeatable by number (it shares the finish lane).
-- KEYS     delayed stream leases claims info owned own cancels suspects wake meta ready limits
--          slots rates releases parked queues
-- ARGV     number of this call, then per task: id, token, delay ms
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost, 'c' it was
--          cancelled meanwhile and is still claimed: the caller has to finish it
--          When a task was first put off stands in its header, which the next claim gives.
-- include: now
-- include: lane
-- include: delay_claimed
-- include: suspects
-- include: limiting
local delayed, stream, leases, claims, info, owned, own, cancels, suspects, wake, meta, ready,
  limits, slots, rates, releases, parked, queues = unpack(KEYS)
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
  local deferred, delays = {}, {}
  for n, i in ipairs(kept) do deferred[n], delays[n] = ids[i], ARGV[3 * i + 1] end
  delay_claimed({delayed = delayed, stream = stream, leases = leases, claims = claims,
                 info = info, owned = owned, wake = wake, meta = meta, limiting = limiting},
                deferred, texts, delays, now, function(header)
    if header.since == 0 then header.since = now end
  end)
end
suspect_left(own, suspect, ids, suspects, wake, meta)
remember(own, 'finish', ARGV[1], verdicts)
return {now, verdicts}
