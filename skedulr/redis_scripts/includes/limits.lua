-- include rarely: limit_text
-- include: queue_add
-- include: wake
-- include: whole
-- Limits: who may run, who is parked, who comes back. `k` names the keys below.
--
-- limits    HASH limit id -> definition (see limit_text.lua)
-- slots     HASH id -> the concurrency keys it holds while it is claimed; "#<key>" -> how many hold
--           it; "@<set>" -> the member of queues by which this set waits for a key
-- rates     ZSET key -> the time up to which its tokens are spent, ms (GCRA's arrival time)
-- releases  ZSET key -> when its next token is there, of rate keys that are waited for; the
--           earliest stands in meta as well, where a claim reads it
-- parked    ZSET id -> place: what waits for a limit
-- queues    ZSET, all scores 0: "<set> <place> <id>[ s]", the parked tasks of a set in their order
--           (s: it goes back among the suspects); and "!<key> <place> <set>", the sets that wait
--           for a key, by their first task
--
-- A set waits for one key, the one that refused its first task. What is unparked goes back to ready
-- at its place, and only a claim gives out slots and tokens: so long as sets wait for a key, at
-- least as many of its tasks are in ready as it would let run. Whatever takes one of those away
-- otherwise, or frees a slot, lets the next one out (let_out); one too many only parks again.

-- A late start moves the ones after it by nothing, if it is no later than this, ms: the rate is
-- kept on the average, and no window has more than its tokens and the burst.
local LATE = 50
local RATED = string.byte('r')

-- What is known of limit keys in this call, read once: `lines` by key, what each limit is by its id.
-- A line is {key, limit (false where nobody can read it), and field, count of a concurrency or spent
-- of a rate}. `now` is needed where rates are.
local function new_book(k, now)
  return {k = k, now = now, limits = {}, lines = {}, changed = {}, armed = {}}
end

-- Read what limits are, by their ids.
local function learn_limits(book, ids)
  local k = book.k
  if #ids == 0 then return end
  for i, text in ipairs(redis.call('HMGET', k.limits, unpack(ids))) do
    book.limits[ids[i]] = definition_of(text) or false
  end
end

-- Of concurrency keys: how many hold them.
local function learn_counts(book, lines, fields)
  local k = book.k
  if #lines == 0 then return end
  for i, count in ipairs(redis.call('HMGET', k.slots, unpack(fields))) do
    lines[i].count = tonumber(count or 0)
  end
end

-- Of rate keys: up to when their tokens are spent.
local function learn_spent(book, lines, keys)
  local k = book.k
  if #lines == 0 or redis.call('EXISTS', k.rates) == 0 then return end
  for i, score in ipairs(redis.call('ZMSCORE', k.rates, unpack(keys))) do
    local line, spent = lines[i], tonumber(score or 0)
    local d = line.limit
    local latest = d and book.now + d.burst * d.every
    -- Spent up to a time that is too far off: the rate was lower, or the clock was set back.
    if latest and spent > latest then
      spent = latest
      redis.call('ZADD', k.rates, string.format('%.17g', latest), line.key)
    end
    line.spent = spent
  end
end

-- Read what is not known yet of these keys: what c begins with is counted, r has a rate.
local function learn(book, keys)
  local known, ids, owners, new = book.lines, {}, {}, {}
  local counted, fields, rated, rates = {}, {}, {}, {}
  for _, key in ipairs(keys) do
    if not known[key] then
      local id, line = string.sub(key, 1, (string.find(key, '.', 1, true) or 0) - 1), {key = key}
      known[key] = line
      new[#new + 1], owners[#new + 1] = line, id
      if book.limits[id] == nil then
        book.limits[id] = false
        ids[#ids + 1] = id
      end
      if string.byte(key) == RATED then
        line.spent = 0
        rated[#rated + 1], rates[#rated + 1] = line, key
      else
        line.field = '#' .. key
        counted[#counted + 1], fields[#counted + 1] = line, line.field
      end
    end
  end
  if #new == 0 then return end
  learn_limits(book, ids)
  for i, line in ipairs(new) do
    local d = book.limits[owners[i]]
    -- A definition of the other kind is none.
    line.limit = d and (d.every ~= nil) == (line.spent ~= nil) and d
  end
  learn_counts(book, counted, fields)
  learn_spent(book, rated, rates)
end

-- How many more may run now. A key without a definition that can be read limits nothing.
local function room_of(book, line)
  local d = line.limit
  if not d then return 1000000 end
  if d.most then return d.most - line.count end
  return math.floor((book.now - math.max(line.spent, book.now)) / d.every + d.burst)
end

-- When the next token of a rate is there, ms.
local function next_token(line)
  return math.ceil(line.spent - (line.limit.burst - 1) * line.limit.every)
end

-- The first key that refuses a task, or true where it is to stay in ready: `ahead`, it would wait in
-- memory first, which is for limits that are far from full: what waits there keeps others from
-- running.
local function refusing(book, lines, ahead)
  local stays = nil
  for _, line in ipairs(lines) do
    local d = line.limit
    if d and d.most then
      if line.count >= d.most then return line.key end
      if ahead and (line.count + 1) * 2 > d.most then stays = true end
    elseif d then
      if room_of(book, line) < 1 then return line.key end
      stays = stays or ahead
    end
  end
  return nil, stays
end

-- A task is claimed: take a slot or a token of each of its keys; returns what slots holds for it.
local function take_slots(book, lines)
  local held = ''
  for _, line in ipairs(lines) do
    local d = line.limit
    if d and d.every then
      local late = math.max(0, math.min(LATE, d.every - 1))
      local spent = line.spent
      line.spent = (spent >= book.now - late and spent or book.now) + d.every
    elseif d then
      line.count = line.count + 1
      held = held == '' and line.key or held .. ' ' .. line.key
    end
    if not line.changed then
      line.changed = true
      book.changed[#book.changed + 1] = line
    end
  end
  return held
end

-- Write down what slots and tokens were taken.
local function close_book(book, holders)
  local k, fields, spent = book.k, holders, {}
  for _, line in ipairs(book.changed) do
    if line.limit and line.spent then
      spent[#spent + 1], spent[#spent + 2] = string.format('%.17g', line.spent), line.key
    elseif line.limit then
      fields[#fields + 1], fields[#fields + 2] = line.field, whole(line.count)
    end
  end
  if #fields > 0 then redis.call('HSET', k.slots, unpack(fields)) end
  if #spent > 0 then redis.call('ZADD', k.rates, unpack(spent)) end
end

-- The key, place and set of a waiting set's member.
local function read_wait(text)
  return string.match(text or '', '^!(%S+) (%d+) (%S+)$')
end

-- A set waits for `key` from now on, by its first task at `at`; `before` is its member so far.
local function wait_for(k, before, key, at, set)
  local member = '!' .. key .. ' ' .. at .. ' ' .. set
  if member == before then return end
  if before then redis.call('ZREM', k.queues, before) end
  redis.call('ZADD', k.queues, 0, member)
  redis.call('HSET', k.slots, '@' .. set, member)
end

local function first_of(k, set, count)
  return redis.call('ZRANGEBYLEX', k.queues, '[' .. set .. ' ', '(' .. set .. ' :', 'LIMIT', 0, count)
end

-- The first set that waits for a key, as its member of queues.
local function first_wait(k, key)
  return first_of(k, '!' .. key, 1)[1]
end

-- Park a task whose set waits for `key`, or does from now on. `wait` is its member, if it has one.
local function park(k, id, at, set, key, wait, suspected)
  local text = sortable(at)
  redis.call('ZADD', k.parked, at, id)
  redis.call('ZADD', k.queues, 0, set .. ' ' .. text .. ' ' .. id .. (suspected and ' s' or ''))
  local _, first = read_wait(wait)
  if not first or text < first then wait_for(k, wait, key, text, set) end
end

-- The first task of a set is gone from its queue: the next one stands for the set.
local function step_up(k, wait, next_member)
  local key, _, set = read_wait(wait)
  if next_member then
    wait_for(k, wait, key, string.match(next_member, '^%S+ (%d+)'), set)
  else
    redis.call('ZREM', k.queues, wait)
    redis.call('HDEL', k.slots, '@' .. set)
  end
end

-- Let the first tasks that wait for a key back into the queue, up to `most` of the set whose turn it
-- is, and none that comes behind the first of another set; how many, 0 where nothing waits.
local function let_some_out(k, key, most)
  local waits = first_of(k, '!' .. key, 2)
  if not waits[1] then return 0 end
  local _, _, set = read_wait(waits[1])
  local _, beyond = read_wait(waits[2])
  local gone, ids, back, apart, next_member = {}, {}, {}, {}, nil
  for n, member in ipairs(first_of(k, set, most + 1)) do
    local at, id, mark = string.match(member, '^%S+ (%d+) (%S+)( ?s?)$')
    if n > most or (n > 1 and beyond and at > beyond) then
      next_member = member
      break
    end
    gone[n], ids[n] = member, id
    local list = mark == ' s' and apart or back
    list[#list + 1], list[#list + 2] = whole(tonumber(at)), id
  end
  if #gone > 0 then
    redis.call('ZREM', k.queues, unpack(gone))
    redis.call('ZREM', k.parked, unpack(ids))
  end
  if #apart > 0 then redis.call('ZADD', k.suspects, unpack(apart)) end
  if #back > 0 then queue_return(k, back) end
  step_up(k, waits[1], next_member)
  return math.max(1, #gone)
end

-- Note when the next token of a rate key comes, if any set waits for it.
local function arm(book, key)
  local k, line = book.k, book.lines[key]
  if not (line.limit and line.spent) or not first_wait(k, key) then return end
  redis.call('ZADD', k.releases, whole(math.max(next_token(line), book.now + 1)), key)
  book.armed[1] = key
end

-- The earliest release stands in meta, so that a claim that has none to look for asks nothing more.
local function note_releases(k)
  local first = redis.call('ZRANGE', k.releases, 0, 0, 'WITHSCORES')
  if #first == 0 then
    redis.call('HDEL', k.meta, 'release_at')
  else
    redis.call('HSET', k.meta, 'release_at', whole(tonumber(first[2])))
  end
end

-- Let out up to `count` tasks that wait for a key, as far as it has room; how many were.
local function let_out(book, key, count)
  local k, out = book.k, 0
  if not book.lines[key] then learn(book, {key}) end
  local room = room_of(book, book.lines[key])
  local most = math.min(count, room, 500)
  for _ = 1, most do
    local some = out < most and let_some_out(k, key, most - out) or 0
    if some == 0 then break end
    out = out + some
  end
  if room < 1 then arm(book, key) end
  return out
end

-- Let out what waits for rate keys whose next token is there; how many were.
local function fire_releases(k, now)
  local due = redis.call('ZRANGEBYSCORE', k.releases, '-inf', whole(now), 'LIMIT', 0, 500)
  if #due == 0 then return 0 end
  local book, out = new_book(k, now), 0
  redis.call('ZREM', k.releases, unpack(due))
  learn(book, due)
  for _, key in ipairs(due) do out = out + let_out(book, key, math.max(1, 500 - out)) end
  note_releases(k)
  return out
end

-- Of `ids` take away what slots holds for them: the keys that were held, and how often each.
local function give_slots(k, ids)
  local keys, fields, freed, gone = {}, {}, {}, {}
  for i, text in ipairs(redis.call('HMGET', k.slots, unpack(ids))) do
    if text then
      gone[#gone + 1] = ids[i]
      for key in string.gmatch(text, '%S+') do
        if not freed[key] then
          freed[key] = 0
          keys[#keys + 1], fields[#keys + 1] = key, '#' .. key
        end
        freed[key] = freed[key] + 1
      end
    end
  end
  if #gone == 0 then return keys, freed end
  local left = {}
  for i, count in ipairs(redis.call('HMGET', k.slots, unpack(fields))) do
    local rest = tonumber(count or 0) - freed[keys[i]]
    if rest > 0 then
      left[#left + 1], left[#left + 2] = fields[i], whole(rest)
    else
      gone[#gone + 1] = fields[i]
    end
  end
  redis.call('HDEL', k.slots, unpack(gone))
  if #left > 0 then redis.call('HSET', k.slots, unpack(left)) end
  return keys, freed
end

-- These are not claimed any more: their slots are free. Where `passing`, the next ones come out;
-- not for those that go back to ready, since they are the next ones.
local function free_slots(k, ids, passing)
  if #ids == 0 or redis.call('EXISTS', k.slots) == 0 then return end
  local keys, freed = give_slots(k, ids)
  if #keys == 0 or not passing or redis.call('EXISTS', k.queues) == 0 then return end
  local book, out = new_book(k, 0), 0
  learn(book, keys)
  for _, key in ipairs(keys) do out = out + let_out(book, key, freed[key]) end
  if out > 0 then wake_one(k.wake, k.meta) end
end

-- Take `ids` out of what is parked; the ids that were there. `headers` are those of `ids`.
local function unpark(k, ids, headers)
  local found = {}
  for i, at in ipairs(redis.call('ZMSCORE', k.parked, unpack(ids))) do
    if at then
      found[#found + 1] = ids[i]
      local set, text = limits_of(headers[i] or ''), sortable(at)
      if set then
        local member = set .. ' ' .. text .. ' ' .. ids[i]
        redis.call('ZREM', k.queues, member, member .. ' s')
        local wait = redis.call('HGET', k.slots, '@' .. set)
        local _, first = read_wait(wait or nil)
        if first == text then step_up(k, wait, first_of(k, set, 1)[1]) end
      end
    end
  end
  if #found > 0 then redis.call('ZREM', k.parked, unpack(found)) end
  return found
end

-- Before `ids` are taken out of where they wait to start: those that are parked, taken out by this.
-- Others may have been let out, so the next ones are in their place.
local function leave_limits(k, ids, now)
  if #ids == 0 or redis.call('EXISTS', k.queues) == 0 then return {} end
  local headers = redis.call('HMGET', k.info, unpack(ids))
  local found, was_parked, book, out = unpark(k, ids, headers), {}, new_book(k, now), 0
  for _, id in ipairs(found) do was_parked[id] = true end
  for i, id in ipairs(ids) do
    if headers[i] and not was_parked[id] then
      local _, keys = limits_of(headers[i])
      for _, key in ipairs(keys) do out = out + let_out(book, key, 1) end
    end
  end
  if #book.armed > 0 then note_releases(k) end
  if out > 0 then wake_one(k.wake, k.meta) end
  return found
end

-- Of tasks that become ready, park those whose sets are parked already: they would only be refused,
-- and have to stay behind. `sets` says by id which have one; a flat list of what is left.
local function park_followers(k, flat, sets)
  if redis.call('EXISTS', k.queues) == 0 then return flat end
  local left = {}
  for i = 1, #flat, 2 do
    local at, id = flat[i], flat[i + 1]
    local wait = sets[id] and redis.call('HGET', k.slots, '@' .. sets[id])
    if wait then
      park(k, id, at, sets[id], read_wait(wait), wait)
    else
      left[#left + 1], left[#left + 2] = at, id
    end
  end
  return left
end

-- Let out what waits for any key of a limit, up to 500 tasks, from the place `after` in queues on;
-- how many were, and where to go on, or nil.
local function let_all_out(k, id, now, after)
  local book, out = new_book(k, now), 0
  local start = after or '[!' .. id .. '.'
  local waits = redis.call('ZRANGEBYLEX', k.queues, start, '(!' .. id .. '/', 'LIMIT', 0, 200)
  local seen, last = {}, nil
  for _, wait in ipairs(waits) do
    local key = read_wait(wait)
    if not seen[key] then
      if out >= 500 then return out, '[!' .. key .. ' ' end
      seen[key], last = true, key
      out = out + let_out(book, key, 500)
    end
  end
  if #book.armed > 0 then note_releases(k) end
  if #waits == 200 then return out, '(!' .. last .. ' :' end
  return out, nil
end

-- Keep what was said of limits, if nothing is known of them, or where `declaring` anything else.
local function keep_limits(k, options, now, declaring)
  local ids, said, texts, changed = {}, {}, {}, {}
  for _, o in ipairs(options) do
    for _, one in ipairs(o.said or {}) do
      if not said[one.id] then ids[#ids + 1] = one.id end
      said[one.id] = one
    end
  end
  if #ids == 0 then return end
  for i, text in ipairs(redis.call('HMGET', k.limits, unpack(ids))) do
    local one = said[ids[i]]
    local declared, set, name = string.match(text or '', '^(%S+) (%S+) (%S+)$')
    if not declared or (declaring and (declared ~= one.definition or name ~= one.name)) then
      texts[#texts + 1] = ids[i]
      texts[#texts + 1] = one.definition .. ' ' .. (set or '-') .. ' ' .. one.name
      if declared then changed[#changed + 1] = ids[i] end
    end
  end
  if #texts > 0 then redis.call('HSET', k.limits, unpack(texts)) end
  -- What is left beyond the first 500 comes out as others end.
  for _, id in ipairs(changed) do
    if let_all_out(k, id, now) > 0 then wake_one(k.wake, k.meta) end
  end
end
