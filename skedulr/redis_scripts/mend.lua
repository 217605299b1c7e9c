-- PURPOSE  Mend broken states that doctor.py found: one kind of mend a call, for up to 100 ids. Each
--          is looked at once more, so that what is sound by now stays as it is.
-- KEYS     ready stream removed delayed suspects leases claims tasks info records done dead
--          cancels watch unique windows progress wake meta broken waiting held edges outbox limits
--          slots rates releases parked queues
-- ARGV     what: a name of `mends` below; then pairs id, detail
-- RETURNS  {now ms, letters}: a letter an id: 'm' mended, '-' there was nothing to mend (any more)
-- include: now
-- include: whole
-- include: claim_text
-- include: header
-- include: place
-- include: queue_add
-- include: queue_remove
-- include: leases
-- include: forget
-- include: drop_edges
-- include: wake
-- include: limiting
-- include: limits
local ready, stream, removed, delayed, suspects, leases, claims, tasks, info, records, done, dead,
  cancels, watch, unique, windows, progress, wake, meta, broken, waiting, held, edges, outbox,
  limits, slots, rates, releases, parked, queues = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues)
local now = now_ms()
local k = {ready = ready, stream = stream, removed = removed, leases = leases, meta = meta,
           tasks = tasks, claims = claims, delayed = delayed, suspects = suspects,
           waiting = waiting}

local function has_body(id) return redis.call('HEXISTS', tasks, id) == 1 end
local function has_record(id) return redis.call('HEXISTS', records, id) == 1 end
local function is_claimed(id) return redis.call('HEXISTS', claims, id) == 1 end

-- Whether the claim can be read: who holds it, and the place to go back to.
local function sound_claim(id)
  local text = redis.call('HGET', claims, id)
  return text and read_claim(text) ~= nil
end

local function to_start(id)
  -- What is in a stream can not be asked. The doctor has looked through all of it.
  return not streamed(k) and queue_has(k, {id})[1] or redis.call('ZSCORE', delayed, id)
    or redis.call('ZSCORE', suspects, id) or redis.call('ZSCORE', parked, id)
end

local function waits(id)
  return redis.call('ZSCORE', held, id) or redis.call('HEXISTS', waiting, id) == 1
end

local function queued(id) return to_start(id) or waits(id) end

local function leave_waiting(id)
  redis.call('ZREM', outbox, 'a ' .. id, 't ' .. id)
  return redis.call('HDEL', waiting, id) + redis.call('ZREM', held, id)
end

local function leave_to_start(id)
  return #leave_limits(limiting, {id}, now) + redis.call('ZREM', parked, id)
    + queue_remove(k, {id}) + redis.call('ZREM', delayed, id) + redis.call('ZREM', suspects, id)
end

local function leave_queue(id) return leave_to_start(id) + leave_waiting(id) end

local function leave_claims(id)
  local text = redis.call('HGET', claims, id)
  redis.call('HDEL', claims, id)
  lease_end(k, {id}, {text or ''})
  free_slots(limiting, {id}, true)
end

-- Behind all of its priority: where it stood before is not known.
local function enter_queue(id)
  local header = read_header(redis.call('HGET', info, id))
  local sequence = redis.call('HINCRBY', meta, 'sequence', 1)
  queue_add(k, {place(header.priority, sequence), id})
  wake_one(wake, meta)
end

-- What lies beside a body that is gone. A window outlives its task.
local function leave_nothing(id)
  forget({info = info, unique = unique, cancels = cancels, progress = progress, watch = watch,
          limiting = limiting}, {id}, function(mode) return mode ~= 'w' end)
end

-- The holder of a lock and when that ends, or nil where nobody can read it.
local function read_lock(text)
  local uid, expiry = string.match(text, '^(%S+) (%d+)$')
  return uid, tonumber(expiry)
end

local mends = {}

-- A claim without a lease, or with one that ends after "<furthest>" ms, gets one of "<grace>" ms: an
-- owner that lives renews it before it is over, else the sweep takes the task back.
mends['lease'] = function(id, detail)
  local grace, furthest = string.match(detail, '^(%d+) (%d+)$')
  local lease = redis.call('ZSCORE', leases, id)
  if not sound_claim(id) or not has_body(id) then return false end
  if lease and tonumber(lease) <= now + tonumber(furthest) then return false end
  lease_renew(k, {id}, {redis.call('HGET', claims, id)}, whole(now + tonumber(grace)))
  return true
end

mends['unlease'] = function(id)
  return not is_claimed(id) and redis.call('ZREM', leases, id) == 1
end

-- A claim that nobody can read, or of a task whose body is gone. Its owner is told that it is lost.
mends['unclaim'] = function(id)
  if not is_claimed(id) or (sound_claim(id) and has_body(id)) then return false end
  leave_claims(id)
  if has_body(id) and not has_record(id) and not queued(id) then enter_queue(id) end
  return true
end

mends['unqueue'] = function(id)
  return not has_body(id) and leave_queue(id) > 0
end

mends['requeue'] = function(id)
  if not has_body(id) or has_record(id) or is_claimed(id) or queued(id) then return false end
  enter_queue(id)
  return true
end

-- A task waits, and what waiting holds of it frees it never, or is gone: "<length, or -1> <what it
-- held><what it is to hold>"; all of its parents are asked anew. '' for one that waits for nothing.
mends['hold'] = function(id, detail)
  local length, texts = string.match(detail, '^(%-?%d+) (.*)$')
  if not length then return false end
  length = tonumber(length)
  local before, text = redis.call('HGET', waiting, id), string.sub(texts, math.max(length, 0) + 1)
  if before ~= (length >= 0 and string.sub(texts, 1, length)) then return false end
  if not has_body(id) or has_record(id) or is_claimed(id) or to_start(id) then return false end
  if text == '' then
    leave_waiting(id)
    enter_queue(id)
    return true
  end
  redis.call('HSET', waiting, id, text)
  if not redis.call('ZSCORE', held, id) then redis.call('ZADD', held, whole(now), id) end
  redis.call('ZADD', outbox, whole(now), 'a ' .. id)
  return true
end

mends['list_held'] = function(id)
  if redis.call('HEXISTS', waiting, id) == 0 or not has_body(id) then return false end
  if redis.call('ZSCORE', held, id) then return false end
  return redis.call('ZADD', held, whole(now), id) == 1
end

-- In several places: what runs, runs; what waits for others or is due later does not start before;
-- a suspect runs alone.
mends['one_place'] = function(id)
  if not has_body(id) then return false end
  if sound_claim(id) then return leave_queue(id) > 0 end
  if redis.call('HEXISTS', waiting, id) == 1 then return leave_to_start(id) > 0 end
  if redis.call('ZSCORE', held, id) then return to_start(id) and leave_waiting(id) > 0 end
  if redis.call('ZSCORE', delayed, id) then
    return queue_remove(k, {id}) + redis.call('ZREM', suspects, id)
      + #leave_limits(limiting, {id}, now) > 0
  end
  if redis.call('ZSCORE', parked, id) then
    return queue_remove(k, {id}) + redis.call('ZREM', suspects, id) > 0
  end
  return redis.call('ZSCORE', suspects, id) and queue_remove(k, {id}) == 1
end

-- A task that has ended and has not: the longer journal is the newer one (a resubmit adds to it).
mends['one_life'] = function(id)
  local body, record = redis.call('HGET', tasks, id), redis.call('HGET', records, id)
  if not body or not record then return false end
  if #body > #record and string.sub(body, 1, #record) == record then
    redis.call('HDEL', records, id)
    redis.call('ZREM', done, id)
    redis.call('ZREM', dead, id)
  else
    leave_queue(id)
    redis.call('HDEL', tasks, id)
    leave_claims(id)
    leave_nothing(id)
  end
  return true
end

-- A record belongs in one list, "<done or dead> <ended ms>"; where it stands already its time stays.
mends['file'] = function(id, detail)
  local name, ended = string.match(detail, '^(%l+) (%d+)$')
  local list, other = done, dead
  if name == 'dead' then list, other = dead, done end
  local listed, misfiled = redis.call('ZSCORE', list, id), redis.call('ZSCORE', other, id)
  if not has_record(id) or has_body(id) or (listed and not misfiled) then return false end
  redis.call('ZREM', other, id)
  redis.call('ZADD', list, listed or misfiled or ended, id)
  return true
end

mends['unlist'] = function(id)
  return not has_record(id) and redis.call('ZREM', done, id) + redis.call('ZREM', dead, id) > 0
end

mends['forget'] = function(id)
  if has_body(id) or is_claimed(id) then return false end
  local left = redis.call('HEXISTS', info, id) + redis.call('SISMEMBER', cancels, id)
    + redis.call('HEXISTS', progress, id) + redis.call('HEXISTS', watch, id)
  if left > 0 then leave_nothing(id) end
  return left > 0
end

-- A header that nobody can read counts as none; so it goes.
mends['header'] = function(id)
  local text = redis.call('HGET', info, id)
  if not text or write_header(read_header(text)) == text then return false end
  redis.call('HDEL', info, id)
  return true
end

mends['unlock'] = function(digest)
  local text = redis.call('HGET', unique, digest)
  if not text then return false end
  local uid, expiry = read_lock(text)
  if uid and (expiry > 0 or has_body(uid)) then return false end
  redis.call('HDEL', unique, digest)
  return true
end

mends['window'] = function(digest)
  local text = redis.call('HGET', unique, digest)
  local uid, expiry = read_lock(text or '')
  if not uid or expiry == 0 or redis.call('ZSCORE', windows, digest) then return false end
  redis.call('ZADD', windows, whole(expiry), digest)
  return true
end

mends['unwindow'] = function(digest)
  return redis.call('HEXISTS', unique, digest) == 0 and redis.call('ZREM', windows, digest) == 1
end

-- A slot of a task that is not claimed.
mends['unslot'] = function(id)
  if is_claimed(id) or redis.call('HEXISTS', slots, id) == 0 then return false end
  free_slots(limiting, {id}, true)
  return true
end

-- A key's count was off by a difference in two looks, and is what it was at the second one:
-- `detail` is "<count> <difference>".
mends['recount'] = function(key, detail)
  local counted, difference = string.match(detail, '^(%-?%d+) (%-?%d+)$')
  if not counted or (redis.call('HGET', slots, '#' .. key) or '0') ~= counted then return false end
  if redis.call('HINCRBY', slots, '#' .. key, -tonumber(difference)) <= 0 then
    redis.call('HDEL', slots, '#' .. key)
  end
  if let_out(new_book(limiting, now), key, 500) > 0 then wake_one(wake, meta) end
  return true
end

-- A member of queues whose task is not parked there.
mends['unmember'] = function(member)
  local set, at, id = string.match(member, '^(%S+) (%d+) (%S+)')
  local score = id and redis.call('ZSCORE', parked, id)
  if score and sortable(score) == at then return false end
  if redis.call('ZREM', queues, member) == 0 then return false end
  local wait = set and redis.call('HGET', slots, '@' .. set)
  local _, first = read_wait(wait)
  if first == at then step_up(limiting, wait, first_of(limiting, set, 1)[1]) end
  return true
end

-- A parked task that stands in no queue of a set goes where it would be tried again.
mends['unpark'] = function(id)
  local score = redis.call('ZSCORE', parked, id)
  if not score or not has_body(id) then return false end
  leave_limits(limiting, {id}, now)
  redis.call('ZREM', parked, id)
  if not is_claimed(id) and not queued(id) then queue_return(k, {whole(tonumber(score)), id}) end
  wake_one(wake, meta)
  return true
end

-- A set that has parked tasks waits for a key by the first of them, and no other set does.
mends['wait'] = function(set)
  local first = first_of(limiting, set, 1)[1]
  local wait = redis.call('HGET', slots, '@' .. set)
  local key, at = read_wait(wait)
  if not first then
    if wait then redis.call('ZREM', queues, wait) end
    return redis.call('HDEL', slots, '@' .. set) == 1
  end
  local place_text, id = string.match(first, '^%S+ (%d+) (%S+)')
  if at == place_text and redis.call('ZSCORE', queues, wait) then return false end
  local _, keys = limits_of(redis.call('HGET', info, id) or '')
  key = key or keys[1]
  if not key then return false end
  local there = wait and redis.call('ZSCORE', queues, wait)
  wait_for(limiting, there and wait or nil, key, place_text, set)
  if let_out(new_book(limiting, now), key, 1) > 0 then wake_one(wake, meta) end
  note_releases(limiting)
  return true
end

-- A wait that its set does not know of.
mends['unwait'] = function(member)
  local _, _, set = read_wait(member)
  if set and redis.call('HGET', slots, '@' .. set) == member then return false end
  return redis.call('ZREM', queues, member) == 1
end

-- Sets wait for a key that has room, or whose next token nobody looks for.
mends['let_out'] = function(key)
  local book = new_book(limiting, now)
  local out = let_out(book, key, 500)
  note_releases(limiting)
  if out + #book.armed > 0 then wake_one(wake, meta) end
  return out + #book.armed > 0
end

mends['one_wake'] = function()
  if redis.call('LLEN', wake) <= 1 then return false end
  redis.call('LTRIM', wake, 0, 0)
  return true
end

mends['unnote'] = function(id)
  return redis.call('HDEL', broken, id) == 1
end

-- A page of edges that nobody can read: those who wait are tied anew.
mends['unedge'] = function(field, seen)
  if redis.call('HGET', edges, field) ~= seen then return false end
  redis.call('HDEL', edges, field)
  for page = 1, 500 do
    if redis.call('HDEL', edges, field .. ',' .. page) == 0 then break end
  end
  return true
end

-- A parent that is gone: "<pages>,<edges of the last>", which whoever is tied to it changes.
mends['untie'] = function(parent, head)
  local first = redis.call('HGET', edges, parent)
  if not first or string.match(first, '^%S+') ~= head or has_body(parent) or has_record(parent)
     or redis.call('ZSCORE', outbox, 'p ' .. parent) then return false end
  drop_edges(edges, {parent})
  return true
end

mends['untell'] = function(item)
  return redis.call('ZREM', outbox, item) == 1
end

-- To be told later than in "<furthest>" ms: now. What an import keeps back stays (see take.lua).
mends['hurry'] = function(item, furthest)
  local at = tonumber(redis.call('ZSCORE', outbox, item) or '0')
  if at <= now + tonumber(furthest) or at >= 2 ^ 52 then return false end
  redis.call('ZADD', outbox, whole(now), item)
  return true
end

-- The earliest release stands in meta, as text; mended for the pool as a whole.
mends['note'] = function()
  local first = redis.call('ZRANGE', releases, 0, 0, 'WITHSCORES')[2]
  local noted, due = redis.call('HGET', meta, 'release_at'), first and whole(tonumber(first))
  if noted == (due or false) then return false end
  note_releases(limiting)
  wake_one(wake, meta)
  return true
end

local mend, letters = mends[ARGV[1]], {}
if not mend then error('nothing is mended that way: ' .. ARGV[1]) end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('ZREM', leases, '')
for i = 2, #ARGV, 2 do letters[i / 2] = mend(ARGV[i], ARGV[i + 1]) and 'm' or '-' end
return {now, table.concat(letters)}
