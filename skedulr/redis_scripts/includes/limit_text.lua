-- include: whole
-- How limits are written. A limit key is "<limit>.<digest of the formatted key, or ->", where
-- <limit> is the digest of the limit's name behind c (concurrency) or r (rate). A task has up to
-- four, and all tasks with the same limit keys form a set, called by its only key or by a digest.
-- A header says it with "l:<key>", or "l:<set>/<key>,<key>", and "f:<fair key>" behind that; the
-- options of a submit with "l:<set>/<key>|<definition>|<name>,...", and "f:<fair key>".
-- A definition is "c:<how many>" or "r:<how many>:<ms they are for>:<burst>".

-- The name of the set, its limit keys, the fair key or nil; of no limits nil, {}, and that.
local function limits_of(text)
  -- Mostly there is one limit, and nothing behind it.
  local only = string.match(text, 'l:([^/%s]+)$')
  if only then return only, {only}, nil end
  local keys, named = {}, string.match(text, 'l:(%S+)')
  local fair = string.match(text, 'f:(%S+)')
  if not named then return nil, keys, fair end
  local set, list = string.match(named, '^([^/]+)/(.+)$')
  for key in string.gmatch(list or named, '[^,]+') do keys[#keys + 1] = key end
  return set or named, keys, fair
end

-- What a submit says of limits, as a header says it; and what it says of each limit: its id, its
-- definition, its name. Both nil for a text that nobody can read.
local function read_limits(text)
  local said, header = {}, {}
  local named, fair = string.match(text, 'l:([^/%s]+/%S+)'), string.match(text, 'f:(%S+)')
  if named then
    local set, list = string.match(named, '^([^/]+)/(.+)$')
    local keys = {}
    for key, definition, name in string.gmatch(list, '([^,|]+)|([^,|]+)|([^,|]+)') do
      keys[#keys + 1] = key
      said[#said + 1] = {id = string.match(key, '^[^.]+'), definition = definition, name = name}
    end
    if #keys == 0 then return nil end
    header[1] = 'l:' .. (keys[1] == set and set or set .. '/' .. table.concat(keys, ','))
  end
  if fair then header[#header + 1] = 'f:' .. fair end
  if #header == 0 then return nil end
  return table.concat(header, ' '), said
end

-- What `limits` holds of a limit: "<definition> <what was set in its place, or -> <name>".
local function definition_of(text)
  local declared, set = string.match(text or '', '^(%S+) (%S+) %S+$')
  if not declared then return nil end
  local said = set == '-' and declared or set
  local most = string.match(said, '^c:(%d+)$')
  if most then return {most = tonumber(most)} end
  local rate, per, burst = string.match(said, '^r:([%d.e+-]+):(%d+):(%d+)$')
  if not rate then return nil end
  return {every = tonumber(per) / tonumber(rate), burst = tonumber(burst)}
end

-- A place as text that sorts as the number does.
local function sortable(at)
  return string.format('%016.0f', tonumber(at))
end
