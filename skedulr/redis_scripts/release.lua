-- PURPOSE  Give back claims before they expire: named ones (a drain, a silent hub), or everything a
--          dead owner held, up to 500 a call. A whole owner's release marks it gone, so that a
--          claim of its that is still under way is refused; and it judges the death.
-- KEYS     ready stream suspects leases claims tasks info records done dead deaths owned own
--          cancels watch stats unique progress wake meta edges outbox history limits slots rates
--          releases parked queues
-- ARGV     'ids', then pairs id, token
--          'owner', owner: all that it holds, nobody is charged; or 'owner', owner, the culprit's
--          id or '', crashes that kill, journal entry of a crash that does not, of one that does,
--          '1' if what was started is suspect where nobody is named, what the culprit's task is
--          called ('' if that is not known), '1' if it is a loss and no crash that is counted (see
--          judge_death.lua)
-- RETURNS  {now ms, {ids given back}, 1 if more may be left}; of a death that was judged also
--          {those charged a crash and given back}, {those that are dead now}
-- include: now
-- include: judge_death
-- include: consumers
-- include: wake
-- include: limiting
local ready, stream, suspects, leases, claims, tasks, info, records, done, dead, deaths, owned,
  own, cancels, watch, stats, unique, progress, wake, meta, edges, outbox, history, limits, slots,
  rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local whole_owner = ARGV[1] == 'owner'
local limit = whole_owner and tonumber(ARGV[4] or '0') or 0
local now = now_ms()
local named, prefixes, more = {}, {}, 0
local k = {ready = ready, stream = stream, suspects = suspects, leases = leases,
           claims = claims, tasks = tasks, info = info, records = records, done = done,
           dead = dead, deaths = deaths, cancels = cancels, watch = watch, stats = stats,
           unique = unique, progress = progress, meta = meta, edges = edges, outbox = outbox,
           history = history,
           name = ARGV[8] or '',
           limiting = limiting}

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
if whole_owner then
  named = redis.call('SPOP', owned, 500)
  redis.call('HSET', own, 'gone', '1')
  redis.call('EXPIRE', own, 3600)
  for i = 1, #named do prefixes[i] = ARGV[2] .. ':' end
  more = redis.call('EXISTS', owned)
else
  for i = 2, #ARGV, 2 do
    named[#named + 1], prefixes[#prefixes + 1] = ARGV[i], ARGV[i + 1] .. ' '
  end
end

local ids, texts, charged, died = {}, {}, {}, {}
if #named > 0 then
  for i, text in ipairs(redis.call('HMGET', claims, unpack(named))) do
    if text and string.sub(text, 1, #prefixes[i]) == prefixes[i] and read_claim(text) then
      ids[#ids + 1], texts[#texts + 1] = named[i], text
    end
  end
end
if #ids > 0 then
  if not whole_owner then redis.call('SREM', owned, unpack(ids)) end
  if limit > 0 then
    ids, charged, died = judge_death(k, ids, texts, {
      culprit = ARGV[3], limit = limit, back = ARGV[5], death = ARGV[6], judging = ARGV[7] == '1',
      loss = ARGV[9] == '1',
    }, now)
  else
    give_back(k, ids, texts)
  end
  if #ids > 0 then wake_one(wake, meta) end
end
if whole_owner and more == 0 then consumer_gone(k, ARGV[2]) end
if limit > 0 then return {now, ids, more, charged, died} end
return {now, ids, more}
