-- What claims holds for an id: "<token> <place> <started ms, 0 if not yet>".
local function read_claim(text)
  local token, at, started = string.match(text, '^(%S+) (%d+) (%d+)$')
  return token, at, tonumber(started)
end

-- Whether the claim is still the one that `token` names.
local function holds(text, token)
  return text and string.sub(text, 1, #token + 1) == token .. ' '
end
