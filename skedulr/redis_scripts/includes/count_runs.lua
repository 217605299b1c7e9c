-- include: tally
-- include: open_minute
-- The most fields of stats: about eight of the pool, the others one a name. What is over goes under
-- one name, so that the space of a pool is bounded.
local MOST_FIELDS, OTHERS = 88, '(other)'

-- What `samples` add up to, "<letter> <waited ms or -> <ran ms or -> <name>" each: names, and the
-- tally of each. Equal ones, of which a fast pool has many, are read once.
local function tallies_of(samples)
  local times, distinct, names, tallies = {}, {}, {}, {}
  for i = 1, #samples do
    local sample = samples[i]
    local seen = times[sample]
    if not seen then distinct[#distinct + 1] = sample end
    times[sample] = (seen or 0) + 1
  end
  for _, sample in ipairs(distinct) do
    local letter, waited, ran, name = string.match(sample, '^([sdcerx]) ([%d-]+) ([%d-]+) (.+)$')
    if letter then
      if not tallies[name] then
        names[#names + 1], tallies[name] = name, new_tally()
      end
      add_runs(tallies[name], letter, waited, ran, times[sample])
    end
  end
  return names, tallies
end

local function names_minute(history, names, minute)
  local fields = {'open'}
  for i, name in ipairs(names) do fields[i + 1] = 'm' .. whole(minute) .. ' ' .. name end
  return redis.call('HMGET', history, unpack(fields)), fields
end

-- Those of `names` that stats knows, or knows from now on; the tallies of others go to OTHERS.
local function known_names(stats, names, tallies, held)
  local room, known, asked = MOST_FIELDS - redis.call('HLEN', stats), {}, {}
  for i, name in ipairs(names) do asked[i] = ' ' .. name end
  for i, text in ipairs(redis.call('HMGET', stats, unpack(asked))) do
    local name = names[i]
    if text or held[i + 1] then
      known[#known + 1] = name
    elseif room > 0 or name == OTHERS then
      room = room - 1
      redis.call('HSET', stats, ' ' .. name, '')
      known[#known + 1] = name
    else
      local others = tallies[OTHERS]
      if not others then
        others = new_tally()
        tallies[OTHERS] = others
        known[#known + 1] = OTHERS
        redis.call('HSETNX', stats, ' ' .. OTHERS, '')
      end
      add_text(others, tally_text(tallies[name]))
    end
  end
  return known
end

local function any_new(names, held)
  for i = 1, #names do
    if not held[i + 1] then return true end
  end
  return false
end

-- Count what runs came to, under the names of their tasks, in the minute that it is.
local function count_runs(history, stats, samples, now)
  if #samples == 0 then return end
  local names, tallies = tallies_of(samples)
  if #names == 0 then return end
  local minute = math.floor(now / 60000)
  local held, fields = names_minute(history, names, minute)
  if minute_in(held[1], now) > minute or any_new(names, held) then
    minute = minute_in(held[1], now)
    names = known_names(stats, names, tallies, held)
    held, fields = names_minute(history, names, minute)
  end
  local written = {}
  for i, name in ipairs(names) do
    add_text(tallies[name], held[i + 1])
    written[2 * i - 1], written[2 * i] = fields[i + 1], tally_text(tallies[name])
  end
  local open = with_minute(held[1], minute)
  if open then written[#written + 1], written[#written + 2] = 'open', open end
  redis.call('HSET', history, unpack(written))
end
