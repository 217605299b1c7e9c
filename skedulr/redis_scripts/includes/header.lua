-- include: whole
-- What a script must know of a task that is not plain:
-- "<priority> <attempts> <crashes> <due> <unique>[ <unknown since ms>][ <limits>]", where <unique> is
-- '-' or "<mode>:<digest>", and <limits> as in limit_text.lua. A task without a header has priority
-- 0, no attempt, no crash, no due time, no unique key and no limit; so has one whose header nobody
-- can read: it must not stop the others.
local function read_header(text)
  local priority, attempts, crashes, due, unique, since, limits
  if text then
    priority, attempts, crashes, due, unique, since, limits =
      string.match(text, '^(%-?%d+) (%d+) (%d+) (%d+) (%S+) ?(%d*) ?(.*)$')
    if limits and limits ~= '' and not string.find(limits, '^[lf]:%S+$')
       and not string.find(limits, '^l:%S+ f:%S+$') then priority = nil end
  end
  if not priority then
    return {priority = 0, attempts = 0, crashes = 0, due = 0, unique = '-', since = 0}
  end
  return {
    priority = tonumber(priority), attempts = tonumber(attempts), crashes = tonumber(crashes),
    due = tonumber(due), unique = unique, since = tonumber(since) or 0,
    limits = limits ~= '' and limits or nil,
  }
end

local function write_header(h)
  local text = h.priority .. ' ' .. h.attempts .. ' ' .. h.crashes .. ' ' .. whole(h.due)
    .. ' ' .. h.unique
  if h.since > 0 then text = text .. ' ' .. whole(h.since) end
  if h.limits then text = text .. ' ' .. h.limits end
  return text
end
