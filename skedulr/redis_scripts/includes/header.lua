-- include: whole
-- What a script must know of a task that is not plain:
-- "<priority> <attempts> <crashes> <due> <unique>[ <unknown since ms>]", where <unique> is '-' or
-- "<mode>:<digest>". A task without a header has priority 0, no attempt, no crash, no due time and
-- no unique key; so has one whose header nobody can read: it must not stop the others.
local function read_header(text)
  local priority, attempts, crashes, due, unique, since
  if text then
    priority, attempts, crashes, due, unique, since =
      string.match(text, '^(%-?%d+) (%d+) (%d+) (%d+) (%S+) ?(%d*)$')
  end
  if not priority then
    return {priority = 0, attempts = 0, crashes = 0, due = 0, unique = '-', since = 0}
  end
  return {
    priority = tonumber(priority), attempts = tonumber(attempts), crashes = tonumber(crashes),
    due = tonumber(due), unique = unique, since = tonumber(since) or 0,
  }
end

local function write_header(h)
  local text = h.priority .. ' ' .. h.attempts .. ' ' .. h.crashes .. ' ' .. whole(h.due)
    .. ' ' .. h.unique
  if h.since > 0 then return text .. ' ' .. whole(h.since) end
  return text
end
