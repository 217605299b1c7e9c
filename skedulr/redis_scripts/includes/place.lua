-- include: whole
-- A task's score in ready: priority first (higher runs earlier), then first in, first out.
-- 201 levels of 2^44 places stay below 2^53, so every place is exact as a double.
local LEVEL = 17592186044416

local function place(priority, sequence)
  return whole((100 - priority) * LEVEL + sequence)
end

local function priority_of(at)
  return 100 - math.floor(tonumber(at) / LEVEL)
end
