-- PURPOSE  End the runs of claimed tasks that are to wait, for others that they found out about; no
--          attempt is counted. Where the token still holds. Repeatable by number (it shares the
--          finish lane).
-- KEYS     stream leases claims tasks info owned own cancels progress suspects wake meta waiting
--          held outbox ready limits slots rates releases parked queues
-- ARGV     number of this call, then per task: id, token, journal entry, what waiting is to hold of
--          it (see hold_back.lua)
-- RETURNS  {now ms, verdicts}: a letter a task: 'k' kept, 'l' the claim is lost, 'c' it was
--          cancelled meanwhile and is still claimed: the caller has to finish it
-- include: now
-- include: stamp
-- include: whole
-- include: lane
-- include: delay_claimed
-- include: forgive
-- include: suspects
-- include: limiting
-- include rarely: limits
local stream, leases, claims, tasks, info, owned, own, cancels, progress, suspects, wake, meta,
  waiting, held, outbox, ready, limits, slots, rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local number, count = tonumber(ARGV[1]), (#ARGV - 1) / 4
local now = now_ms()

local function wait_anew(ids, entries, texts)
  local bodies, stored, stamped = {}, redis.call('HMGET', tasks, unpack(ids)), stamp(now)
  local letters, times, items, at = {}, {}, {}, whole(now)
  for n, id in ipairs(ids) do
    bodies[2 * n - 1], bodies[2 * n] = id, (stored[n] or '') .. entries[n] .. stamped
    letters[2 * n - 1], letters[2 * n] = id, texts[n]
    times[2 * n - 1], times[2 * n] = at, id
    items[2 * n - 1], items[2 * n] = at, 't ' .. id
  end
  redis.call('HSET', tasks, unpack(bodies))
  redis.call('HDEL', info, unpack(ids))
  redis.call('HDEL', progress, unpack(ids))
  redis.call('HSET', waiting, unpack(letters))
  redis.call('ZADD', held, unpack(times))
  redis.call('ZADD', outbox, unpack(items))
end

local stored, suspect = repeated(own, 'finish', number)
if type(stored) == 'table' then return stored end
if stored then return {now, stored} end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local ids, tokens = {}, {}
for i = 1, count do ids[i], tokens[i] = ARGV[4 * i - 2], ARGV[4 * i - 1] end
local verdicts, kept, claimed = judge_claims(claims, ids, tokens)
forgive_lost(info, ids, tokens, verdicts)
verdicts, kept, claimed = leave_cancelled(cancels, ids, verdicts, kept, claimed)
if #kept > 0 then
  local theirs, entries, texts = {}, {}, {}
  for n, i in ipairs(kept) do
    theirs[n], entries[n], texts[n] = ids[i], ARGV[4 * i], ARGV[4 * i + 1]
  end
  drop_claims({stream = stream, leases = leases, claims = claims, owned = owned, meta = meta},
              theirs, claimed)
  free_slots(limiting, theirs, true)
  wait_anew(theirs, entries, texts)
end
suspect_left(own, suspect, ids, suspects, wake, meta)
remember(own, 'finish', ARGV[1], verdicts)
return {now, verdicts}
