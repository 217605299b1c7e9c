-- PURPOSE  Tell waiting tasks what became of their parents. One that has nothing left to wait for
--          goes into the queue; one whose trigger can not happen any more is skipped. Each edge
--          counts once, so this is safe to repeat.
-- KEYS     ready stream delayed waiting held edges outbox tasks info records done dead cancels
--          watch stats unique progress wake meta history suspects limits slots rates releases
--          parked queues turns
-- ARGV     journal entry of a task whose parents all succeeded and none should have; how many
--          entries follow, and they; then per edge: child, "<index>,<round>" (index 0: skip it
--          whatever it waits for), which entry tells that this parent did not succeed, or 0
-- RETURNS  {now ms, how many were put into the queue, how many were skipped, how many of those have
--          children}
-- include: now
-- include: enqueue
-- include: end_tasks
-- include: limiting
local ready, stream, delayed, waiting, held, edges, outbox, tasks, info, records, done, dead,
  cancels, watch, stats, unique, progress, wake, meta, history, suspects, limits, slots, rates,
  releases, parked, queues, turns = unpack(KEYS)
local limiting = limiting_of(ready, suspects, info, wake, meta, limits, slots, rates, releases,
                            parked, queues, turns)
local now = now_ms()
local first = tonumber(ARGV[2]) + 3

-- Plain, not as a pattern: a join may have 100,000 letters, and each batch of its parents asks.
local function has(letters, letter)
  return string.find(letters, letter, 1, true) ~= nil
end

-- The round, the options and the letters that waiting holds of a task; nil for one that is gone.
local function read_waiting(text)
  local _, last, round, placing = string.find(text or '', '^(%d+) (%S+ %S+ %S+) ')
  if not last then return end
  local letters = string.sub(text, last + 1)
  local limits, rest = string.match(letters, '^(l:%S+ f:%S+) (.*)$')
  if not limits then limits, rest = string.match(letters, '^([lf]:%S+) (.*)$') end
  if limits then return round, placing .. ' ' .. limits, rest end
  return round, placing, letters
end

-- The letters of one task after its `news` (positions in ARGV), and the number of the entry with
-- which it is skipped, 0 for the first argument, or nil.
local function judge(round, letters, news)
  local changed, order, skipped = {}, {}, nil
  for _, at in ipairs(news) do
    local index, of = string.match(ARGV[at + 1], '^(%d+),(%d+)$')
    local entry = tonumber(ARGV[at + 2])
    if of == round then
      index = tonumber(index)
      local letter = changed[index] or string.sub(letters, index, index)
      local after
      if index == 0 then
        skipped = skipped or entry
      elseif letter == 'S' and entry > 0 then
        skipped = skipped or entry
      elseif letter == 'S' then
        after = 's'
      elseif letter == 'A' then
        after = 'a'
      elseif letter == 'F' then
        after = entry > 0 and 'x' or 'f'
      end
      if after then changed[index], order[#order + 1] = after, index end
    end
  end
  table.sort(order)
  local parts, from = {}, 1
  for _, index in ipairs(order) do
    parts[#parts + 1] = string.sub(letters, from, index - 1)
    parts[#parts + 1] = changed[index]
    from = index + 1
  end
  letters = table.concat(parts) .. string.sub(letters, from)
  if not skipped and has(letters, 'f') and not has(letters, 'F') and not has(letters, 'x') then
    skipped = 0
  end
  return letters, skipped, #order > 0
end

local function is_free(letters)
  return not has(letters, 'S') and not has(letters, 'A')
    and (has(letters, 'x') or not has(letters, 'F') and not has(letters, 'f'))
end

local news, children = {}, {}
for at = first, #ARGV, 3 do
  local child = ARGV[at]
  if not news[child] then
    news[child] = {}
    children[#children + 1] = child
  end
  local theirs = news[child]
  theirs[#theirs + 1] = at
end
if #children == 0 then return {now, 0, 0, 0} end

local free, options, skipped, reasons, kinds, kept, gone = {}, {}, {}, {}, {}, {}, {}
for i, text in ipairs(redis.call('HMGET', waiting, unpack(children))) do
  local child = children[i]
  local round, placing, letters = read_waiting(text)
  if round then
    local after, skip, is_new = judge(round, letters, news[child])
    if skip then
      skipped[#skipped + 1], kinds[#kinds + 1] = child, 'k'
      reasons[#reasons + 1] = skip == 0 and ARGV[1] or ARGV[skip + 2]
    elseif is_free(after) then
      free[#free + 1], options[#options + 1] = child, read_options(placing, now)
    elseif is_new then
      kept[#kept + 1], kept[#kept + 2] = child, round .. ' ' .. placing .. ' ' .. after
    end
    if skip or is_free(after) then gone[#gone + 1] = child end
  end
end
-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', waiting, '', unpack(gone))
if #gone > 0 then redis.call('ZREM', held, unpack(gone)) end
if #kept > 0 then redis.call('HSET', waiting, unpack(kept)) end
if #free > 0 then
  -- Their keys are locked since they were submitted.
  enqueue({ready = ready, stream = stream, delayed = delayed, info = info, wake = wake,
           meta = meta, history = history, limiting = limiting}, free, options, now)
end
local told = 0
if #skipped > 0 then
  told = end_tasks({tasks = tasks, info = info, records = records, done = done, dead = dead,
                    cancels = cancels, watch = watch, stats = stats, unique = unique,
                    progress = progress, edges = edges, outbox = outbox, limiting = limiting},
                   skipped, kinds, reasons, now)
end
return {now, #free, #skipped, told}
