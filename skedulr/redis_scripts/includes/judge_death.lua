-- include: give_back
-- include: end_tasks
-- include: header
-- include: place
-- include: count_runs
-- include: note_deaths
-- Charge each of `ids` with the death that `d` tells of: a crash, or a loss where `d.loss`. Those
-- that reach `d.limit` of these end as dead with the journal entry `d.death`; the others get `d.back`
-- and the count in their header, and are returned as positions. `d.presumed`: the owner may live.
-- `k.name` is what the task is called, '' where nobody knows.
local function charge(k, ids, texts, d, now)
  local living, dead, kinds, entries, journals, counted, samples = {}, {}, {}, {}, {}, {}, {}
  local named = ' - - ' .. (k.name ~= '' and k.name or '(unknown)')
  local their_claims = {}
  if #ids == 0 then return living, dead end
  local what = d.loss and 'losses' or 'crashes'
  local bodies, headers = redis.call('HMGET', k.tasks, unpack(ids)),
    redis.call('HMGET', k.info, unpack(ids))
  for i, id in ipairs(ids) do
    local token, at = read_claim(texts[i])
    local header = read_header(headers[i])
    header.priority, header[what] = priority_of(at), header[what] + 1
    if d.presumed then header.blamed = token end
    if not d.loss then samples[#samples + 1] = 'x' .. named end
    if header[what] >= d.limit then
      dead[#dead + 1], kinds[#kinds + 1], entries[#entries + 1] = id, 'd', d.death
      their_claims[#dead] = texts[i]
      samples[#samples + 1] = 'd' .. named
    else
      living[#living + 1] = i
      journals[#journals + 1], journals[#journals + 2] =
        id, (bodies[i] or '') .. d.back .. stamp(now)
      counted[#counted + 1], counted[#counted + 2] = id, write_header(header)
    end
  end
  if #dead > 0 then
    lease_end(k, dead, their_claims)
    redis.call('HDEL', k.claims, unpack(dead))
    end_tasks(k, dead, kinds, entries, now)
    note_deaths(k.deaths, dead, now)
  end
  if #living > 0 then
    redis.call('HSET', k.tasks, unpack(journals))
    redis.call('HSET', k.info, unpack(counted))
  end
  if not d.loss then redis.call('HINCRBY', k.stats, 'crashed', #ids) end
  if #samples > 0 then count_runs(k.history, k.stats, samples, now) end
  return living, dead
end

local function owner_of(token)
  return string.match(token, '^(.*):') or token
end

-- How many suspects each owner ran, and the most that any did.
local function count_suspects(texts)
  local ran, most = {}, 0
  for _, text in ipairs(texts) do
    local token, _, started, suspect = read_claim(text)
    if suspect and started > 0 then
      local owner = owner_of(token)
      ran[owner] = (ran[owner] or 0) + 1
      most = math.max(most, ran[owner])
    end
  end
  return ran, most
end

-- A death that nobody is named for: of several suspects it says only that one of them may have done
-- it, so fewer run together from now on. The first such death in a while begins boldly.
local function grow_wary(k, most)
  if most > 1 then
    local wary = tonumber(redis.call('HGET', k.meta, 'wary') or 0)
    redis.call('HSET', k.meta, 'wary', math.min(wary + 1, 2))
  elseif most == 0 and redis.call('EXISTS', k.suspects) == 0 then
    redis.call('HDEL', k.meta, 'wary')
  end
end

-- What becomes of the claims of owners that died. The culprit is charged. Where nobody is named and
-- `d.judging`, a task that ran becomes a suspect; and a suspect that ran is charged, if it is the
-- only one its owner ran. All else goes back as it was. `d`: culprit, judging, limit, back, death,
-- loss, presumed. Returns the ids that went back, those of them that were charged, and those that
-- are dead now.
local function judge_death(k, ids, texts, d, now)
  local returned, their_texts, suspected, accused, accused_texts = {}, {}, {}, {}, {}
  local nameless = d.judging and d.culprit == ''
  local suspects_ran, most = count_suspects(texts)
  if nameless then grow_wary(k, most) end
  for i, id in ipairs(ids) do
    local token, _, started, suspect = read_claim(texts[i])
    local ran = nameless and started > 0
    local alone = suspects_ran[owner_of(token)] == 1
    if id == d.culprit or (ran and suspect and alone) then
      accused[#accused + 1], accused_texts[#accused_texts + 1] = id, texts[i]
    else
      returned[#returned + 1], their_texts[#their_texts + 1] = id, texts[i]
      suspected[#returned] = ran
    end
  end
  local living, dead = charge(k, accused, accused_texts, d, now)
  local charged = {}
  for n, i in ipairs(living) do
    charged[n] = accused[i]
    returned[#returned + 1], their_texts[#their_texts + 1] = accused[i], accused_texts[i]
  end
  give_back(k, returned, their_texts, suspected)
  return returned, charged, dead
end
