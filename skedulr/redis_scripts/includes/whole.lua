-- A whole number as text. Lua's own conversion writes 3.5e+15 for large ones.
local function whole(number)
  return string.format('%.0f', number)
end

-- The same of a score as a server gave it: a newer one may write 1.75e+15, mostly it is right as it
-- is, and to read it and write it again would be most of what a claim costs.
local function whole_score(text)
  return string.find(text, 'e', 1, true) and whole(text) or text
end
