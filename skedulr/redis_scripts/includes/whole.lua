-- A whole number as text. Lua's own conversion writes 3.5e+15 for large ones.
local function whole(number)
  return string.format('%.0f', number)
end
