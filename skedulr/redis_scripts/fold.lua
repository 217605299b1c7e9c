-- PURPOSE  Add the oldest minute that is over to all that is longer: to the totals since ever, to its
--          ten minutes, to its day; and drop what is kept long enough: minutes after 8 hours, tens
--          after 3 days, days after a year. Repeatable: a minute is added once.
-- KEYS     stats history
-- ARGV     Redis ms before which the names were read; then the names that stats knows
-- RETURNS  {now ms, 1 if a minute was added, 1 if there is more to do}
-- include: now
-- include: tally
-- include: open_minute
local stats, history = unpack(KEYS)
local minute_read = math.floor(tonumber(ARGV[1]) / 60000)
local now = now_ms()
-- Of each kind: how many minutes one is long, how many are kept.
local KINDS = {m = {1, 480}, t = {10, 432}, d = {1440, 366}}
-- So many that are too old are dropped in a call, each with a field a name.
local DROPPED = 2

-- The oldest minute in "open" that took its last count before the names were read.
local function oldest_over(open)
  local oldest
  for text in string.gmatch(string.match(open, '^%d+(.*)$') or '', '%d+') do
    local minute = tonumber(text)
    if minute < minute_read and (not oldest or minute < oldest) then oldest = minute end
  end
  return oldest
end

local function without(open, minute)
  local folded, left = tonumber(string.match(open, '^%d+')), {}
  for text in string.gmatch(string.match(open, '^%d+(.*)$'), '%d+') do
    if tonumber(text) ~= minute then left[#left + 1] = ' ' .. text end
  end
  return whole(math.max(folded, minute)) .. table.concat(left)
end

-- The fields of each name in `key` that begin with `prefix`, as they are with the minute's tallies in
-- them, appended to `written`.
local function add_to_names(key, prefix, tallies, written)
  local fields, theirs = {}, {}
  for i = 2, #ARGV do
    if tallies[ARGV[i]] then
      fields[#fields + 1], theirs[#theirs + 1] = prefix .. ' ' .. ARGV[i], tallies[ARGV[i]]
    end
  end
  if #fields == 0 then return end
  for i, text in ipairs(redis.call('HMGET', key, unpack(fields))) do
    local sum = new_tally()
    add_text(sum, text)
    add_text(sum, tally_text(theirs[i]))
    written[#written + 1], written[#written + 2] = fields[i], tally_text(sum)
  end
end

-- The minute's tallies by name, and of all together with what was submitted.
local function read_minute(minute)
  local name, fields, tallies, all = 'm' .. whole(minute), {}, {}, new_tally()
  fields[1] = name .. '+'
  for i = 2, #ARGV do fields[i] = name .. ' ' .. ARGV[i] end
  local texts = redis.call('HMGET', history, unpack(fields))
  for i = 2, #ARGV do
    if texts[i] then
      tallies[ARGV[i]] = new_tally()
      add_text(tallies[ARGV[i]], texts[i])
      add_text(all, texts[i])
    end
  end
  all.counts[SUBMITTED] = tonumber(texts[1] or '0')
  return tallies, all
end

local function add(minute, open)
  local tallies, all = read_minute(minute)
  local totals, written = {}, {'open', without(open, minute), 'm' .. whole(minute), tally_text(all)}
  add_to_names(stats, '', tallies, totals)
  for kind in string.gmatch('t d', '%a') do
    local prefix = kind .. whole(math.floor(minute / KINDS[kind][1]))
    local sum = new_tally()
    add_text(sum, redis.call('HGET', history, prefix))
    add_text(sum, tally_text(all))
    written[#written + 1], written[#written + 2] = prefix, tally_text(sum)
    add_to_names(history, prefix, tallies, written)
  end
  for kind in string.gmatch('m t d', '%a') do
    local kept, at = redis.call('HGET', history, kind .. ' kept') or '',
      whole(math.floor(minute / KINDS[kind][1]))
    if not string.find(kept .. ' ', ' ' .. at .. ' ', 1, true) then
      written[#written + 1], written[#written + 2] = kind .. ' kept', kept .. ' ' .. at
    end
  end
  if #totals > 0 then redis.call('HSET', stats, unpack(totals)) end
  redis.call('HSET', history, unpack(written))
end

-- Drop the fields of up to DROPPED spans of a kind that are too old; whether there are more.
local function drop_old(kind)
  local kept, left, gone = redis.call('HGET', history, kind .. ' kept') or '', {}, {}
  local oldest = math.floor(now / 60000 / KINDS[kind][1]) - KINDS[kind][2]
  local old, dropped = 0, 0
  for text in string.gmatch(kept, '%d+') do
    if tonumber(text) > oldest or dropped == DROPPED then
      left[#left + 1] = ' ' .. text
      if tonumber(text) <= oldest then old = old + 1 end
    else
      dropped = dropped + 1
      gone[#gone + 1], gone[#gone + 2] = kind .. text, kind .. text .. '+'
      for i = 2, #ARGV do gone[#gone + 1] = kind .. text .. ' ' .. ARGV[i] end
    end
  end
  if dropped > 0 then
    redis.call('HDEL', history, unpack(gone))
    redis.call('HSET', history, kind .. ' kept', table.concat(left))
  end
  return old > 0
end

-- A full Redis refuses writes but not deletions; a script that has begun to write goes on.
redis.call('HDEL', history, '')
local open = redis.call('HGET', history, 'open') or '0'
local minute, more = oldest_over(open), false
if minute then
  add(minute, open)
  more = oldest_over(without(open, minute)) ~= nil
end
for kind in string.gmatch('m t d', '%a') do more = drop_old(kind) or more end
return {now, minute and 1 or 0, more and 1 or 0}
