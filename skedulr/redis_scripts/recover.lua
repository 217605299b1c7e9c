-- PURPOSE  Give back what expired leases hold, up to `limit`. After a gap in the sweeps (Redis was
--          away, so its owners could not renew either) it gives nothing back for one lease. Leases
--          that a clock which ran ahead put far away are cut.
-- KEYS     ready stream removed suspects leases claims tasks info records done dead deaths cancels
--          watch stats unique progress wake meta broken edges outbox history limits slots rates
--          releases parked queues
-- ARGV     limit (at most 500), lease ms, longest gap between two sweeps ms; to judge the death of
--          a host (see judge_death.lua): crashes that kill, journal entry of a crash that does not,
--          of one that does
-- RETURNS  {now ms, {ids given back}, 1 if more may be left}; where deaths are judged also
--          {those charged a crash and given back}, {those that are dead now}, 1 if hooks are to
--          be told of any (see mourn.lua), 1 if the outbox holds what is to be delivered
-- include: now
-- include: judge_death
-- include: leases_over
-- include: clock_set_back
-- include: queue_sweep
-- include: consumers
-- include: wake
-- include: limiting
local ready, stream, removed, suspects, leases, claims, tasks, info, records, done, dead, deaths,
  cancels, watch, stats, unique, progress, wake, meta, broken, edges, outbox, history, limits, slots,
  rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local limit, lease, gap = math.min(tonumber(ARGV[1]), 500), tonumber(ARGV[2]), tonumber(ARGV[3])
local crashes = tonumber(ARGV[4] or '0')
local now = now_ms()

local k = {ready = ready, stream = stream, removed = removed, suspects = suspects, leases = leases,
           claims = claims, tasks = tasks, info = info, records = records, done = done,
           dead = dead, deaths = deaths, cancels = cancels, watch = watch, stats = stats,
           unique = unique, progress = progress, meta = meta, edges = edges, outbox = outbox,
           history = history,
           name = '', limiting = limiting}

local function answer(ids, more, charged, died)
  if crashes == 0 then return {now, ids, more} end
  -- Whoever sweeps would ask for these as often, in calls of their own.
  local untold = redis.call('ZCOUNT', deaths, '-inf', whole(now))
  local undelivered = redis.call('ZCOUNT', outbox, '-inf', whole(now))
  return {now, ids, more, charged or {}, died or {}, math.min(untold, 1), math.min(undelivered, 1)}
end

local last = redis.call('HMGET', meta, 'swept', 'recover_after', 'visibility', 'visibility_at')
local swept, after = tonumber(last[1] or now), tonumber(last[2] or 0)

-- Whether expired leases, of `longest` ms at most, may be taken for dead owners' now.
local function may_recover(longest)
  -- The first sweep ever, a gap, or a clock set back: owners that live get time to renew first.
  if not last[1] or now - swept > gap or now < swept then
    after = now + longest
    redis.call('HSET', meta, 'swept', whole(now), 'recover_after', whole(after))
  else
    redis.call('HSET', meta, 'swept', whole(now))
  end
  return now >= after or after - now > longest
end

-- The claims of `expired`; a lease without one that can be read is set aside and shown (doctor).
local function claims_of(expired)
  local ids, texts = {}, {}
  for i, text in ipairs(redis.call('HMGET', claims, unpack(expired))) do
    if text and read_claim(text) then
      ids[#ids + 1], texts[#texts + 1] = expired[i], text
    else
      lease_end(k, {expired[i]}, {})
      redis.call('HSET', broken, expired[i], 'leased without a claim')
    end
  end
  return ids, texts
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
local longest = longest_lease(k, now, lease, last[3], last[4])
local sweeping = queue_sweep(k, limit)
sweeping = cut_leases(k, now, limit, longest) or sweeping
sweeping = cut_pending(k, limit, swept, now) or sweeping
if not may_recover(longest) then return answer({}, sweeping and 1 or 0) end
consumers_gone(k, now)
local expired, more = leases_over(k, now, limit, longest)
more = (more or sweeping) and 1 or 0
if #expired == 0 then return answer({}, more) end
local ids, texts = claims_of(expired)
local charged, died
if crashes > 0 then
  ids, charged, died = judge_death(k, ids, texts, {
    culprit = '', limit = crashes, back = ARGV[5], death = ARGV[6], judging = true, presumed = true,
  }, now)
else
  give_back(k, ids, texts)
end
if #ids > 0 then wake_one(wake, meta) end
return answer(ids, more, charged, died)
