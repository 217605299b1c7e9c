-- include: give_back
-- include: end_tasks
-- include: header
-- include: place
-- include: count_runs
-- Charge a crash to each of `ids`. Those that reach `limit` end as dead with the journal entry
-- `death`; the others get `back` and the count in their header, and are returned as positions.
-- `k.name` is what the task is called, '' where nobody knows.
local function charge(k, ids, texts, limit, back, death, now)
  local living, dead, kinds, entries, journals, counted, samples = {}, {}, {}, {}, {}, {}, {}
  local named = ' - - ' .. (k.name ~= '' and k.name or '(unknown)')
  local their_claims = {}
  if #ids == 0 then return living, dead end
  local bodies, headers = redis.call('HMGET', k.tasks, unpack(ids)),
    redis.call('HMGET', k.info, unpack(ids))
  for i, id in ipairs(ids) do
    local _, at = read_claim(texts[i])
    local header = read_header(headers[i])
    header.priority, header.crashes = priority_of(at), header.crashes + 1
    samples[#samples + 1] = 'x' .. named
    if header.crashes >= limit then
      dead[#dead + 1], kinds[#kinds + 1], entries[#entries + 1] = id, 'd', death
      their_claims[#dead] = texts[i]
      samples[#samples + 1] = 'd' .. named
    else
      living[#living + 1] = i
      journals[#journals + 1], journals[#journals + 2] = id, (bodies[i] or '') .. back .. stamp(now)
      counted[#counted + 1], counted[#counted + 2] = id, write_header(header)
    end
  end
  if #dead > 0 then
    lease_end(k, dead, their_claims)
    redis.call('HDEL', k.claims, unpack(dead))
    end_tasks(k, dead, kinds, entries, now)
  end
  if #living > 0 then
    redis.call('HSET', k.tasks, unpack(journals))
    redis.call('HSET', k.info, unpack(counted))
  end
  redis.call('HINCRBY', k.stats, 'crashed', #ids)
  count_runs(k.history, k.stats, samples, now)
  return living, dead
end

-- What becomes of the claims of an owner that died. The culprit is charged a crash. Where nobody is
-- named and `judging`, a task that ran becomes a suspect, and a suspect that ran is charged: it is
-- the only suspect its owner held. All else goes back as it was. Returns the ids that went back,
-- those of them that were charged, and those that are dead now.
local function judge_death(k, ids, texts, culprit, judging, limit, back, death, now)
  local returned, their_texts, suspected, accused, accused_texts = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local _, _, started, suspect = read_claim(texts[i])
    local ran = judging and culprit == '' and started > 0
    if id == culprit or (ran and suspect) then
      accused[#accused + 1], accused_texts[#accused_texts + 1] = id, texts[i]
    else
      returned[#returned + 1], their_texts[#their_texts + 1] = id, texts[i]
      suspected[#returned] = ran
    end
  end
  local living, dead = charge(k, accused, accused_texts, limit, back, death, now)
  local charged = {}
  for n, i in ipairs(living) do
    charged[n] = accused[i]
    returned[#returned + 1], their_texts[#their_texts + 1] = accused[i], accused_texts[i]
  end
  give_back(k, returned, their_texts, suspected)
  return returned, charged, dead
end
