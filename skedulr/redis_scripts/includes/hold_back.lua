-- include rarely: header
-- include rarely: locks
-- include: whole
-- A deliverer leaves the submitter this long to tie its tasks to their parents, ms.
local FIRST_CHANCE = 1000

-- Tasks whose bodies are stored wait for others. What waiting holds of one is
-- "<round> <priority> <when> <unique>[ <limits>] <letters>": the options as of a submit, and a letter
-- a parent:
-- S (has to succeed), A (has to end), F (one of these has to end otherwise); small once it is known:
-- s, a, f (it succeeded), x (it ended otherwise). A round ends where a skipped task waits anew.
-- held has them by the time of their submit, for lists. `k` names the keys waiting, held, outbox,
-- info, unique and windows.
local function hold_back(k, ids, options, now)
  local texts, items, headers, times = {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local o = options[n]
    texts[2 * n - 1], texts[2 * n] = id, '0 ' .. o.text .. ' ' .. o.letters
    times[2 * n - 1], times[2 * n] = whole(now), id
    -- The steps of a workflow begin when all are tied, and are removed if that is never so.
    if not o.held then
      items[#items + 1], items[#items + 2] = whole(now + FIRST_CHANCE), 'a ' .. id
    end
    if o.digest then
      headers[#headers + 1] = id
      headers[#headers + 1] = write_header(
        {priority = o.priority, attempts = 0, crashes = 0, due = 0, since = 0,
         unique = o.mode .. ':' .. o.digest})
    end
  end
  redis.call('HSET', k.waiting, unpack(texts))
  redis.call('ZADD', k.held, unpack(times))
  if #items > 0 then redis.call('ZADD', k.outbox, unpack(items)) end
  if #headers > 0 then
    redis.call('HSET', k.info, unpack(headers))
    take_locks(k.unique, k.windows, ids, options, now)
  end
end
