-- What claims holds for an id: "<token> <place> <started ms, 0 if not yet>", and " s" after it for
-- a suspect: a task that ran when a process died and nobody was named.
local function read_claim(text)
  local token, at, started, mark = string.match(text, '^(%S+) (%d+) (%d+)( ?s?)$')
  return token, at, tonumber(started), mark == ' s'
end

local function claim_text(token, at, started, suspected)
  return token .. ' ' .. at .. ' ' .. started .. (suspected and ' s' or '')
end

-- Whether the claim is still the one that `token` names.
local function holds(text, token)
  return text and string.sub(text, 1, #token + 1) == token .. ' '
end
