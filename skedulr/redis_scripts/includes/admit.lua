-- include rarely: fair
-- include rarely: limits
-- What tasks' headers say of limits, by header and false where nothing: {set, fair, keys, lines}.
local function read_all(book, headers, count)
  local said, list, all = {}, {}, {}
  for i = 1, count do
    local header = headers[i]
    if header and said[header] == nil then
      said[header] = false
      if string.find(header, ' [lf]:') then
        local set, keys, fair = limits_of(header)
        said[header] = {set = set, fair = fair, keys = keys, lines = {}}
        list[#list + 1] = said[header]
        for _, key in ipairs(keys) do all[#all + 1] = key end
      end
    end
  end
  if #all > 0 then learn(book, all) end
  for _, one in ipairs(list) do
    for n, key in ipairs(one.keys) do one.lines[n] = book.lines[key] end
  end
  return said
end

-- Of the keys of these limits let the next task out each, if there is room.
local function pass_turns(book, looked_at)
  local k, passed = book.k, {}
  if #looked_at == 0 or redis.call('EXISTS', k.queues) == 0 then return end
  for _, one in ipairs(looked_at) do
    for _, line in ipairs(one.lines) do
      if not passed[line] then
        passed[line] = true
        let_out(book, line.key, 1)
      end
    end
  end
end

-- Decide on tasks that were taken out of ready: `found` and `kept` are {ids, places, bodies,
-- headers}. Those whose limits allow it are moved to `kept`, with what slots is to hold for them in
-- `kept.holders`; the others are parked, or stay in ready (a flat list is returned): a task that
-- would only wait in its owner's memory takes no slot of a limit that is nearly full, nor a token.
-- Whoever is refused passes its turn on to the next one of its other keys.
local function admit(book, found, kept, want, starting, suspected)
  local k, back, looked_at, n = book.k, {}, {}, #kept.ids
  local ids, places, bodies, headers = kept.ids, kept.places, kept.bodies, kept.headers
  local said = read_all(book, found.headers, #found.ids)
  for i, id in ipairs(found.ids) do
    local header, refused, stays = found.headers[i], nil, n >= want
    local one = header and said[header]
    if one and not stays then
      refused, stays = refusing(book, one.lines, n >= starting)
      if not stays then looked_at[#looked_at + 1] = one end
    end
    if stays then
      back[#back + 1], back[#back + 2] = found.places[i], id
    elseif refused then
      park(k, id, found.places[i], one.set, refused, redis.call('HGET', k.slots, '@' .. one.set),
           suspected)
    else
      n = n + 1
      ids[n], places[n], bodies[n], headers[n] = id, found.places[i], found.bodies[i], header or false
      if one then
        if one.fair then kept.fair[#kept.fair + 1] = places[n] end
        local held = take_slots(book, one.lines)
        if held ~= '' then
          kept.holders[#kept.holders + 1] = id
          kept.holders[#kept.holders + 1] = held
        end
      end
    end
  end
  pass_turns(book, looked_at)
  return back
end
