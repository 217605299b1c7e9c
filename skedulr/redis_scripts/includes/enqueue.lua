-- include rarely: promote_due
-- include rarely: fair
-- include rarely: limits
-- include: queue_add
-- include rarely: locks
-- include: wake
-- include: open_minute
local PLAIN = {priority = 0, due = 0}

-- The option text of a task, '' or "<priority> <when> <unique>[ <limits>][ <letters>]": <when> is
-- '-', '+<delay ms>' or '@<due ms>'; <unique> is '-' or "<mode>:<on duplicate>:<window ms>:<digest>",
-- where mode is d (until done), s (until start) or w (a window), on duplicate is x (raise), r
-- (return), p (replace); <limits> are as in limit_text.lua; <letters> say what it waits for (see
-- hold_back.lua), with a w behind them where a workflow sees to it that it is tied to its parents,
-- or a W where Skedulr runs it itself, too: ahead of others if it can be.
-- Read before anything is written: an error here leaves nothing behind.
local function read_options(text, now)
  if text == '' then return PLAIN end
  local placing, letters = text, nil
  local held = ''
  if string.find(text, ' [SAF]+[wW]?$') then
    placing, letters, held = string.match(text, '^(.*) ([SAF]+)([wW]?)$')
  end
  local priority, when, unique, limits = string.match(placing, '^(%-?%d+) (%S+) (%S+) ?(.*)$')
  local o = {priority = tonumber(priority), due = 0, text = placing, letters = letters,
             held = held ~= '', ours = held == 'W'}
  local known = priority and true
  if known and when ~= '-' then
    local sign, ms = string.match(when, '^([+@])(%d+)$')
    known = sign and true
    if known then o.due = tonumber(ms) + (sign == '+' and now or 0) end
  end
  if known and unique ~= '-' then
    local mode, on_duplicate, window, digest =
      string.match(unique, '^([dsw]):([xrp]):(%d+):([%w_-]+)$')
    o.mode, o.on_duplicate, o.window, o.digest = mode, on_duplicate, tonumber(window), digest
    known = mode and true
  end
  if known and limits ~= '' then
    o.limits, o.said = read_limits(limits)
    known = o.limits and true
    if known then
      local set, _, fair = limits_of(o.limits)
      o.set, o.fair = set, fair
    end
  end
  if not known then error('options nobody can read: ' .. text) end
  return o
end

-- The digests that a batch asks for.
local function digests_of(options)
  local digests = {}
  for _, o in ipairs(options) do
    if o.digest then digests[#digests + 1] = o.digest end
  end
  return digests
end

-- Put tasks whose bodies are stored into ready, or into delayed where they are due later. `k` names
-- the keys ready, stream, delayed, info, unique, windows, wake, meta, history and limiting; without
-- unique no key is locked. `declaring`: what they say of limits is what holds now.
local function enqueue(k, ids, options, now, declaring)
  local fair, limited, sets = 0, false, {}
  for n, id in ipairs(ids) do
    local o = options[n]
    if o.limits then limited, sets[id] = true, o.set end
    if o.fair then fair = fair + 1 end
  end
  count_submitted(k.history, #ids, now)
  -- Fair tasks have turns of their own.
  local sequence = redis.call('HINCRBY', k.meta, 'sequence', #ids - fair) - #ids + fair
  local headers, places, later, first = {}, {}, {}, nil
  local turns, nth = limited and new_turns(k.limiting), 0
  for n, id in ipairs(ids) do
    local o = options[n]
    if o.due > now then
      later[#later + 1], later[#later + 2] = whole(o.due), id
      if not first or o.due < first then first = o.due end
    elseif o.fair then
      places[#places + 1], places[#places + 2] = fair_place(turns, o.fair, o.priority), id
    else
      places[#places + 1], places[#places + 2] = place(o.priority, sequence + nth + 1), id
    end
    if not o.fair then nth = nth + 1 end
    -- A delayed task's due time is its score; it moves to the header when it is promoted.
    if o.priority ~= 0 or o.digest or o.limits or (o.due > 0 and o.due <= now) then
      headers[#headers + 1] = id
      headers[#headers + 1] = write_header(
        {priority = o.priority, attempts = 0, crashes = 0, due = o.due, since = 0,
         unique = o.digest and o.mode .. ':' .. o.digest or '-', limits = o.limits})
    end
  end
  if #headers > 0 then
    redis.call('HSET', k.info, unpack(headers))
    if k.unique then take_locks(k.unique, k.windows, ids, options, now) end
  end
  if limited then
    close_turns(turns)
    keep_limits(k.limiting, options, now, declaring)
    places = park_followers(k.limiting, places, sets)
  end
  if #places > 0 then queue_add(k, places) end
  local before = first and next_due(k.delayed)
  if first then redis.call('ZADD', k.delayed, unpack(later)) end
  -- A delayed task needs a fetcher now only if it is the earliest: the others' wheels know of it.
  if #places > 0 or (first and (before == -1 or first < before)) then wake_one(k.wake, k.meta) end
end
