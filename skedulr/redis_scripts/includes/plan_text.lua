-- include: whole
-- What planned holds for a schedule: "<revision> <by> <tick> <held> <fired> <skipped> <runs>".
-- <by> is the set of code that declares it, '-' for one made through the API; <tick> is the next
-- tick, '-' for none; <held> is 1 while that one waits for the run before; <runs> are the last ten
-- runs, newest first: what follows "<name>@" in their ids, joined by commas, '-' for none.
local MOST_RUNS = 10

local function read_plan(text)
  local revision, by, tick, held, fired, skipped, runs =
    string.match(text or '', '^(%S+) (%S+) (%S+) (%d) (%d+) (%d+) (%S+)$')
  if not revision then return nil end
  return {
    revision = revision, by = by, tick = tick, held = held, fired = tonumber(fired),
    skipped = tonumber(skipped), runs = runs,
  }
end

local function write_plan(p)
  return p.revision .. ' ' .. p.by .. ' ' .. p.tick .. ' ' .. p.held .. ' ' .. whole(p.fired)
    .. ' ' .. whole(p.skipped) .. ' ' .. p.runs
end

-- The run before: what follows "<name>@" in its id, or nil.
local function last_run(p)
  if p.runs == '-' then return nil end
  return string.match(p.runs, '^[^,]+')
end

local function add_run(p, run)
  local kept = {run}
  for one in string.gmatch(p.runs, '[^,]+') do
    if one ~= '-' and #kept < MOST_RUNS then kept[#kept + 1] = one end
  end
  p.runs = table.concat(kept, ',')
end
