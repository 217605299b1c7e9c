-- PURPOSE  Put tasks of an exported pool where they were (see transfer.py): into the queue behind
--          what is there, into delayed, back among those that wait for others, or into the records.
--          What it stores it stores as it is given. Safe to repeat: an id that is known stays as it
--          is.
-- KEYS     ready stream delayed tasks info records done dead cancels unique windows wake meta
--          waiting held outbox suspects limits slots rates releases parked queues turns workflows
-- ARGV     'store', or 'look' to change nothing; the score under which the outbox keeps what is to
--          be tied to its parents, which is later than anything is taken from it;
--          then per item (at most 500): id, "<place> <ms> <letters>[ <text>]", journal, header or
--          ''. <place> is q (queued), d (delayed, due at <ms>), w (waiting since <ms>; <text> is
--          what waiting holds), e or x (a record of done or of dead, ended at <ms>); or k, a unique
--          key that is locked until <ms>, by the task <text>: its id is the digest. <letters> are
--          '-', or l (it holds its unique key), c (it is to be cancelled), b (it is a workflow that
--          began, and is listed)
-- RETURNS  {now ms, verdicts}: a letter an item: 's' stored, 'a' the id is known, or the window of
--          the key is over or another's; 'u' its unique key is held by another task, 'p' it has a
--          limit, and the pool's transport none (a priority just does not count there)
-- include: now
-- include: fair
-- include: header
-- include: limiting
-- include rarely: limits
-- include: list_workflows
-- include: locks
-- include: place
-- include: promote_due
-- include: queue_add
-- include: wake
local ready, stream, delayed, tasks, info, records, done, dead, cancels, unique, windows, wake,
  meta, waiting, held, outbox, suspects, limits, slots, rates, releases, parked, queues, turns,
  workflows = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local k = {ready = ready, stream = stream, delayed = delayed, meta = meta}
local tie_at, now = ARGV[2], now_ms()

local items, ids = {}, {}
for at = 3, #ARGV, 4 do
  local letter, ms, letters, text = string.match(ARGV[at + 1], '^([qdwexk]) (%d+) ([-lcb]+) ?(.*)$')
  if not letter then error('nothing is restored that way: ' .. ARGV[at + 1]) end
  local item = {id = ARGV[at], letter = letter, ms = tonumber(ms), text = text,
                locked = string.find(letters, 'l', 1, true), journal = ARGV[at + 2],
                cancelled = string.find(letters, 'c', 1, true), header = ARGV[at + 3],
                begun = string.find(letters, 'b', 1, true)}
  -- Only of a lock that goes with its task: a window's lock is an item of its own.
  if item.locked then item.digest = string.match(item.header, ' [ds]:(%S+)') end
  if letter == 'k' then item.digest = item.id end
  items[#items + 1], ids[#ids + 1] = item, item.id
end
if #items == 0 then return {now, ''} end

-- Whether it has limits, or takes turns.
local function is_limited(item)
  return string.find(item.header, ' [lf]:')
    or item.letter == 'w' and string.find(item.text, ' [lf]:')
end

local function judge()
  local stored, ended = redis.call('HMGET', tasks, unpack(ids)),
    redis.call('HMGET', records, unpack(ids))
  local digests, in_order, seen, verdicts, fresh = {}, streamed(k), {}, {}, {}
  for _, item in ipairs(items) do
    if item.digest then digests[#digests + 1] = item.digest end
  end
  local locks = living_locks(unique, tasks, digests, now)
  for i, item in ipairs(items) do
    local holder = item.digest and locks[item.digest]
    local over = item.letter == 'e' or item.letter == 'x'
    if item.letter == 'k' then
      verdicts[i] = (holder or item.ms <= now) and 'a' or 's'
    elseif seen[item.id] or stored[i] or ended[i] then
      verdicts[i] = 'a'
    elseif not over and holder and holder ~= item.id then
      verdicts[i] = 'u'
    elseif not over and in_order and is_limited(item) then
      verdicts[i] = 'p'
    else
      verdicts[i] = 's'
    end
    if verdicts[i] == 's' then
      fresh[#fresh + 1] = item
      if item.letter ~= 'k' then seen[item.id] = true end
      if item.digest then locks[item.digest] = item.letter == 'k' and item.text or item.id end
    end
  end
  return table.concat(verdicts), fresh
end

-- Of the items at these places what `what(item)` gives, one behind the other, for one command.
local function flat_of(fresh, letters, what)
  local flat = {}
  for _, item in ipairs(fresh) do
    if string.find(letters, item.letter, 1, true) then
      flat[#flat + 1], flat[#flat + 2] = what(item)
    end
  end
  return flat
end

local function hset(key, flat)
  if #flat > 0 then redis.call('HSET', key, unpack(flat)) end
end

local function zadd(key, flat)
  if #flat > 0 then redis.call('ZADD', key, unpack(flat)) end
end

-- Whoever lost a lease at the place it came from is nobody here. One that can not be read stays.
local function cleaned(text)
  local header = read_header(text)
  if write_header(header) ~= text then return text end
  header.blamed = ''
  return write_header(header)
end

-- In the order in which they are given, behind what is there.
local function put_in_queue(queued)
  local last = redis.call('HINCRBY', meta, 'sequence', #queued)
  local places, sets, taken = {}, nil, nil
  for i, item in ipairs(queued) do
    local header = read_header(item.header ~= '' and item.header or nil)
    places[2 * i - 1], places[2 * i] = place(header.priority, last - #queued + i), item.id
    if header.limits then
      local set, _, fair = limits_of(header.limits)
      sets, taken = sets or {}, taken or new_turns(limiting)
      sets[item.id] = set
      if fair then places[2 * i - 1] = fair_place(taken, fair, header.priority) end
    end
  end
  if taken then close_turns(taken) end
  if sets then places = park_followers(limiting, places, sets) end
  if #places > 0 then
    queue_add(k, places)
    wake_one(wake, meta)
  end
end

local function put_in_delayed(flat)
  if #flat == 0 then return end
  local before = next_due(delayed)
  redis.call('ZADD', delayed, unpack(flat))
  if before == -1 or next_due(delayed) < before then wake_one(wake, meta) end
end

local function store(fresh)
  local function journal(item) return item.id, item.journal end
  local function time(item) return whole(item.ms), item.id end
  -- This is the write that Redis refuses when it is full: nothing is stored then.
  hset(tasks, flat_of(fresh, 'qdw', journal))
  hset(records, flat_of(fresh, 'ex', journal))
  zadd(done, flat_of(fresh, 'e', time))
  zadd(dead, flat_of(fresh, 'x', time))
  list_workflows(workflows, flat_of(fresh, 'e', function(item)
    if item.begun then return time(item) end
  end))
  hset(info, flat_of(fresh, 'qdw', function(item)
    if item.header ~= '' then return item.id, cleaned(item.header) end
  end))
  hset(unique, flat_of(fresh, 'qdw', function(item)
    if item.digest then return item.digest, item.id .. ' 0' end
  end))
  hset(unique, flat_of(fresh, 'k', function(item)
    return item.id, item.text .. ' ' .. whole(item.ms)
  end))
  zadd(windows, flat_of(fresh, 'k', time))
  local to_cancel = flat_of(fresh, 'qdw', function(item)
    if item.cancelled then return item.id end
  end)
  if #to_cancel > 0 then redis.call('SADD', cancels, unpack(to_cancel)) end
  hset(waiting, flat_of(fresh, 'w', function(item) return item.id, item.text end))
  zadd(held, flat_of(fresh, 'w', time))
  -- Tied when all that it may wait for is here.
  zadd(outbox, flat_of(fresh, 'w', function(item) return tie_at, 'a ' .. item.id end))
  put_in_delayed(flat_of(fresh, 'd', time))
  local queued = {}
  for _, item in ipairs(fresh) do
    if item.letter == 'q' then queued[#queued + 1] = item end
  end
  if #queued > 0 then put_in_queue(queued) end
end

local verdicts, fresh = judge()
if #fresh > 0 and ARGV[1] == 'store' then store(fresh) end
return {now, verdicts}
