-- include: whole
-- What a script must know of a task that is not plain:
-- "<priority> <attempts> <crashes>[+<losses>] <due> <unique>[ <unknown since ms>[ <blamed>]]
-- [ <limits>]", where <unique> is '-' or "<mode>:<digest>"; <losses> are ends of its process that
-- nothing shows to be its fault; <blamed> is the token of a lost lease that was charged as a crash;
-- <limits> as in limit_text.lua. A task without a header has priority 0, no attempt, no crash, no due
-- time, no unique key and no limit; so has one whose header nobody can read: it must not stop the
-- others.
local function read_header(text)
  local priority, attempts, crashes, losses, due, unique, since, blamed, limits
  if text then
    local plain
    plain, limits = string.match(text, '^(.-) ([lf]:%S+.*)$')
    if limits and not string.find(limits, '^[lf]:%S+$')
       and not string.find(limits, '^l:%S+ f:%S+$') then plain = '' end
    priority, attempts, crashes, losses, due, unique, since, blamed =
      string.match(plain or text, '^(%-?%d+) (%d+) (%d+)%+?(%d*) (%d+) (%S+) ?(%d*) ?(%S*)$')
  end
  if not priority then
    return {priority = 0, attempts = 0, crashes = 0, losses = 0, due = 0, unique = '-', since = 0,
            blamed = ''}
  end
  return {
    priority = tonumber(priority), attempts = tonumber(attempts), crashes = tonumber(crashes),
    losses = tonumber(losses) or 0, due = tonumber(due), unique = unique,
    since = tonumber(since) or 0, blamed = blamed, limits = limits,
  }
end

local function write_header(h)
  local lost = (h.losses or 0) > 0 and '+' .. h.losses or ''
  local text = h.priority .. ' ' .. h.attempts .. ' ' .. h.crashes .. lost .. ' ' .. whole(h.due)
    .. ' ' .. h.unique
  if h.blamed and h.blamed ~= '' then
    text = text .. ' ' .. whole(h.since) .. ' ' .. h.blamed
  elseif h.since > 0 then
    text = text .. ' ' .. whole(h.since)
  end
  if h.limits then text = text .. ' ' .. h.limits end
  return text
end
