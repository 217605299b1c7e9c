-- What claims holds for an id: "<token> <place> <started ms, 0 if not yet>", and " s" after it for
-- a suspect: a task that ran when a process died and nobody was named.
local function read_claim(text)
  local token, at, started, mark = string.match(text, '^(%S+) (%d+) (%d+)( ?s?)$')
  return token, at, tonumber(started), mark == ' s'
end

local function claim_text(token, at, started, suspected)
  return token .. ' ' .. at .. ' ' .. started .. (suspected and ' s' or '')
end

-- What the text of a claim begins with that `token` names.
local function start_of(token)
  return token .. ' '
end

local function starts_with(text, start)
  return text and string.sub(text, 1, #start) == start
end

-- Whether the claim is still the one that `token` names.
local function holds(text, token)
  return starts_with(text, start_of(token))
end
