-- A whole number as text. Lua's own conversion writes 3.5e+15 for large ones.
local function whole(number)
  return string.format('%.0f', number)
end

-- The same of a score as a server gave it. Mostly it is right as it is; but a newer server may write
-- 1.75e+15, and somebody may have written a fraction.
local function whole_score(text)
  return string.find(text, '%D') and whole(text) or text
end
