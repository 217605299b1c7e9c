-- include: fair
-- include: limits
-- Decide on tasks that were taken out of ready: `found` and `kept` are {ids, places, bodies,
-- headers}. Those whose limits allow it are moved to `kept`, with what slots is to hold for them in
-- `kept.holders`; the others are parked, or stay in ready (a flat list is returned): a task that
-- would only wait in its owner's memory takes no slot of a limit that is nearly full, nor a token.
-- Whoever is refused passes its turn on to the next one of its other keys.
local function admit(book, found, kept, want, starting, suspected)
  local k, sets, keys, fairs, all, touched, back = book.k, {}, {}, {}, {}, {}, {}
  for i = 1, #found.ids do
    if found.headers[i] and string.find(found.headers[i], ' [lf]:') then
      sets[i], keys[i], fairs[i] = limits_of(found.headers[i])
      for _, key in ipairs(keys[i]) do all[#all + 1] = key end
    end
  end
  if #all > 0 then learn(book, all) end
  for i, id in ipairs(found.ids) do
    local refused, not_now = nil, #kept.ids >= want
    if sets[i] and not not_now then
      refused, not_now = refusing(book, keys[i], #kept.ids >= starting)
    end
    if not_now then
      back[#back + 1], back[#back + 2] = found.places[i], id
    elseif refused then
      park(k, id, found.places[i], sets[i], refused, redis.call('HGET', k.slots, '@' .. sets[i]),
           suspected)
    else
      local n = #kept.ids + 1
      kept.ids[n], kept.places[n], kept.bodies[n] = id, found.places[i], found.bodies[i]
      kept.headers[n] = found.headers[i] or false
      if fairs[i] then kept.fair[#kept.fair + 1] = found.places[i] end
      local held = sets[i] and take_slots(book, keys[i]) or ''
      if held ~= '' then
        kept.holders[#kept.holders + 1] = id
        kept.holders[#kept.holders + 1] = held
      end
    end
    if sets[i] and not not_now then
      for _, key in ipairs(keys[i]) do
        if not touched[key] then touched[#touched + 1], touched[key] = key, true end
      end
    end
  end
  if #touched > 0 and redis.call('EXISTS', k.queues) == 1 then
    for _, key in ipairs(touched) do let_out(book, key, 1) end
  end
  return back
end
