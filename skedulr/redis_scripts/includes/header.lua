-- include: whole
-- What a script must know of a task that is not plain: "<priority> <attempts> <crashes> <due> <unique>".
-- A task without a header has priority 0, no attempt, no crash, no due time and no unique key.
local function read_header(text)
  if not text then
    return {priority = 0, attempts = 0, crashes = 0, due = 0, unique = '-'}
  end
  local priority, attempts, crashes, due, unique =
    string.match(text, '^(%-?%d+) (%d+) (%d+) (%d+) (%S+)$')
  return {
    priority = tonumber(priority), attempts = tonumber(attempts),
    crashes = tonumber(crashes), due = tonumber(due), unique = unique,
  }
end

local function write_header(h)
  return h.priority .. ' ' .. h.attempts .. ' ' .. h.crashes .. ' ' .. whole(h.due) .. ' ' .. h.unique
end
